"""Quotas as librdkafka meets them: what a client may send and get in a second is what it does.

`PENSTOCK_QUOTA_SECONDS` makes the measurement longer; only a long one is held against the tenth
that is promised, because a short one beside other tests measures those as well. The first seconds
are not counted: a client that was quiet may use one window's worth at once.
"""

import os
import subprocess
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.brokers import COMMAND, PenstockProcess
from tests.chaos.writers import create_topic
from tests.conftest import FreshBroker

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]

SECONDS = float(os.environ.get("PENSTOCK_QUOTA_SECONDS", "5"))
LONG_SECONDS = 30.0
WARM_UP_SECONDS = 2.0
RATE = 400_000
"""Bytes a second: little enough for a busy machine to reach."""
VALUE = bytes(4_000)


def set_quota(broker: PenstockProcess, *arguments: str) -> None:
    command = [COMMAND, "quota", "set", *arguments, "--brokers", broker.bootstrap]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


class Flow:
    """Bytes that went through, counted once it has warmed up."""

    def __init__(self) -> None:
        self.began = time.monotonic() + WARM_UP_SECONDS
        self.count = 0

    def add(self, count: int) -> None:
        if time.monotonic() >= self.began:
            self.count += count

    @property
    def rate(self) -> float:
        return self.count / (time.monotonic() - self.began)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "free"})
    for _ in range(count):
        producer.produce(topic, VALUE)
        producer.poll(0)
    assert producer.flush(60) == 0


def test_produce_and_fetch_quotas_hold(fresh_broker: FreshBroker, topic: str) -> None:
    broker = fresh_broker()
    create_topic(broker.bootstrap, topic, 1)
    create_topic(broker.bootstrap, f"{topic}-in", 1)
    fill(broker.bootstrap, topic, int((SECONDS + 6) * RATE / len(VALUE)))
    rates = [f"{kind}_byte_rate={RATE}" for kind in ("producer", "consumer")]
    set_quota(broker, "--client-id", "limited", *rates)
    shared: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "client.id": "limited"}
    producer = Producer({**shared, "batch.size": 60_000, "queue.buffering.max.messages": 500})
    consumer = Consumer({**shared, "group.id": "g", "fetch.message.max.bytes": 100_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    sent, received = Flow(), Flow()

    def delivered(error: object, message: Message) -> None:
        if error is None:
            sent.add(len(VALUE))

    try:
        while time.monotonic() < sent.began + SECONDS:
            try:
                for _ in range(20):
                    producer.produce(f"{topic}-in", VALUE, on_delivery=delivered)
            except BufferError:
                pass
            producer.poll(0)
            for message in consumer.consume(100, 0.02):
                received.add(len(message.value() or b""))
        rates_seen = sent.rate, received.rate
    finally:
        consumer.close()
        producer.purge()
        producer.flush(5)
    print(f"produce {rates_seen[0] / RATE:.1%}, fetch {rates_seen[1] / RATE:.1%} of the quota")
    for kind, rate in zip(("produce", "fetch"), rates_seen, strict=True):
        if SECONDS >= LONG_SECONDS:
            assert rate == pytest.approx(RATE, rel=0.1), kind
        # A client without quotas is faster by far more than that.
        assert RATE / 2 < rate < RATE * 1.5, kind


def test_client_without_a_quota_is_not_delayed(fresh_broker: FreshBroker, topic: str) -> None:
    broker = fresh_broker()
    create_topic(broker.bootstrap, topic, 1)
    set_quota(broker, "--client-id", "limited", "producer_byte_rate=1000")
    began = time.monotonic()
    fill(broker.bootstrap, topic, 500)
    assert time.monotonic() - began < 60, "two megabytes at 1,000 bytes a second take half an hour"
