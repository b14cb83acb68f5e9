"""Publishing for an application: what happens when the buffer is full, and custom partitioners.

A thin layer over the producer, which owns batches, retries and the buffer. Awaiting a publish means
awaiting that the message is kept; many at once share batches.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from penstock.app.outgoing import Outgoing, encode_key, encode_payload
from penstock.app.tracing import sending
from penstock.base.ports import Random, WallClock
from penstock.base.tracing import OFFSET, PARTITION, Tracer
from penstock.client.cluster import Cluster
from penstock.client.producer.producer import PendingRecord, Producer, ProducerConfig
from penstock.wire.compression import Codec

OnFull: TypeAlias = Literal["block", "drop", "raise"]
Partitioner: TypeAlias = Callable[[str, bytes | None, int], int | None]
"""Topic, key and number of partitions to a partition, or None: as Kafka does it."""

COMPRESSIONS: Final = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_AT_A_TIME = 10_000


class BufferFull(Exception):
    """What waits to be sent has reached `buffer_bytes`; nothing was taken."""


class Published(NamedTuple):
    """Where a message is. A message that was dropped has partition and offset -1."""

    topic: str
    partition: int
    offset: int

    @property
    def is_dropped(self) -> bool:
        return self.partition < 0


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """How to publish."""

    config: ProducerConfig
    on_full: OnFull = "block"
    partitioner: Partitioner | None = None

    def __post_init__(self) -> None:
        if self.on_full not in ("block", "drop", "raise"):
            raise ValueError(f"on_full={self.on_full!r}: choose 'block', 'drop' or 'raise'")


class Publisher:
    """Takes messages until it is closed."""

    def __init__(
        self,
        clock: WallClock,
        random: Random,
        cluster: Cluster,
        how: PublishSettings,
        tracer: Tracer | None = None,
    ) -> None:
        self.dropped = 0
        self._tracer = tracer
        self._how = how
        self._cluster = cluster
        self._producer = Producer(clock, random, cluster, how.config)

    async def publish(self, topic: str, message: Outgoing) -> Published:
        if self._tracer is None:
            return await self._published(topic, await self._take(topic, message))
        with sending(self._tracer, topic, [message]) as (span, (traced,)):
            published = await self._published(topic, await self._take(topic, traced))
            span.note({PARTITION: str(published.partition), OFFSET: published.offset})
            return published

    async def publish_many(self, topic: str, messages: Iterable[Outgoing]) -> list[Published]:
        """In order; raises the first failure once all have their outcome."""
        if self._tracer is None:
            return await self._publish_many(topic, messages)
        with sending(self._tracer, topic, list(messages)) as (_, traced):
            return await self._publish_many(topic, traced)

    async def _publish_many(self, topic: str, messages: Iterable[Outgoing]) -> list[Published]:
        results: list[Published | BaseException] = []
        waiting: list[PendingRecord | None] = []
        for message in messages:
            waiting.append(await self._take(topic, message))
            if len(waiting) >= _AT_A_TIME:
                results += await self._all(topic, waiting)
                waiting = []
        results += await self._all(topic, waiting)
        published = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            published.append(result)
        return published

    async def _all(
        self, topic: str, waiting: list[PendingRecord | None]
    ) -> list[Published | BaseException]:
        return await asyncio.gather(
            *(self._published(topic, delivery) for delivery in waiting), return_exceptions=True
        )

    async def _published(self, topic: str, delivery: PendingRecord | None) -> Published:
        if delivery is None:
            return Published(topic, -1, -1)
        sent = await delivery
        return Published(sent.topic, sent.partition, sent.offset)

    async def _take(self, topic: str, message: Outgoing) -> PendingRecord | None:
        """Into the buffer; None if it was dropped."""
        key = encode_key(message.key)
        value = encode_payload(message.payload)
        headers = message.record_headers()
        partition = message.partition
        config = self._how.config
        if self._how.partitioner is not None and partition is None:
            info = await self._cluster.topic(topic, auto_create=config.auto_create)
            partition = self._how.partitioner(topic, key, len(info.partitions))
        timestamp_ms = message.timestamp_ms
        if self._how.on_full == "block":
            return await self._producer.send(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        await self._cluster.topic(topic, auto_create=config.auto_create)
        delivery = self._producer.offer(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        if delivery is None:
            if self._how.on_full == "raise":
                raise BufferFull(
                    f"{self._producer.buffered_bytes} bytes wait to be sent, and buffer_bytes is "
                    f"{config.buffer_bytes}: publish more slowly, or choose on_full='block'"
                )
            self.dropped += 1
        return delivery

    async def flush(self) -> None:
        await self._producer.flush()

    async def close(self, *, drain: bool) -> None:
        await self._producer.close(drain=drain)
