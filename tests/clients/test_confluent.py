"""confluent-kafka (librdkafka) talks to the broker as it talks to Kafka."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.tools import CODECS
from tests.conftest import Broker
from tests.waiting import eventually

pytestmark = pytest.mark.clients
OFFSET_BEGINNING = -2


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    yield (made := Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}))
    made.flush(10)


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    configs = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=configs)
    admin.create_topics([new])[topic].result(20)

    def visible() -> bool:
        return len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == partitions

    eventually(visible, f"{topic} has {partitions} partitions")


def send(producer: Producer, topic: str, **record: Any) -> Message:
    """Produce one record and wait for its delivery report, failing on an error."""
    reports: list[tuple[KafkaError | None, Message]] = []
    producer.produce(topic, on_delivery=lambda error, m: reports.append((error, m)), **record)
    assert producer.flush(20) == 0
    error, message = reports[0]
    if error is not None:
        raise KafkaException(error)
    return message


def read(broker: Broker, topic: str, count: int, partition: int = 0, **at: int) -> list[Message]:
    """Consume `count` messages of one partition by assignment."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "by-assignment"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, partition, at.get("offset", OFFSET_BEGINNING))])
        messages: list[Message] = []
        while len(messages) < count:
            got = consumer.consume(count - len(messages), timeout=20)
            assert got, f"{len(messages)} of {count} messages came"
            assert all(m.error() is None for m in got), [m.error() for m in got]
            messages += got
        return messages
    finally:
        consumer.close()


def test_topics_are_created_listed_and_deleted(admin: AdminClient, topic: str) -> None:
    create(admin, topic, partitions=3)
    with pytest.raises(KafkaException) as again:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    assert again.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics([topic])[topic].result(20)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("no spaces please", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("too-many-copies", 1, 9), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-config", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (
            NewTopic("bad-value", 1, 1, config={"cleanup.policy": "burn"}),
            KafkaError.INVALID_CONFIG,
        ),
    ],
)
def test_invalid_topic_is_refused_with_the_kafka_code(
    admin: AdminClient, new: NewTopic, code: int
) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([new])[new.topic].result(20)
    assert refused.value.args[0].code() == code
    assert new.topic not in admin.list_topics(timeout=10).topics


def test_partitions_are_added_but_never_removed(admin: AdminClient, topic: str) -> None:
    create(admin, topic, partitions=2)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
    eventually(
        lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 4, "four"
    )
    with pytest.raises(KafkaException) as fewer:
        admin.create_partitions([NewPartitions(topic, 1)])[topic].result(20)
    assert fewer.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(20)
    return entries


def alter(admin: AdminClient, topic: str, name: str, value: str | None, how: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType[how])
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)


def test_topic_configs_are_described_and_altered(admin: AdminClient, topic: str) -> None:
    create(admin, topic, retention_ms="60000")
    entries = describe(admin, ResourceType.TOPIC, topic)
    assert entries["retention.ms"].value == "60000"
    assert entries["cleanup.policy"].value == "delete"
    assert entries["cleanup.policy"].is_default
    alter(admin, topic, "max.message.bytes", "5000", "SET")
    alter(admin, topic, "cleanup.policy", "compact", "APPEND")
    alter(admin, topic, "retention.ms", None, "DELETE")

    def altered() -> bool:
        now = {
            name: entry.value for name, entry in describe(admin, ResourceType.TOPIC, topic).items()
        }
        return (
            now["max.message.bytes"] == "5000"
            and set((now["cleanup.policy"] or "").split(",")) == {"delete", "compact"}
            and now["retention.ms"] == "604800000"
        )

    eventually(altered, "all three alterations are described")


@pytest.mark.parametrize(("name", "value"), [("retention.ms", "soon"), ("nothing.known", "1")])
def test_invalid_config_alteration_is_refused(
    admin: AdminClient, topic: str, name: str, value: str
) -> None:
    create(admin, topic)
    with pytest.raises(KafkaException) as refused:
        alter(admin, topic, name, value, "SET")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_broker_configs_are_described(admin: AdminClient) -> None:
    node = next(iter(admin.list_topics(timeout=10).brokers))
    entries = describe(admin, ResourceType.BROKER, str(node))
    assert entries["message.max.bytes"].value == "1048588"
    assert int(entries["num.partitions"].value or 0) >= 1


