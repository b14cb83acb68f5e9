"""confluent-kafka's registry client and its three serializers, unchanged, against a real broker."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
)

from tests.brokers import QUICK, PenstockProcess

pytestmark = pytest.mark.clients

USER = """{"type": "record", "name": "User", "namespace": "shop", "fields": [
    {"name": "name", "type": "string"}, {"name": "age", "type": "int", "default": 0}]}"""
USER_WITH_MAIL = """{"type": "record", "name": "User", "namespace": "shop", "fields": [
    {"name": "name", "type": "string"}, {"name": "age", "type": "int", "default": 0},
    {"name": "mail", "type": ["null", "string"], "default": null}]}"""
USER_BROKEN = """{"type": "record", "name": "User", "namespace": "shop", "fields": [
    {"name": "name", "type": "string"}, {"name": "age", "type": "string"}]}"""
USER_JSON = """{"title": "User", "type": "object", "additionalProperties": false,
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    process = PenstockProcess(Path(tmp_path_factory.mktemp("registry")) / "data", QUICK)
    yield process
    process.stop()


@pytest.fixture
def registry(broker: PenstockProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.http}) as client:
        yield client


@pytest.fixture
def fresh(broker: PenstockProcess) -> Iterator[SchemaRegistryClient]:
    """A client that has cached nothing."""
    with SchemaRegistryClient({"url": broker.http}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def send(broker: PenstockProcess, topic: str, value: bytes | None) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value, key=b"k", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    return errors[0]


def receive(broker: PenstockProcess, topic: str) -> bytes:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value: bytes = message.value()
        return value
    finally:
        consumer.close()


def test_avro_records_round_trip_with_their_schema(
    broker: PenstockProcess,
    registry: SchemaRegistryClient,
    fresh: SchemaRegistryClient,
    topic: str,
) -> None:
    ctx = value_of(topic)
    serialized = AvroSerializer(registry, USER)({"name": "Ada", "age": 36}, ctx)
    assert send(broker, topic, serialized) is None
    # The reader has a newer schema.
    read = AvroDeserializer(fresh, USER_WITH_MAIL)(receive(broker, topic), ctx)
    assert read == {"name": "Ada", "age": 36, "mail": None}
    assert registry.get_versions(f"{topic}-value") == [1]


def test_json_records_round_trip_with_their_schema(
    broker: PenstockProcess,
    registry: SchemaRegistryClient,
    fresh: SchemaRegistryClient,
    topic: str,
) -> None:
    ctx = value_of(topic)
    serialized = JSONSerializer(USER_JSON, registry)({"name": "Ada", "age": 36}, ctx)
    assert send(broker, topic, serialized) is None
    read = JSONDeserializer(None, schema_registry_client=fresh)(receive(broker, topic), ctx)
    assert read == {"name": "Ada", "age": 36}


def test_context_has_its_own_ids(
    broker: PenstockProcess, registry: SchemaRegistryClient, topic: str
) -> None:
    ctx = value_of(topic)
    context = f".{topic}"
    plain = AvroSerializer(registry, USER_WITH_MAIL)
    plain({"name": "Eve", "age": 1, "mail": None}, ctx)
    address = {"url": f"{broker.http}/contexts/{context}"}
    with SchemaRegistryClient(address) as inside, SchemaRegistryClient(address) as reader:
        name = inside.register_schema(f"{topic}-name", Schema('"string"', "AVRO"))
        assert name == 1
        reference = SchemaReference("Name", f"{topic}-named", 1)
        inside.register_schema(
            f"{topic}-named",
            Schema('{"type": "record", "name": "Name", "fields": []}', "AVRO"),
        )
        holder = Schema('{"type": "array", "items": "Name"}', "AVRO", [reference])
        assert inside.register_schema(f"{topic}-names", holder) == 3
        serialized = AvroSerializer(inside, USER)({"name": "Ada", "age": 36}, ctx)
        assert serialized is not None
        assert serialized[:5] == b"\0" + (4).to_bytes(4, "big")
        assert send(broker, topic, serialized) is None
        read = AvroDeserializer(reader)(receive(broker, topic), ctx)
        assert read == {"name": "Ada", "age": 36}
        assert f":{context}:{topic}-value" in inside.get_subjects()
        assert len(inside.get_subjects()) == 4
    assert registry.get_latest_version(f":{context}:{topic}-value").schema_id == 4
    assert registry.get_latest_version(f"{topic}-value").subject == f"{topic}-value"


def messages_of_our_own() -> tuple[Any, Any]:
    """Two files, one importing the other and a well-known type, as protoc would make them."""
    types = descriptor_pb2.FieldDescriptorProto
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    common = descriptor_pb2.FileDescriptorProto(
        name="shop/common/money.proto", package="shop.common", syntax="proto3"
    )
    money = common.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=types.TYPE_INT64, label=types.LABEL_OPTIONAL)
    pool.AddSerializedFile(common.SerializeToString())
    order = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=[common.name, "google/protobuf/timestamp.proto"],
    )
    made = order.message_type.add(name="Order")
    made.field.add(name="id", number=1, type=types.TYPE_STRING, label=types.LABEL_OPTIONAL)
    made.field.add(
        name="price",
        number=2,
        type=types.TYPE_MESSAGE,
        type_name=".shop.common.Money",
        label=types.LABEL_OPTIONAL,
    )
    made.field.add(
        name="placed",
        number=3,
        type=types.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=types.LABEL_OPTIONAL,
    )
    pool.AddSerializedFile(order.SerializeToString())
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    inner = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.common.Money"))
    return found, inner


