"""kafka-python consumers in groups."""

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

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as made:
        yield made


@pytest.fixture
def join(broker: Broker, topic: str) -> Iterator[Callable[..., Any]]:
    """Starts members of the test's group; they leave when it ends."""
    members: list[Any] = []

    def start(**settings: Any) -> Any:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=3_000,
            heartbeat_interval_ms=300,
            **settings,
        )
        members.append(consumer)
        return consumer

    yield start
    for consumer in members:
        consumer.close()


def create(admin: Any, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])


def fill(broker: Broker, topic: str, partitions: int, each: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for number in range(each):
            for index in range(partitions):
                producer.send(topic, b"%d" % number, partition=index)
        producer.flush(20)


POLL_MS = 1_000
"""Long: kafka-python 3.0 loses an assignment that comes just when a poll gives up."""


def polled(members: list[Any], found: list[Any]) -> bool:
    for consumer in members:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            found += records
    return True


def test_members_share_partitions_and_take_over(
    broker: Broker, admin: Any, topic: str, join: Callable[..., Any]
) -> None:
    create(admin, topic, 4)
    found: list[Any] = []
    first = join()
    eventually(lambda: polled([first], found) and len(first.assignment()) == 4, "it has all")
    second = join()
    both = [first, second]

    def shared() -> bool:
        polled(both, found)
        return [len(consumer.assignment()) for consumer in both] == [2, 2]

    eventually(shared, "they share")
    fill(broker, topic, 4, 10)
    eventually(lambda: polled(both, found) and len(found) >= 40, "all is read between them")
    assert len({(record.partition, record.offset) for record in found}) == 40
    second.close()
    eventually(lambda: polled([first], found) and len(first.assignment()) == 4, "it has all again")


def test_group_continues_at_its_committed_offset(
    broker: Broker, admin: Any, topic: str, join: Callable[..., Any]
) -> None:
    create(admin, topic, 1)
    fill(broker, topic, 1, 10)
    place = TopicPartition(topic, 0)
    found: list[Any] = []
    first = join()
    eventually(lambda: polled([first], found) and len(found) == 10, "all is read")
    first.commit({place: OffsetAndMetadata(3, "a third", -1)})
    answers: list[Any] = []
    first.commit_async(
        {place: OffsetAndMetadata(4, "halfway", -1)}, callback=lambda *given: answers.append(given)
    )
    eventually(lambda: polled([first], found) and answers, "the commit is answered")
    assert not isinstance(answers[0][1], Exception), answers
    first.close()
    found.clear()
    second = join()
    eventually(lambda: polled([second], found) and len(found) == 6, "the rest is read")
    assert [record.offset for record in found] == [4, 5, 6, 7, 8, 9]
    assert second.committed(place) == 4
    second.seek(place, 8)
    eventually(lambda: polled([second], found) and len(found) == 8, "it is read again")
    second.pause(place)
    second.seek(place, 0)
    polled([second], found)
    assert len(found) == 8
    second.resume(place)
    eventually(lambda: polled([second], found) and len(found) == 18, "all is read again")


def test_groups_are_listed_described_and_deleted(
    broker: Broker, admin: Any, topic: str, join: Callable[..., Any]
) -> None:
    create(admin, topic, 2)
    found: list[Any] = []
    group = f"group-of-{topic}"
    consumer = join(client_id="a-client")
    eventually(lambda: polled([consumer], found) and len(consumer.assignment()) == 2, "it has both")
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
    assert group in str(admin.list_groups())
    assert "a-client" in str(admin.describe_groups([group]))
    consumer.close()
    eventually(lambda: "Empty" in str(admin.describe_groups([group])), "it is empty")
    admin.delete_groups([group])
    assert group not in str(admin.list_groups())
