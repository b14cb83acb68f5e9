"""kafka-python, an independent implementation with threads, talks to the broker as to Kafka."""

import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.clients.tools import CODECS
from tests.conftest import Broker
from tests.waiting import eventually

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function Python 3.11 has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import (
        ConfigResource,
        ConfigResourceType,
        KafkaAdminClient,
        NewPartitions,
        NewTopic,
    )
    from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as made:
        yield made


def create(admin: Any, topic: str, partitions: int = 1, **config: str) -> None:
    configs = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
    eventually(lambda: partition_count(admin, topic) == partitions, "the topic is there")


def partition_count(admin: Any, topic: str) -> int:
    return len(admin.describe_topics([topic])[0]["partitions"])


def read(broker: Broker, topic: str, count: int) -> list[Any]:
    settings = {"bootstrap_servers": broker.bootstrap, "consumer_timeout_ms": 20_000}
    with closing(KafkaConsumer(**settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        records = [record for _, record in zip(range(count), consumer, strict=False)]
    assert len(records) == count
    return records


def test_topics_are_created_listed_extended_and_deleted(admin: Any, topic: str) -> None:
    create(admin, topic, partitions=2)
    assert topic in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
    admin.create_partitions({topic: NewPartitions(5)})
    eventually(lambda: partition_count(admin, topic) == 5, "five partitions")
    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics(), "the topic is gone")


def test_configs_are_described_and_altered(admin: Any, topic: str) -> None:
    create(admin, topic, retention_ms="60000")

    def retention() -> str:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        return str(admin.describe_configs([asked], config_filter="all"))

    assert "60000" in retention()
    changes = {"retention.ms": "71234"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=changes)])
    eventually(lambda: "71234" in retention(), "the new retention is described")
    bad = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "soon"})
    assert "InvalidConfigurationError" in admin.alter_configs([bad])["topic"][topic]


@pytest.mark.parametrize("codec", CODECS)
def test_records_round_trip_with_every_codec(
    broker: Broker, admin: Any, topic: str, codec: str
) -> None:
    create(admin, topic)
    sent = [(b"key-%d" % i, b"value-%d " % i * 20) for i in range(200)]
    compression = None if codec == "none" else codec
    settings = {"bootstrap_servers": broker.bootstrap, "enable_idempotence": True}
    with closing(KafkaProducer(**settings, compression_type=compression)) as producer:
        waiting = [producer.send(topic, value, key) for key, value in sent]
        assert [future.get(20).offset for future in waiting] == list(range(200))
    assert [(r.key, r.value) for r in read(broker, topic, 200)] == sent


def test_headers_null_keys_and_null_values_survive(broker: Broker, admin: Any, topic: str) -> None:
    create(admin, topic)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        headers = [("a", b"1"), ("a", b"")]
        producer.send(topic, b"no key", headers=headers).get(20)
        producer.send(topic, None, b"tombstone").get(20)
    first, second = read(broker, topic, 2)
    assert (first.key, first.value, list(first.headers)) == (None, b"no key", headers)
    assert (second.key, second.value, list(second.headers)) == (b"tombstone", None, [])


def test_oversized_message_is_refused(broker: Broker, admin: Any, topic: str) -> None:
    create(admin, topic, max_message_bytes="100000")
    settings = {"bootstrap_servers": broker.bootstrap, "max_request_size": 5_000_000}
    refused = pytest.raises(MessageSizeTooLargeError)
    with closing(KafkaProducer(**settings)) as producer, refused:
        producer.send(topic, b"x" * 100_001).get(20)
    # This client's idempotent producer is done for after a refusal, whatever the broker.
    with closing(KafkaProducer(**settings)) as producer:
        assert producer.send(topic, b"x" * 90_000).get(20).offset == 0


def test_append_time_is_set_by_the_broker(broker: Broker, admin: Any, topic: str) -> None:
    create(admin, topic, message_timestamp_type="LogAppendTime")
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        producer.send(topic, b"x", timestamp_ms=1_000).get(20)
    record = read(broker, topic, 1)[0]
    assert record.timestamp_type == 1
    assert record.timestamp > 1_600_000_000_000


def test_offsets_are_found_by_time_and_at_both_ends(broker: Broker, admin: Any, topic: str) -> None:
    create(admin, topic, retention_ms="-1")
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for i in range(10):
            producer.send(topic, b"x", timestamp_ms=10_000 + 100 * i).get(20)
    partition = TopicPartition(topic, 0)
    admin.delete_records({partition: 3})
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 3}
        assert consumer.end_offsets([partition]) == {partition: 10}
        found = consumer.offsets_for_times({partition: 10_450})[partition]
        assert (found.offset, found.timestamp) == (5, 10_500)
        assert consumer.offsets_for_times({partition: 99_000}) == {partition: None}
