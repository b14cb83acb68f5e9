"""Cycles through Kafka's protocol: confluent-kafka's producer and share consumers, as threads.

Share groups are KIP-932's, so the same code runs against Kafka 4.2 and newer.
"""

import threading
import time

from confluent_kafka import Producer, ShareConsumer
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
from tests.clients.shares import configure_group

PARTITIONS = 6
PATIENCE_S = 120.0


class _Crowd:
    """Consumers that count and acknowledge what they get."""

    def __init__(self, bootstrap: str, topic: str, group: str, consumers: int, count: int) -> None:
        self.ages_ms: list[float] = []
        self.left = count
        self.ended_at = 0.0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
        self._threads = [
            threading.Thread(target=self._consume, args=(topic,), daemon=True)
            for _ in range(consumers)
        ]
        for thread in self._threads:
            thread.start()

    def _consume(self, topic: str) -> None:
        # What was polled is acknowledged by the next poll.
        consumer = ShareConsumer(self._settings)
        consumer.subscribe([topic])
        try:
            while not self._done.is_set():
                found = [one for one in consumer.poll(0.1) if one.error() is None]
                now = time.time()
                with self._lock:
                    for message in found:
                        self.ages_ms.append((now - float(message.value()[:20])) * 1000)
                    self.left -= len(found)
                    if self.left <= 0 and not self._done.is_set():
                        self.ended_at = time.monotonic()
                        self._done.set()
            consumer.commit_sync()
        finally:
            consumer.close()

    def wait(self) -> None:
        assert self._done.wait(PATIENCE_S), f"{self.left} messages never came"

    def join(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def cycles(bootstrap: str, consumers: int, messages: int = MESSAGES) -> Cycles:
    name = f"cycles-{consumers}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    configure_group(bootstrap, name, {"share.auto.offset.reset": "earliest"})
    crowd = _Crowd(bootstrap, name, name, consumers, messages)
    time.sleep(3.0)  # Everybody is a member by then.
    began = time.monotonic()
    _publish(bootstrap, name, messages, None)
    crowd.wait()
    rate = messages / (crowd.ended_at - began)
    crowd.join()
    paced = PACE * LATENCY_SECONDS
    crowd = _Crowd(bootstrap, name, name, consumers, paced)
    time.sleep(3.0)
    _publish(bootstrap, name, paced, PACE)
    crowd.wait()
    crowd.join()
    admin.delete_topics([name])[name].result(60)
    # Who joins late is served late: that says nothing about the queue.
    settled = crowd.ages_ms[len(crowd.ages_ms) // 4 :]
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