def test_protobuf_records_round_trip_with_their_schema_and_imports(
    broker: PenstockProcess,
    registry: SchemaRegistryClient,
    fresh: SchemaRegistryClient,
    topic: str,
) -> None:
    order_class, money_class = messages_of_our_own()
    ctx = value_of(topic)
    serializer = ProtobufSerializer(order_class, registry)
    message = order_class(id="o-1", price=money_class(cents=1999))
    assert send(broker, topic, serializer(message, ctx)) is None
    read = ProtobufDeserializer(order_class, {}, fresh)(receive(broker, topic), ctx)
    assert read.id == "o-1"
    assert read.price.cents == 1999
    registered = fresh.get_latest_version(f"{topic}-value")
    assert registered.schema.schema_type == "PROTOBUF"
    assert "message Order {" in registered.schema.schema_str
    assert [one.name for one in registered.schema.references] == ["shop/common/money.proto"]
    # A subject with slashes in it, and the form that Python's deserializer asks for.
    assert fresh.get_versions("shop/common/money.proto") == [1]
    serialized = fresh.get_version("shop/common/money.proto", 1, False, "serialized")
    assert not serialized.schema.schema_str.startswith("syntax")


def test_well_known_protobuf_type_is_registered_whole(
    registry: SchemaRegistryClient, topic: str
) -> None:
    serializer = ProtobufSerializer(api_pb2.Api, registry)
    first = serializer(api_pb2.Api(name="x"), value_of(topic))
    again = ProtobufSerializer(api_pb2.Api, registry)(api_pb2.Api(name="x"), value_of(topic))
    assert first == again


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (record_subject_name_strategy, "shop.User"),
        (topic_record_subject_name_strategy, "{topic}-shop.User"),
    ],
)
def test_subjects_follow_the_naming_strategy(
    registry: SchemaRegistryClient, topic: str, strategy: Any, subject: str
) -> None:
    serializer = AvroSerializer(registry, USER, conf={"subject.name.strategy": strategy})
    serializer({"name": "Ada", "age": 1}, value_of(topic))
    assert subject.format(topic=topic) in registry.get_subjects()


def test_client_registers_looks_up_and_deletes(
    registry: SchemaRegistryClient, fresh: SchemaRegistryClient, topic: str
) -> None:
    first = registry.register_schema(topic, Schema(USER, "AVRO"))
    second = registry.register_schema(topic, Schema(USER_WITH_MAIL, "AVRO"))
    assert first != second
    assert registry.lookup_schema(topic, Schema(USER, "AVRO")).version == 1
    assert registry.get_latest_version(topic).schema_id == second
    assert fresh.get_schema(first).schema_str == fresh.get_version(topic, 1).schema.schema_str
    assert registry.delete_version(topic, 1) == 1
    assert registry.get_versions(topic) == [2]
    assert registry.delete_subject(topic) == [2]
    with pytest.raises(SchemaRegistryError) as caught:
        fresh.get_latest_version(topic)
    assert caught.value.error_code == 40401
    assert caught.value.http_status_code == 404
    assert sorted(registry.delete_subject(topic, permanent=True)) == [1, 2]


