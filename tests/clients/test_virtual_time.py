"""Virtual time as clients see it: a real share consumer at the broker of `penstock.testing`.

Nothing falls due before the clock is advanced, however long a client waits for it; all of it does
when it is.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import AcknowledgeType, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.testing import Broker
from tests.clients.shares import ShareMember

pytestmark = pytest.mark.clients
GROUP = "workers"
EARLIEST = {"share.auto.offset.reset": "earliest"}
A_WHILE_S = 0.4
"""Time that a member waits for a record that should not arrive."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("jobs")
        broker.configure_group(GROUP, EARLIEST | {"share.record.lock.duration.ms": "60000"})
        yield broker


@pytest.fixture
def member(broker: Broker) -> Iterator[ShareMember]:
    with ShareMember(broker.bootstrap, GROUP, "jobs") as member:
        yield member


def take_one(member: ShareMember) -> tuple[bytes, int]:
    (message,) = member.next()
    member.answer(message)
    member.commit()
    return message.value(), message.delivery_count()


def test_delay_ends_only_when_the_clock_is_advanced(broker: Broker, member: ShareMember) -> None:
    broker.publish("jobs", "later", delay="15m")
    broker.publish("jobs", "now")
    assert take_one(member) == (b"now", 1)
    assert not member.poll(A_WHILE_S)
    broker.clock.advance("14m30s")
    assert not member.poll(A_WHILE_S)
    broker.clock.advance("30s")
    assert take_one(member) == (b"later", 1)


def test_delay_of_another_client_follows_the_same_clock(
    broker: Broker, member: ShareMember
) -> None:
    broker.clock.advance("3d")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("jobs", b"later", headers={"penstock-delay-ms": b"60000"})
    assert producer.flush(20) == 0
    assert not member.poll(A_WHILE_S)
    broker.clock.advance("1m")
    assert take_one(member) == (b"later", 1)


def test_lease_ends_only_when_the_clock_is_advanced(broker: Broker) -> None:
    broker.configure_group(GROUP, {"share.retry.backoff.ms": "0"})
    broker.publish("jobs", "x")
    with (
        ShareMember(broker.bootstrap, GROUP, "jobs") as slow,
        ShareMember(broker.bootstrap, GROUP, "jobs") as other,
    ):
        assert [m.delivery_count() for m in slow.next()] == [1]
        assert not other.poll(A_WHILE_S)
        broker.clock.advance("59s")
        assert not other.poll(0.1)
        broker.clock.advance("2s")
        assert take_one(other) == (b"x", 2)


def test_retry_waits_for_its_backoff(broker: Broker, member: ShareMember) -> None:
    broker.configure_group(
        GROUP, {"share.retry.backoff.ms": "600000", "share.retry.backoff.max.ms": "3600000"}
    )
    broker.publish("jobs", "fails once")
    (message,) = member.next()
    member.answer(message, AcknowledgeType.RELEASE)
    member.commit()
    assert not member.poll(A_WHILE_S)
    broker.clock.advance("9m")
    assert not member.poll(0.1)
    # The base, and up to as much again at random.
    broker.clock.advance("31m")
    assert take_one(member) == (b"fails once", 2)


def test_expired_record_becomes_a_dead_letter(broker: Broker, member: ShareMember) -> None:
    broker.publish("jobs", "short-lived", expires_in="10m", delay="1h")
    assert not member.poll(0.1)
    broker.clock.advance("9m")
    assert broker.dead_letters("jobs") == []
    broker.clock.advance("2m")
    (dead_letter,) = broker.dead_letters("jobs")
    assert dead_letter.value == b"short-lived"
    assert dict(dead_letter.headers)["penstock-dlq-error-class"] == b"expired"
    broker.clock.advance("1h")
    assert not member.poll(0.1)


def test_record_delivered_too_often_becomes_a_dead_letter_without_waiting(broker: Broker) -> None:
    broker.configure_group(GROUP, {"share.delivery.count.limit": "3"})
    broker.publish("jobs", "poison")
    for attempt in (1, 2, 3):
        with ShareMember(broker.bootstrap, GROUP, "jobs") as member:
            (message,) = member.next()
            assert message.delivery_count() == attempt
            member.answer(message, AcknowledgeType.RELEASE)
            member.commit()
        broker.clock.advance("1h")
    (dead_letter,) = broker.dead_letters("jobs")
    assert dict(dead_letter.headers)["penstock-dlq-attempts"] == b"3"


def test_members_survive_an_advance_unless_sessions_are_included(broker: Broker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
        }
    )
    consumer.subscribe(["jobs"])
    try:
        broker.publish("jobs", "before")
        assert next_value(consumer) == b"before"
        broker.clock.advance("2d")
        broker.publish("jobs", "after")
        assert next_value(consumer) == b"after"
        assert members_of(broker, "readers") == 1
        broker.clock.advance("1h", sessions=True)
        assert members_of(broker, "readers") == 0
    finally:
        consumer.close()


def members_of(broker: Broker, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return len(admin.describe_consumer_groups([group])[group].result(20).members)


def next_value(consumer: Consumer) -> bytes:
    for _ in range(60):
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() != KafkaError._ALL_BROKERS_DOWN, message.error()
            continue
        value: bytes = message.value()
        return value
    raise TimeoutError("no message")


def test_transaction_times_out_in_virtual_time(broker: Broker) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "t",
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("jobs", b"never committed")
    assert producer.flush(20) == 0
    assert [m.value for m in broker.messages("jobs", committed=False)] == [b"never committed"]
    broker.clock.advance("2m")
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
    assert broker.messages("jobs") == []