def test_cluster_is_described(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(20)
    assert cluster.cluster_id
    assert cluster.controller.id == cluster.nodes[0].id


@pytest.mark.parametrize("codec", CODECS)
def test_records_round_trip_with_every_codec(
    broker: Broker, admin: AdminClient, topic: str, codec: str
) -> None:
    create(admin, topic)
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
    producer = Producer({**settings, "compression.type": codec, "linger.ms": 50})
    sent = [(b"key-%d" % i, b"value-%d " % i * 20) for i in range(500)]
    for key, value in sent:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(20) == 0
    messages = read(broker, topic, 500)
    assert [(m.key(), m.value()) for m in messages] == sent
    assert [m.offset() for m in messages] == list(range(500))


def test_headers_null_keys_and_null_values_survive(
    broker: Broker, admin: AdminClient, producer: Producer, topic: str
) -> None:
    create(admin, topic)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    send(producer, topic, key=None, value=b"no key", headers=headers)
    send(producer, topic, key=b"tombstone", value=None)
    send(producer, topic, key=b"", value=b"")
    first, second, third = read(broker, topic, 3)
    assert (first.key(), first.value(), first.headers()) == (None, b"no key", headers)
    assert (second.key(), second.value(), second.headers()) == (b"tombstone", None, None)
    assert (third.key(), third.value()) == (b"", b"")


def test_partitions_keep_their_own_order(
    broker: Broker, admin: AdminClient, producer: Producer, topic: str
) -> None:
    create(admin, topic, partitions=3)
    for i in range(300):
        producer.produce(topic, value=b"%d" % i, partition=i % 3)
    assert producer.flush(20) == 0
    for partition in range(3):
        values = [int(m.value() or b"") for m in read(broker, topic, 100, partition)]
        assert values == list(range(partition, 300, 3))


def test_large_message_fits_and_an_oversized_one_is_refused(
    broker: Broker, admin: AdminClient, topic: str
) -> None:
    create(admin, topic, max_message_bytes="2000000")
    settings = {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10_000_000}
    producer = Producer(settings)
    big = bytes(range(256)) * 7_000
    send(producer, topic, value=big)
    with pytest.raises(KafkaException) as refused:
        send(producer, topic, value=b"x" * 2_000_001)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    send(producer, topic, value=b"after")
    first, second = read(broker, topic, 2)
    assert (first.value(), second.value()) == (big, b"after")


def test_log_append_time_replaces_the_client_timestamp(
    broker: Broker, admin: AdminClient, producer: Producer, topic: str
) -> None:
    create(admin, topic, message_timestamp_type="LogAppendTime")
    send(producer, topic, value=b"x", timestamp=1_000)
    kind, timestamp = read(broker, topic, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp > 1_600_000_000_000


def test_create_time_is_set_by_the_client(
    broker: Broker, admin: AdminClient, producer: Producer, topic: str
) -> None:
    create(admin, topic)
    send(producer, topic, value=b"x", timestamp=1_000)
    assert read(broker, topic, 1)[0].timestamp() == (TIMESTAMP_CREATE_TIME, 1_000)


def test_offsets_are_found_by_time_and_as_watermarks(
    broker: Broker, admin: AdminClient, producer: Producer, topic: str
) -> None:
    create(admin, topic, retention_ms="-1")
    for i in range(10):
        send(producer, topic, value=b"x", timestamp=10_000 + i * 100)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "times"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
        for time_ms, offset in [(0, 0), (10_000, 0), (10_101, 2), (10_900, 9)]:
            asked = [TopicPartition(topic, 0, time_ms)]
            assert consumer.offsets_for_times(asked, timeout=10)[0].offset == offset
        beyond = consumer.offsets_for_times([TopicPartition(topic, 0, 99_000)], timeout=10)
        assert beyond[0].offset == -1
    finally:
        consumer.close()
    newest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})
    result = newest[TopicPartition(topic, 0)].result(20)
    assert (result.offset, result.timestamp) == (9, 10_900)


def test_deleted_records_move_the_low_watermark(
    broker: Broker, admin: AdminClient, producer: Producer, topic: str
) -> None:
    create(admin, topic)
    for i in range(10):
        send(producer, topic, value=b"%d" % i)
    asked = TopicPartition(topic, 0, 6)
    assert admin.delete_records([asked])[asked].result(20).low_watermark == 6
    assert [m.value() for m in read(broker, topic, 4)] == [b"6", b"7", b"8", b"9"]
    beyond = TopicPartition(topic, 0, 11)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(20)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_reading_from_the_middle_starts_at_the_offset(
    broker: Broker, admin: AdminClient, producer: Producer, topic: str
) -> None:
    create(admin, topic)
    for i in range(100):
        producer.produce(topic, value=b"%d" % i)
    assert producer.flush(20) == 0
    assert read(broker, topic, 1, offset=57)[0].value() == b"57"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_delivers(
    broker: Broker, admin: AdminClient, topic: str, acks: str
) -> None:
    create(admin, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": acks})
    for i in range(50):
        producer.produce(topic, value=b"%d" % i)
    assert producer.flush(20) == 0
    assert [m.value() for m in read(broker, topic, 50)] == [b"%d" % i for i in range(50)]


def test_producing_to_an_unknown_topic_creates_it(
    broker: Broker, producer: Producer, topic: str
) -> None:
    send(producer, topic, value=b"made on the way")
    assert read(broker, topic, 1)[0].value() == b"made on the way"
