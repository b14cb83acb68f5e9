"""Idempotent producers that never stop, and the check that what they wrote is all there once.

Each writer is a confluent-kafka producer with a thread of its own. It numbers its records per
partition and remembers the offset of every acknowledged one. `check_all_present` reads the
partitions back and holds them against those memories.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

OFFSET_BEGINNING = -2
# A dead broker is expected here, so clients come back quickly and say nothing about it.
PATIENT = {"reconnect.backoff.max.ms": 100, "reconnect.backoff.ms": 20, "log_level": 0}


class Writer:
    """One idempotent producer writing numbered records to every partition in turn."""

    def __init__(self, bootstrap: str, topic: str, name: str, partitions: int, rate: int) -> None:
        self.name = name
        self.errors: list[str] = []
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        """Per partition: the number of each acknowledged record, by its offset."""
        self.sent = [0] * partitions
        self._topic, self._rate = topic, rate
        self._stopping = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        self._producer = Producer({**settings, **PATIENT, "retry.backoff.ms": 20})
        self._thread = threading.Thread(target=self._write, name=name)
        self._thread.start()

    def _write(self) -> None:
        partition = 0
        while not self._stopping.is_set():
            for _ in range(max(1, self._rate // 200)):
                number = self.sent[partition]
                value = b"%s %d" % (self.name.encode(), number)
                try:
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._delivered
                    )
                except BufferError:
                    break
                self.sent[partition] += 1
                partition = (partition + 1) % len(self.sent)
            self._producer.poll(0)
            self._stopping.wait(1 / 200)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error.str())
            return
        number = int((message.value() or b"").split()[1])
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acknowledged[partition][offset] = number

    @property
    def acknowledged_count(self) -> int:
        return sum(len(offsets) for offsets in self.acknowledged.values())

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()
        self._thread.join()

    def finish(self, timeout_s: float = 60.0) -> None:
        """Stop sending and wait until every record sent is acknowledged."""
        self.stop()
        left = self._producer.flush(timeout_s)
        assert left == 0, f"{self.name}: {left} records were never acknowledged"


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int,
    factor: int = 1,
    *,
    replicas: Sequence[int] | None = None,
    **config: str,
) -> None:
    """`replicas` says which nodes have each partition, the first of them leads."""
    configs = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap, **PATIENT})
    new = (
        NewTopic(topic, partitions, factor, config=configs)
        if replicas is None
        else NewTopic(
            topic, partitions, config=configs, replica_assignment=[[*replicas]] * partitions
        )
    )
    admin.create_topics([new])[topic].result(30)


def high_watermarks(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The end of every partition, as soon as the broker returns it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks", **PATIENT})
    try:
        return [_watermark(consumer, TopicPartition(topic, p)) for p in range(partitions)]
    finally:
        consumer.close()


def _watermark(consumer: Consumer, partition: TopicPartition) -> int:
    deadline = time.monotonic() + 30
    while True:
        try:
            marks: tuple[int, int] = consumer.get_watermark_offsets(partition, timeout=5)
            return marks[1]
        except KafkaException:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{partition} never told its offsets") from None


def read_partition(bootstrap: str, topic: str, partition: int, end: int) -> dict[int, bytes]:
    """Every value of a partition up to `end`, by offset."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "checker", **PATIENT}
    consumer = Consumer({**settings, "check.crcs": True, "enable.auto.commit": False})
    values: dict[int, bytes] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while len(values) < end:
            # Never more than there are left: `consume` waits for as many as it is asked for.
            messages = consumer.consume(min(10_000, end - len(values)), timeout=20)
            assert messages, f"partition {partition} ends early: {len(values)} of {end}"
            for message in messages:
                assert message.error() is None, message.error()
                offset = message.offset()
                assert offset is not None
                assert offset not in values, f"offset {offset} was delivered twice"
                values[offset] = message.value() or b""
    finally:
        consumer.close()
    return values


def check_all_present(bootstrap: str, topic: str, writers: Iterable[Writer]) -> int:
    """Every acknowledged record is there, once, in order. Returns how many were checked."""
    writers = list(writers)
    partitions = len(writers[0].sent)
    checked = 0
    for partition, end in enumerate(high_watermarks(bootstrap, topic, partitions)):
        values = read_partition(bootstrap, topic, partition, end)
        numbers: dict[str, list[int]] = defaultdict(list)
        for offset in sorted(values):
            name, text = values[offset].decode().split()
            numbers[name].append(int(text))
        for writer in writers:
            for offset, number in writer.acknowledged[partition].items():
                expected = f"{writer.name} {number}".encode()
                found = values.get(offset)
                assert found == expected, f"[{partition}] {offset}: {found!r} is not {expected!r}"
            checked += len(writer.acknowledged[partition])
            _check_order(partition, writer, numbers[writer.name])
    return checked


def _check_order(partition: int, writer: Writer, numbers: list[int]) -> None:
    """A writer's records are strictly ascending: none twice, none before an earlier one."""
    for before, after in itertools.pairwise(numbers):
        assert before < after, f"[{partition}] {writer.name}: {after} came after {before}"
    if not writer.errors:
        missing = set(range(writer.sent[partition])) - set(numbers)
        assert not missing, f"[{partition}] {writer.name} lost {sorted(missing)[:10]}"