def test_incompatible_schema_is_reported_to_the_client(
    registry: SchemaRegistryClient, topic: str
) -> None:
    registry.register_schema(topic, Schema(USER, "AVRO"))
    assert registry.test_compatibility(topic, Schema(USER_WITH_MAIL, "AVRO"))
    assert not registry.test_compatibility(topic, Schema(USER_BROKEN, "AVRO"))
    with pytest.raises(SchemaRegistryError) as caught:
        registry.register_schema(topic, Schema(USER_BROKEN, "AVRO"))
    assert caught.value.http_status_code == 409
    assert caught.value.error_code == 40901
    registry.set_compatibility(topic, "NONE")
    assert registry.get_compatibility(topic) == "NONE"
    assert registry.register_schema(topic, Schema(USER_BROKEN, "AVRO"))


def test_schema_references_are_resolved_and_protected(
    registry: SchemaRegistryClient, topic: str
) -> None:
    registry.register_schema(f"{topic}-user", Schema(USER, "AVRO"))
    order = """{"type": "record", "name": "Order", "namespace": "shop",
        "fields": [{"name": "buyer", "type": "User"}]}"""
    reference = SchemaReference("shop.User", f"{topic}-user", 1)
    registered = Schema(order, "AVRO", [reference])
    schema_id = registry.register_schema(topic, registered)
    assert registry.get_schema(schema_id).references == [reference]
    written = AvroSerializer(registry, registered)
    data = written({"buyer": {"name": "Ada", "age": 1}}, value_of(topic.removesuffix("-value")))
    assert data is not None
    with pytest.raises(SchemaRegistryError) as caught:
        registry.delete_subject(f"{topic}-user")
    assert caught.value.error_code == 42206


def test_readonly_mode_refuses_registrations(registry: SchemaRegistryClient, topic: str) -> None:
    registry.update_mode(topic, "READONLY")
    with pytest.raises(SchemaRegistryError) as caught:
        registry.register_schema(topic, Schema(USER, "AVRO"))
    assert caught.value.error_code == 42205
    registry.update_mode(topic, "READWRITE")
    assert registry.register_schema(topic, Schema(USER, "AVRO"))


def test_topic_with_validation_refuses_records_without_a_schema(
    broker: PenstockProcess, registry: SchemaRegistryClient, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"confluent.value.schema.validation": "true"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(20)
    refused = send(broker, topic, b"no schema")
    assert refused is not None
    assert refused.code() == KafkaError.INVALID_RECORD
    unknown = send(broker, topic, b"\0\x7f\xff\xff\xffdata")
    assert unknown is not None
    assert unknown.code() == KafkaError.INVALID_RECORD
    serialized = AvroSerializer(registry, USER)({"name": "Ada", "age": 36}, value_of(topic))
    assert send(broker, topic, serialized) is None
    assert send(broker, topic, None) is None
    # Registered, but for another topic.
    elsewhere = AvroSerializer(registry, USER_WITH_MAIL)
    other = elsewhere({"name": "Ada", "age": 1, "mail": None}, value_of(f"{topic}-2"))
    foreign = send(broker, topic, other)
    assert foreign is not None
    assert foreign.code() == KafkaError.INVALID_RECORD
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(20)
    assert described["confluent.value.schema.validation"].value == "true"


def test_schemas_survive_a_restart(tmp_path: Path) -> None:
    process = PenstockProcess(tmp_path / "data", QUICK)
    try:
        with SchemaRegistryClient({"url": process.http}) as before:
            first = before.register_schema("a-value", Schema(USER, "AVRO"))
            before.register_schema("b-value", Schema(USER_JSON, "JSON"))
            before.set_compatibility("a-value", "FULL")
            before.delete_subject("b-value")
        process.kill()
        process.start()
        with SchemaRegistryClient({"url": process.http}) as after:
            assert after.get_subjects() == ["a-value"]
            assert after.lookup_schema("a-value", Schema(USER, "AVRO")).schema_id == first
            assert after.get_compatibility("a-value") == "FULL"
    finally:
        process.stop()
