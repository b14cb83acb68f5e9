"""Share groups of librdkafka: the second client that speaks KIP-932."""

import itertools

import pytest
from confluent_kafka import AcknowledgeType, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.shares import ShareMember, configure_group
from tests.conftest import Broker

pytestmark = pytest.mark.clients
EAGER = {"share.auto.offset.reset": "earliest", "share.retry.backoff.ms": "0"}
_numbers = itertools.count()


def group_of(broker: Broker, topic: str, **configs: str) -> str:
    """A group that reads from the start and tries again without delay."""
    group = f"{topic}-group-{next(_numbers)}"
    more = {name.replace("_", "."): value for name, value in configs.items()}
    configure_group(broker.bootstrap, group, EAGER | more)
    return group


def send(broker: Broker, topic: str, count: int, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if topic not in admin.list_topics(timeout=20).topics:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(20) == 0


def test_members_share_the_records_of_a_topic(broker: Broker, topic: str) -> None:
    send(broker, topic, 1_000, partitions=3)
    group = group_of(broker, topic)
    with (
        ShareMember(broker.bootstrap, group, topic) as first,
        ShareMember(broker.bootstrap, group, topic) as second,
    ):
        seen: list[bytes] = []
        while len(seen) < 1_000:
            for member in (first, second):
                for message in member.poll():
                    seen.append(message.value())
                    member.answer(message)
        first.commit()
        second.commit()
        assert not first.poll(0.5)
        assert not second.poll(0.5)
    assert sorted(map(int, seen)) == list(range(1_000))


def test_released_records_return_and_accepted_ones_do_not(broker: Broker, topic: str) -> None:
    send(broker, topic, 3)
    with ShareMember(broker.bootstrap, group_of(broker, topic), topic) as member:
        first = member.next()
        assert [message.delivery_count() for message in first] == [1, 1, 1]
        member.answer(first[0])
        member.answer(first[1], AcknowledgeType.RELEASE)
        member.answer(first[2])
        member.commit()
        again = member.next()
        assert [(m.value(), m.delivery_count()) for m in again] == [(b"1", 2)]
        member.answer(again[0])
        member.commit()
        assert not member.poll(0.5)


def test_two_groups_each_receive_all_records(broker: Broker, topic: str) -> None:
    send(broker, topic, 50)
    for _ in range(2):
        with ShareMember(broker.bootstrap, group_of(broker, topic), topic) as member:
            assert len(member.read(50)) == 50


def test_delayed_record_arrives_when_due_and_a_priority_first(broker: Broker, topic: str) -> None:
    send(broker, topic, 20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"later", headers={"penstock-delay-ms": b"1500"})
    producer.produce(topic, b"first", headers={"penstock-priority": b"9"})
    assert producer.flush(20) == 0
    with ShareMember(broker.bootstrap, group_of(broker, topic), topic) as member:
        values = [message.value() for message in member.read(22)]
    assert values[0] == b"first"
    assert values[-1] == b"later"
