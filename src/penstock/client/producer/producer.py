"""Producer: batches records by partition, lingers, compresses, retries; exactly once by default.

Owns the buffer and the choice of partition. The buffer is bounded: when it is full, `send` waits
and `offer` returns None. `Sender` sends batches to the leaders; `PartitionQueue` keeps order,
sequences and retries of one partition. With idempotence (the default) a record is in the log once,
however often its batch is sent, and in the order in which the producer accepted it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, WallClock
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicInfo, TopicPartition
from penstock.client.producer.batch import PendingRecord, Sent, record_bytes
from penstock.client.producer.partitioner import StickyChoice, partition_for_key
from penstock.client.producer.sender import ProducerConfig, Sender
from penstock.wire.records import Record

__all__ = ["PendingRecord", "Producer", "ProducerConfig", "Sent"]

Headers = Sequence[tuple[str, bytes | None]]


class Producer:
    """Kafka producer: `async with Producer(...) as p: await (await p.send("orders", b"..."))`."""

    def __init__(
        self,
        clock: WallClock,
        random: Random,
        cluster: Cluster,
        config: ProducerConfig | None = None,
    ) -> None:
        self.config = config or ProducerConfig()
        self._clock = clock
        self._random = random
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._sender = Sender(cluster, self.config, self._wake_senders)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sticky_choices: dict[str, tuple[TopicInfo, StickyChoice]] = {}

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.close(drain=kind is None)

    @property
    def sent_records(self) -> int:
        """Number of records that brokers confirmed; with acks=0, those written to the socket."""
        return self._sender.sent_records

    @property
    def buffered_bytes(self) -> int:
        return self._sender.buffered_bytes

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> PendingRecord:
        """Adds a record to the buffer, waiting while it is full; returns its delivery to await."""
        if topic not in self._cluster.metadata.topics:
            await self._cluster.topic(topic, auto_create=self.config.auto_create)
        while True:
            delivery = self.offer(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
            if delivery is not None:
                return delivery
            freed = self._loop.create_future()
            self._waiting.append(freed)
            await freed

    def offer(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> PendingRecord | None:
        """Works like `send`, but returns None if the buffer is full. The topic must be known."""
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        record = Record(0, timestamp_ms, key, value, tuple(headers))
        size_bytes = record_bytes(record)
        if self._sender.buffered_bytes + size_bytes > self.config.buffer_bytes:
            if size_bytes <= self.config.buffer_bytes:
                return None
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size_bytes} bytes exceeds the producer's buffer of "
                f"{self.config.buffer_bytes} bytes: raise buffer_bytes",
            )
        info = self._cluster.known_topic(topic)
        if partition is None:
            if key is not None:
                partition = partition_for_key(key, len(info.partitions))
            else:
                partition = self._sticky_partition(info, size_bytes)
        elif partition not in info.partitions:
            count = len(info.partitions)
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has {count} partitions, 0-{count - 1}: "
                f"there is no partition {partition}",
            )
        return self._sender.add(TopicPartition(topic, partition), record, size_bytes)

    async def flush(self) -> None:
        """Sends all records without lingering and waits for the outcome of every batch."""
        await self._sender.flush()

    async def close(self, *, drain: bool = True) -> None:
        """Delivers buffered records, unless `drain` is False, and stops the sender."""
        await self._sender.close(drain=drain)

    def _sticky_partition(self, info: TopicInfo, size_bytes: int) -> int:
        known = self._sticky_choices.get(info.name)
        if known is None or known[0] is not info:
            led = [p.index for p in info.partitions.values() if p.leader_id >= 0]
            candidates = led or list(info.partitions)
            if known is None:
                choice = StickyChoice(self._random, candidates)
            else:
                choice = known[1]
                choice.set_candidates(candidates)
            self._sticky_choices[info.name] = (info, choice)
        else:
            choice = known[1]
        # Every new batch begins on another partition (KIP-480).
        if not self._sender.fits_open_batch(
            TopicPartition(info.name, choice.partition), size_bytes
        ):
            choice.move()
        return choice.partition

    def _wake_senders(self) -> None:
        while self._waiting:
            freed = self._waiting.popleft()
            if not freed.done():
                freed.set_result(None)
