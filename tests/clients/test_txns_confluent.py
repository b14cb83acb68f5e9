"""confluent-kafka producers with transactions: all or nothing, and no record twice."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.groups import Member, poll_until
from tests.conftest import Broker, FreshBroker
from tests.waiting import eventually

pytestmark = pytest.mark.clients
Begins = Callable[..., Producer]


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def transactional(broker: Broker, topic: str) -> Begins:
    """Makes producers of one transactional id, ready to begin."""

    def make(name: str = "", **settings: Any) -> Producer:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        made = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": name or f"id-of-{topic}",
                **named,
            }
        )
        made.init_transactions(20)
        return made

    return make


def create(admin: AdminClient, topic: str, partitions: int = 1) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def read(
    broker: Broker, topic: str, isolation: str = "read_committed", partitions: int = 1
) -> list[bytes]:
    """Everything in the topic that this isolation level shows, to the end that it shows."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reads-{topic}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[bytes] = []
    ends = 0
    while ends < partitions:
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is None:
                found.append(message.value())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
    consumer.close()
    return found


def test_committed_records_are_visible_and_aborted_ones_are_not(
    broker: Broker, admin: AdminClient, topic: str, transactional: Begins
) -> None:
    create(admin, topic)
    producer = transactional()
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    eventually(lambda: read(broker, topic) == [b"0", b"2", b"4"], "every second one is seen")
    assert len(read(broker, topic, "read_uncommitted")) == 6


def test_open_transaction_delays_later_records(
    broker: Broker, admin: AdminClient, topic: str, transactional: Begins
) -> None:
    create(admin, topic)
    producer = transactional()
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(20)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"plain")
    plain.flush(20)
    assert read(broker, topic) == []
    assert read(broker, topic, "read_uncommitted") == [b"open", b"plain"]
    producer.commit_transaction(20)
    eventually(lambda: read(broker, topic) == [b"open", b"plain"], "both are seen")


def test_many_partitions_commit_atomically(
    broker: Broker, admin: AdminClient, topic: str, transactional: Begins
) -> None:
    create(admin, topic, 10)
    producer = transactional()
    producer.begin_transaction()
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=number % 10)
    producer.commit_transaction(20)

    def all_there() -> bool:
        return sorted(map(int, read(broker, topic, partitions=10))) == list(range(100))

    eventually(all_there, "all partitions show their part")


def test_new_producer_fences_the_old_one_and_aborts_its_transaction(
    broker: Broker, admin: AdminClient, topic: str, transactional: Begins
) -> None:
    create(admin, topic)
    old = transactional()
    old.begin_transaction()
    old.produce(topic, b"old")
    old.flush(20)
    new = transactional()
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(20)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    new.begin_transaction()
    new.produce(topic, b"new")
    new.commit_transaction(20)
    eventually(lambda: read(broker, topic) == [b"new"], "only the new one's record is seen")


def test_transaction_that_exceeds_its_timeout_is_aborted(
    broker: Broker, admin: AdminClient, topic: str, transactional: Begins
) -> None:
    create(admin, topic)
    producer = transactional(transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.produce(topic, b"slow")
    producer.flush(20)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"plain")
    plain.flush(20)
    eventually(lambda: read(broker, topic) == [b"plain"], "readers get past it")
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_transform_produce_is_exactly_once(
    broker: Broker, admin: AdminClient, topic: str, transactional: Begins, protocol: str
) -> None:
    """Positions and results move together; an abort takes both back."""
    source, target, group = f"{topic}-in", f"{topic}-out", f"group-of-{topic}"
    create(admin, source, 2)
    create(admin, target)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(40):
        plain.produce(source, b"%d" % number, partition=number % 2)
    plain.flush(20)
    producer = transactional()
    member = Member(broker, group, source, group_protocol=protocol)
    places = [TopicPartition(source, 0), TopicPartition(source, 1)]

    def transform(ends: Callable[[], None]) -> None:
        poll_until([member], lambda: member.messages, "something is read")
        producer.begin_transaction()
        for message in member.messages:
            producer.produce(target, message.value())
        member.messages.clear()
        consumer = member.consumer
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
        )
        ends()

    transform(lambda: producer.abort_transaction(20))
    rows = member.consumer.committed(places, timeout=10)
    assert all(row.offset < 0 for row in rows), rows
    for index in member.partitions:
        member.consumer.seek(TopicPartition(source, index, 0))

    def committed() -> int:
        return sum(max(0, row.offset) for row in member.consumer.committed(places, timeout=10))

    while committed() < 40:
        transform(lambda: producer.commit_transaction(20))
    eventually(
        lambda: sorted(map(int, read(broker, target))) == list(range(40)), "each came over once"
    )
    member.close()


def test_zombie_of_an_older_generation_cannot_commit_offsets(
    broker: Broker, admin: AdminClient, topic: str, transactional: Begins
) -> None:
    create(admin, topic, 2)
    group = f"group-of-{topic}"
    first = Member(broker, group, topic)
    poll_until([first], lambda: len(first.partitions) == 2, "the first has both")
    stale = first.consumer.consumer_group_metadata()
    second = Member(broker, group, topic)
    both = [first, second]
    poll_until(both, lambda: all(len(m.partitions) == 1 for m in both), "they share")
    producer = transactional()
    producer.begin_transaction()
    with pytest.raises(KafkaException):
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], stale, 20)
    producer.abort_transaction(20)
    (row,) = first.consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert row.offset < 0
    first.close()
    second.close()


def test_transactions_are_ended_by_the_next_process(fresh_broker: FreshBroker, topic: str) -> None:
    """Killed with one transaction prepared or open: the id is usable, and nothing is torn."""
    broker = fresh_broker()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    create(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, 3)
    for number in range(3):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(topic, b"%d" % number, partition=index)
        producer.commit_transaction(20)
    # The answer to the last commit is out; its markers may not be.
    broker.kill()
    again = fresh_broker(broker.data_dir)

    def whole() -> bool:
        found = read(again, topic, partitions=3)
        return sorted(found) == sorted([b"0", b"1", b"2"] * 3)

    eventually(whole, "every commit that was answered is there, on every partition")
    second = Producer({"bootstrap.servers": again.bootstrap, "transactional.id": topic})
    second.init_transactions(20)
    second.begin_transaction()
    second.produce(topic, b"3", partition=0)
    second.commit_transaction(20)
