"""Share consumers of confluent-kafka in threads, which record and acknowledge messages.

Share groups are KIP-932's, so they work with Kafka 4.2 and newer.
"""

import threading
import time
from collections.abc import Callable

from confluent_kafka import Message, ShareConsumer

Note = Callable[[list[Message], float], None]
"""Callback with the messages of one poll and their time of receipt; calls are serialized."""
PATIENCE_S = 120.0


class ShareConsumers:
    """Consumer threads, started at once; `stop` ends them after acknowledging polled messages."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, consumers: int, note: Note, **more: object
    ) -> None:
        self._note = note
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "fetch.wait.max.ms": 500,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **more,
        }
        self._threads = [
            threading.Thread(target=self._consume, args=(topic,), daemon=True)
            for _ in range(consumers)
        ]
        for thread in self._threads:
            thread.start()

    def _consume(self, topic: str) -> None:
        # The next poll acknowledges polled messages.
        consumer = ShareConsumer(self._settings)
        consumer.subscribe([topic])
        try:
            while not self._done.is_set():
                found = [one for one in consumer.poll(0.1) if one.error() is None]
                if found:
                    now = time.time()
                    with self._lock:
                        self._note(found, now)
            consumer.commit_sync()
        finally:
            consumer.close()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


class Countdown:
    """Records the age of messages that start with their creation time, until all have arrived."""

    def __init__(self, count: int) -> None:
        self.ages_ms: list[float] = []
        self.left = count
        self.ended_at = 0.0
        self._done = threading.Event()

    def __call__(self, found: list[Message], now: float) -> None:
        self.ages_ms += [(now - float(one.value()[:20])) * 1000 for one in found]
        self.left -= len(found)
        if self.left <= 0 and not self._done.is_set():
            self.ended_at = time.monotonic()
            self._done.set()

    def wait(self) -> None:
        assert self._done.wait(PATIENCE_S), f"{self.left} messages are missing"
