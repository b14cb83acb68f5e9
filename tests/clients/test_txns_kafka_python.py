"""kafka-python producers with transactions: all or nothing, and no record twice."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.conftest import Broker
from tests.waiting import eventually

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function Python 3.11 has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.errors import ProducerFencedError

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

Begins = Callable[..., Any]


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as made:
        yield made


@pytest.fixture
def transactional(broker: Broker, topic: str) -> Iterator[Begins]:
    """Makes producers of one transactional id, ready to begin."""
    made: list[Any] = []

    def make(name: str = "", **settings: Any) -> Any:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            transactional_id=name or f"id-of-{topic}",
            **settings,
        )
        made.append(producer)
        producer.init_transactions()
        return producer

    yield make
    for producer in made:
        producer.close(timeout=5)


def create(admin: Any, topic: str, partitions: int = 1) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything in the topic that this isolation level shows, to the end that it shows."""
    where = TopicPartition(topic, 0)
    with closing(
        KafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level=isolation)
    ) as consumer:
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        end = consumer.end_offsets([where])[where]
        found: list[bytes] = []
        while consumer.position(where) < end:
            for records in consumer.poll(500).values():
                found += [record.value for record in records]
        return found


def test_committed_records_are_visible_and_aborted_ones_are_not(
    broker: Broker, admin: Any, topic: str, transactional: Begins
) -> None:
    create(admin, topic)
    producer = transactional()
    for number in range(4):
        producer.begin_transaction()
        for part in range(3):
            producer.send(topic, f"{number}-{part}".encode())
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    wanted = [f"{number}-{part}".encode() for number in (0, 2) for part in range(3)]
    eventually(lambda: read(broker, topic) == wanted, "what was committed is read")
    assert len(read(broker, topic, "read_uncommitted")) >= len(wanted)


def test_open_transaction_is_not_visible(
    broker: Broker, admin: Any, topic: str, transactional: Begins
) -> None:
    create(admin, topic)
    producer = transactional()
    producer.begin_transaction()
    producer.send(topic, b"pending").get(20)
    assert read(broker, topic) == []
    assert read(broker, topic, "read_uncommitted") == [b"pending"]
    producer.commit_transaction()
    eventually(lambda: read(broker, topic) == [b"pending"], "it is seen once committed")


def test_second_producer_fences_the_first_and_aborts_its_transaction(
    broker: Broker, admin: Any, topic: str, transactional: Begins
) -> None:
    create(admin, topic)
    zombie = transactional()
    zombie.begin_transaction()
    zombie.send(topic, b"zombie").get(20)
    producer = transactional()
    producer.begin_transaction()
    producer.send(topic, b"living").get(20)
    producer.commit_transaction()
    with pytest.raises(ProducerFencedError):
        zombie.commit_transaction()
    eventually(lambda: read(broker, topic) == [b"living"], "only the second's record is seen")


def test_offsets_and_records_commit_atomically(
    broker: Broker, admin: Any, topic: str, transactional: Begins
) -> None:
    """Consume, transform, produce: every second try is aborted, and nothing is done twice."""
    source, target, group = topic, f"{topic}-copy", f"group-of-{topic}"
    create(admin, source)
    create(admin, target)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for number in range(20):
            producer.send(source, str(number).encode())
        producer.flush()
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=3,
    )
    producer = transactional()
    where = TopicPartition(source, 0)
    copied, tries = 0, 0
    with closing(consumer):
        while copied < 20:
            records = [row for rows in consumer.poll(1_000).values() for row in rows]
            if not records:
                continue
            tries += 1
            producer.begin_transaction()
            for record in records:
                producer.send(target, record.value)
            position = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            producer.send_offsets_to_transaction({where: position}, consumer.group_metadata())
            if tries % 2:
                producer.abort_transaction()
                consumer.seek(where, records[0].offset)
            else:
                producer.commit_transaction()
                copied += len(records)
        assert consumer.committed(where) == 20
    wanted = [str(number).encode() for number in range(20)]
    eventually(lambda: read(broker, target) == wanted, "every record is copied once")
