"""Cycles through Kafka's protocol: confluent-kafka's producer and share consumers."""

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.queues.cycles import (
    LATENCY_SECONDS,
    MESSAGES,
    PACE,
    SIZE,
    UNCONFIRMED,
    Cycles,
    percentile,
)
from bench.queues.share_consumers import Countdown, ShareConsumers
from tests.clients.shares import configure_group

PARTITIONS = 6
JOIN_S = 3.0
"""Wait until all consumers have joined the group."""


def cycles(bootstrap: str, consumers: int, messages: int = MESSAGES) -> Cycles:
    name = f"cycles-{consumers}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    configure_group(bootstrap, name, {"share.auto.offset.reset": "earliest"})
    fast = Countdown(messages)
    members = ShareConsumers(bootstrap, name, name, consumers, fast)
    time.sleep(JOIN_S)
    began = time.monotonic()
    _publish(bootstrap, name, messages, None)
    fast.wait()
    rate = messages / (fast.ended_at - began)
    members.stop()
    slow = Countdown(PACE * LATENCY_SECONDS)
    members = ShareConsumers(bootstrap, name, name, consumers, slow)
    time.sleep(JOIN_S)
    _publish(bootstrap, name, slow.left, PACE)
    slow.wait()
    members.stop()
    admin.delete_topics([name])[name].result(60)
    # A consumer that joins late is served late, independent of the queue.
    settled = slow.ages_ms[len(slow.ages_ms) // 4 :]
    return Cycles(rate, percentile(settled, 0.99))


def _publish(bootstrap: str, topic: str, count: int, pace: int | None) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0 if pace else 1,
            "queue.buffering.max.messages": UNCONFIRMED,
            "log_level": 0,
        }
    )
    began = time.monotonic()
    for n in range(count):
        if pace:
            due = began + n / pace
            while (now := time.monotonic()) < due:
                producer.poll(due - now)
        payload = f"{time.time():020.6f}".encode().ljust(SIZE, b".")
        while True:
            try:
                producer.produce(topic, payload)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(60) == 0
