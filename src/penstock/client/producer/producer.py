"""Sends records: batches per partition, lingers, compresses, retries, exactly once by default.

Owns the buffer (bounded: `send` waits when it is full, `offer` answers None) and the choice of
partition. Getting batches to their leaders is the `Sender`'s business, order, numbering and
retries of one partition its `Lane`'s. With idempotence (the default) a record is in the log once
however often its batch had to be sent, and in the order in which it was given to the producer.
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
    """`async with Producer(...) as producer: await (await producer.send("orders", b"..."))`."""

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
        self._sender = Sender(cluster, self.config, self._wake_waiting)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._choices: dict[str, tuple[TopicInfo, StickyChoice]] = {}

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        await self.close(drain=kind is None)

    @property
    def sent_records(self) -> int:
        """Records the broker confirmed (or, with acks=0, that were written to the socket)."""
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
        """Takes a record into the buffer, waiting for room, and returns its delivery to await."""
        if topic not in self._cluster.metadata.topics:
            await self._cluster.topic(topic, auto_create=self.config.auto_create)
        while True:
            delivery = self.offer(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
            if delivery is not None:
                return delivery
            room = self._loop.create_future()
            self._waiting.append(room)
            await room

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
        """As `send`, without waiting: None when the buffer is full. The topic must be known."""
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        record = Record(0, timestamp_ms, key, value, tuple(headers))
        size_bytes = record_bytes(record)
        if self._sender.buffered_bytes + size_bytes > self.config.buffer_bytes:
            if size_bytes <= self.config.buffer_bytes:
                return None
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size_bytes} bytes is larger than the producer's buffer "
                f"({self.config.buffer_bytes} bytes)",
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
        """Sends all there is without lingering and waits until every batch has its outcome."""
        await self._sender.flush()

    async def close(self, *, drain: bool = True) -> None:
        """Delivers what is buffered (unless told not to) and ends the sender."""
        await self._sender.close(drain=drain)

    def _sticky_partition(self, info: TopicInfo, size_bytes: int) -> int:
        known = self._choices.get(info.name)
        if known is None or known[0] is not info:
            led = [p.index for p in info.partitions.values() if p.leader_id >= 0]
            candidates = led or list(info.partitions)
            if known is None:
                choice = StickyChoice(self._random, candidates)
            else:
                choice = known[1]
                choice.set_candidates(candidates)
            self._choices[info.name] = (info, choice)
        else:
            choice = known[1]
        # Every new batch begins on another partition (KIP-480).
        if not self._sender.has_room(TopicPartition(info.name, choice.partition), size_bytes):
            choice.move()
        return choice.partition

    def _wake_waiting(self) -> None:
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)
