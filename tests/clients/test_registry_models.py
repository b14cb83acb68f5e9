"""Pydantic models on a real registry, and read by Confluent's own deserializer."""

import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

from penstock.app.schemas import Registry
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.subject_names import Strategy
from tests.brokers import QUICK, PenstockProcess

pytestmark = pytest.mark.clients


class Address(BaseModel):
    street: str


class Order(BaseModel):
    id: int
    ship_to: Address | None = None


def evolved() -> type[BaseModel]:
    class Order(BaseModel):
        id: int
        ship_to: Address | None = None
        note: str = ""

    return Order


def broken() -> type[BaseModel]:
    class Order(BaseModel):
        id: str

    return Order


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    process = PenstockProcess(Path(tmp_path_factory.mktemp("models")) / "data", QUICK)
    yield process
    process.stop()


@pytest.fixture
def registry(broker: PenstockProcess) -> Registry:
    return Registry(broker.http)


def test_model_is_registered_evolved_and_protected(registry: Registry) -> None:
    first = registry.register_model(Order, "orders")
    assert first.subject == "orders-value"
    assert first.version == 1
    assert registry.register_model(Order, "orders") == first
    assert registry.model_problems(evolved(), "orders") == []
    assert registry.register_model(evolved(), "orders").version == 2
    assert registry.model_problems(broken(), "orders")
    with pytest.raises(Rejected) as caught:
        registry.register_model(broken(), "orders")
    assert caught.value.number is RegistryErrorCode.INCOMPATIBLE_SCHEMA
    assert registry.schema(first.id)["schemaType"] == "JSON"


def test_model_is_read_by_the_confluent_deserializer_and_back(
    broker: PenstockProcess, registry: Registry
) -> None:
    order = Order(id=7, ship_to=Address(street="Main"))
    payload = registry.encode(order, "shipping")
    assert registry.encode(order, "shipping") == payload
    with SchemaRegistryClient({"url": broker.http}) as client:
        read = JSONDeserializer(None, schema_registry_client=client)(
            payload, SerializationContext("shipping", MessageField.VALUE)
        )
    assert read == {"id": 7, "ship_to": {"street": "Main"}}
    assert registry.decode(payload, Order) == order
    with pytest.raises(ValueError, match="schema id"):
        registry.decode(b"{}", Order)


def test_model_subject_follows_the_strategy(registry: Registry) -> None:
    assert registry.register_model(Order, "t", strategy=Strategy.RECORD).subject == "Order"
    named = registry.register_model(Order, "t", strategy=Strategy.TOPIC_RECORD, is_key=True)
    assert named.subject == "t-Order"


def test_absent_registry_is_an_os_error() -> None:
    with pytest.raises(urllib.error.URLError):
        Registry("http://127.0.0.1:1").schema(1)
