"""A killed broker keeps the state of its queues: leases, counts, delays, dead letters."""

import time
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    AcknowledgeType,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import PenstockProcess
from tests.chaos.writers import PATIENT
from tests.clients.shares import ShareMember, configure_group
from tests.conftest import FreshBroker
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180)]
TOPIC, GROUP = "jobs", "workers"
LOCK_MS = 4_000
CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.retry.backoff.ms": "0",
    "share.delivery.count.limit": "3",
}


def start(fresh_broker: FreshBroker, tmp_path: Path) -> PenstockProcess:
    sets = {"group.share.min.record.lock.duration.ms": 1_000}
    broker = fresh_broker(tmp_path / "data", sets=sets, kafka_port=free_port())
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(20)
    configure_group(broker.bootstrap, GROUP, CONFIGS)
    return broker


def send(broker: PenstockProcess, *values: bytes, **headers: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    for value in values:
        producer.produce(TOPIC, value, headers=named)
    assert producer.flush(20) == 0


def restart(broker: PenstockProcess) -> None:
    broker.kill()
    broker.start()


def dead_letters(broker: PenstockProcess, count: int) -> list[tuple[bytes, dict[str, bytes]]]:
    """All dead letters, once there are `count` of them."""
    place = TopicPartition(f"{TOPIC}.dlq", 0, OFFSET_BEGINNING)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", **PATIENT})

    def end() -> int:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=5)[1])
        except KafkaException:  # The topic does not exist yet.
            return 0

    eventually(lambda: end() >= count, f"{count} dead letters")
    consumer.assign([place])
    found: list[tuple[bytes, dict[str, bytes]]] = []
    while len(found) < end():
        for message in consumer.consume(100, 0.1):
            assert not message.error(), message.error()
            found.append((message.value(), dict(message.headers())))
    consumer.close()
    return found


def test_leases_and_counts_survive_the_broker(fresh_broker: FreshBroker, tmp_path: Path) -> None:
    broker = start(fresh_broker, tmp_path)
    send(broker, b"accepted", b"released", b"held")
    with ShareMember(broker.bootstrap, GROUP, TOPIC) as member:
        first = {message.value(): message for message in member.next()}
        assert set(first) == {b"accepted", b"released", b"held"}
        leased_at = time.monotonic()
        member.answer(first[b"accepted"])
        member.answer(first[b"released"], AcknowledgeType.RELEASE)
        # Records not settled before the broker dies stay leased to a member that is gone.
        member.consumer.acknowledge(first[b"held"], AcknowledgeType.RELEASE)
        broker.kill()
        broker.start()
        with ShareMember(broker.bootstrap, GROUP, TOPIC) as other:
            seen = {}
            while b"held" not in seen:
                for message in other.poll():
                    seen[message.value()] = (message.delivery_count(), time.monotonic())
                    other.answer(message)
            other.commit()
    count, at = seen[b"held"]
    assert count == 2
    assert at - leased_at >= LOCK_MS / 1000 - 1, "delivered while another member held it"
    assert set(seen) <= {b"held", b"released", b"accepted"}


def test_accepted_records_and_delays_survive_the_broker(
    fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    broker = start(fresh_broker, tmp_path)
    send(broker, *(b"%d" % number for number in range(100)))
    send(broker, b"later", penstock_delay_ms=b"4000")
    sent_at = time.monotonic()
    with ShareMember(broker.bootstrap, GROUP, TOPIC) as member:
        member.read(100)
        member.commit()
    restart(broker)
    with ShareMember(broker.bootstrap, GROUP, TOPIC) as member:
        found = member.next()
        assert [message.value() for message in found] == [b"later"]
        assert time.monotonic() - sent_at >= 3.5
        member.answer(found[0])
        member.commit()


def test_every_dead_letter_is_written_once_despite_broker_kills(
    fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    """No client reads after the last kill: the broker completes by itself."""
    broker = start(fresh_broker, tmp_path)
    names = [b"letter-%d" % number for number in range(300)]
    send(broker, *names)
    rejected = 0
    for pause_s in (0.0, 0.002, 0.01, 0.03):
        with ShareMember(broker.bootstrap, GROUP, TOPIC, **{"max.poll.records": 40}) as member:
            for message in member.next():
                member.answer(message, AcknowledgeType.REJECT)
                rejected += 1
            member.consumer.commit_async()
            time.sleep(pause_s)
            restart(broker)
    with ShareMember(broker.bootstrap, GROUP, TOPIC) as member:
        left = set(names)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and left:
            for message in member.poll():
                member.answer(message, AcknowledgeType.REJECT)
            member.commit()
            left -= {value for value, _ in dead_letters(broker, 1)}
        restart(broker)
    found = dead_letters(broker, len(names))
    assert sorted(value for value, _ in found) == sorted(names)
    assert all(headers["penstock-dlq-group"] == GROUP.encode() for _, headers in found)
