"""Schemas from Python: a registry's client, and Pydantic models as JSON schemas.

    registry = Registry("http://localhost:8080")
    registry.register_model(Order, topic="orders")
    payload = registry.encode(order, topic="orders")       # with the schema's id in front
    order = registry.decode(payload, Order)

A model is registered as an object that has its fields and no others, whatever it does with extra
fields when it reads: so a field with a default may be added later (BACKWARD), which Confluent's
rules do not allow of an object that is open. `closed=False` registers what Pydantic says.

Works with any registry that speaks Confluent's REST API. Calls wait for their answer; in asyncio,
register before you start, or from a thread.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from penstock.client.registry_client import Registered, RegistryApi
from penstock.runtime.http_request import ask_web
from penstock.state.registry.json_text import write_json
from penstock.state.registry.naming_strategies import Strategy, subject_of
from penstock.state.registry.parsed_schemas import AVRO, JSON, Reference

MAGIC = b"\0"
PREFIX_BYTES = 5
ENCODED_MAX = 1_000
"""Ids that one registry client remembers."""


class Model(Protocol):
    """What is used of a Pydantic model (version 2)."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Any: ...

    def model_dump_json(self) -> str: ...


M = TypeVar("M", bound=Model)


class _Verdict(msgspec.Struct):
    is_compatible: bool
    messages: list[str] = []


def schema_of_model(model: type[Model], *, closed: bool = True) -> str:
    """The JSON schema of a Pydantic model; with `closed`, its objects have no other fields."""
    schema = model.model_json_schema()
    if closed:
        for one in (schema, *schema.get("$defs", {}).values()):
            if isinstance(one, dict) and one.get("type") == "object" and "properties" in one:
                one.setdefault("additionalProperties", False)
    return write_json(schema)


class Registry:
    """A schema registry, by its address."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str = "",
        token: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._api = RegistryApi(
            ask_web, url, user=user, password=password, token=token, timeout_s=timeout_s
        )
        self._ids: dict[tuple[str, str], Registered] = {}

    # -- schemas ----------------------------------------------------------------------------

    def register(
        self,
        subject: str,
        schema: str,
        schema_type: str = AVRO,
        references: Sequence[Reference] = (),
    ) -> Registered:
        """Raises Rejected with the registry's number when it refuses."""
        return self._api.register(subject, schema, schema_type, references)

    def problems(self, subject: str, schema: str, schema_type: str = AVRO) -> list[str]:
        """Why a schema could not be registered; nothing: it could."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"
        answer = self._api.call("POST", path, {"schema": schema, "schemaType": schema_type})
        verdict = msgspec.json.decode(answer, type=_Verdict)
        return [] if verdict.is_compatible else verdict.messages or ["it is not compatible"]

    def schema(self, schema_id: int) -> dict[str, Any]:
        """What an id stands for, as the REST API shows it."""
        answer = self._api.call("GET", f"/schemas/ids/{schema_id}")
        shown: dict[str, Any] = msgspec.json.decode(answer)
        return shown

    # -- Pydantic models --------------------------------------------------------------------

    def register_model(
        self,
        model: type[Model],
        topic: str,
        *,
        is_key: bool = False,
        strategy: Strategy = Strategy.TOPIC,
        closed: bool = True,
    ) -> Registered:
        """Registers a model as the schema of a topic's values, or of its keys."""
        subject = _subject(model, topic, strategy, is_key=is_key)
        return self.register(subject, schema_of_model(model, closed=closed), JSON)

    def model_problems(
        self,
        model: type[Model],
        topic: str,
        *,
        is_key: bool = False,
        strategy: Strategy = Strategy.TOPIC,
        closed: bool = True,
    ) -> list[str]:
        """Why a model could not be registered as it is now: for a test in your own suite."""
        subject = _subject(model, topic, strategy, is_key=is_key)
        return self.problems(subject, schema_of_model(model, closed=closed), JSON)

    def encode(
        self,
        value: Model,
        topic: str,
        *,
        is_key: bool = False,
        strategy: Strategy = Strategy.TOPIC,
        closed: bool = True,
    ) -> bytes:
        """JSON with the id of its schema in front, as Confluent's serializers write it.

        The model is registered the first time.
        """
        kind = type(value)
        key = (_subject(kind, topic, strategy, is_key=is_key), f"{kind.__module__}.{kind.__name__}")
        known = self._ids.get(key)
        if known is None:
            known = self.register_model(
                kind, topic, is_key=is_key, strategy=strategy, closed=closed
            )
            if len(self._ids) >= ENCODED_MAX:
                self._ids.clear()
            self._ids[key] = known
        return MAGIC + known.id.to_bytes(4, "big") + value.model_dump_json().encode()

    @staticmethod
    def decode(payload: bytes, model: type[M]) -> M:
        """Reads what `encode` or a JSON serializer of Confluent's wrote."""
        if len(payload) < PREFIX_BYTES or payload[:1] != MAGIC:
            raise ValueError("the payload does not begin with the id of a schema")
        read: M = model.model_validate_json(payload[PREFIX_BYTES:])
        return read


def _subject(model: type[Model], topic: str, strategy: Strategy, *, is_key: bool) -> str:
    name = model.model_json_schema().get("title") if strategy is not Strategy.TOPIC else None
    subject = subject_of(strategy, topic, name, is_key=is_key)
    if subject is None:
        raise ValueError("the model has no title, and the strategy needs one")
    return subject
