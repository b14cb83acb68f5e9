"""Clients of the librdkafka family that write and read all the time and note what they see.

Each has a thread of its own, which ends with the process. Writers are idempotent and number their
records; readers are members of a group and commit what they have been given. `history` is shared
by all clients of a run: events are in the order in which they were learned.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.chaos.history import Acknowledged, Assigned, Committed, Event, Polled, Record, Sent
from tests.chaos.writers import PATIENT

TICK_S = 0.01
COMMIT_S = 0.2
FINISH_S = 120.0


class RdkafkaWriter:
    """Writes `rate` records a second, to every partition in turn."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        name: str,
        partitions: int,
        rate: int,
        history: list[Event],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.errors: list[str] = []
        """Of records that were given up, and of the client as a whole."""
        self.acks: list[tuple[float, int]] = []
        """Times and partitions of acknowledgements."""
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._history = history
        self._numbers = [0] * partitions
        self._stopping = threading.Event()
        usual = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        self._producer = Producer(
            {
                **usual,
                **PATIENT,
                "retry.backoff.ms": 20,
                "error_cb": self._failed,
                **(settings or {}),
            }
        )
        self._thread = threading.Thread(target=self._write, name=name, daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        return len(self.acks)

    def finish(self) -> None:
        """Stops sending and waits until every record is acknowledged."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(FINISH_S)
        assert left == 0, f"{self.name}: {left} records were never acknowledged: {self.errors[:3]}"

    def _write(self) -> None:
        began_s, sent = time.monotonic(), 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - began_s) * self._rate)
            try:
                while sent < due:
                    self._send(sent % self._partitions)
                    sent += 1
            except BufferError:
                sent = due  # The queue is full: nothing goes through, and it need not grow.
            self._producer.poll(0)
            self._stopping.wait(TICK_S)

    def _send(self, partition: int) -> None:
        record = Record(self.name, self._numbers[partition])
        self._producer.produce(
            self._topic, record.encode(), partition=partition, on_delivery=self._delivered
        )
        self._numbers[partition] += 1
        self._history.append(Sent(partition, record))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error.str())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        record = Record.decode(message.value() or b"")
        self._history.append(Acknowledged(partition, record, -1 if offset is None else offset))
        self.acks.append((time.monotonic(), partition))

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"fatal: {error.str()}")


class RdkafkaReader:
    """A member of a group: reads, and commits now and then."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        name: str,
        group: str,
        history: list[Event],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.group = name, group
        self.errors: list[str] = []
        self._topic, self._history = topic, history
        self._stopping = threading.Event()
        usual = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        quick = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, "check.crcs": True}
        self._consumer = Consumer(
            {
                **usual,
                **PATIENT,
                **quick,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                **(settings or {}),
            }
        )
        self._ends: dict[int, int] = {}
        """By partition: what to commit next."""
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(FINISH_S)

    def _read(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke)
        commit_s = time.monotonic()
        try:
            while not self._stopping.is_set():
                message = self._consumer.poll(0.1)
                if message is not None:
                    self._take(message)
                if time.monotonic() - commit_s >= COMMIT_S:
                    self._commit()
                    commit_s = time.monotonic()
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self.errors.append(error.str())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        record = Record.decode(message.value() or b"")
        self._history.append(Polled(self.name, partition, offset, record))
        self._ends[partition] = offset + 1

    def _commit(self) -> None:
        if not self._ends:
            return
        rows = [TopicPartition(self._topic, p, end) for p, end in self._ends.items()]
        self._ends = {}
        try:
            done = self._consumer.commit(offsets=rows, asynchronous=False)
        except KafkaException:
            return  # Nothing is promised; what was read may be read again.
        for row in done or ():
            if row.error is None:
                self._history.append(Committed(self.group, row.partition, row.offset))

    def _assign(self, consumer: Consumer, rows: list[TopicPartition]) -> None:
        partitions = tuple(row.partition for row in rows)
        self._history.append(Assigned(self.group, self.name, partitions))

    def _revoke(self, consumer: Consumer, rows: list[TopicPartition]) -> None:
        self._commit()
