"""Publisher: applies the full-buffer policy and custom partitioners to the producer.

The producer owns batches, retries and the buffer. An awaited publish returns when the message is
acknowledged; concurrent publishes share batches.
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
"""Maps topic, key and number of partitions to a partition; None: hash as Kafka does."""

COMPRESSIONS: Final = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_UNACKNOWLEDGED_MAX = 10_000
"""Messages of one `publish_many` that wait at a time, to bound its memory."""


class BufferFull(Exception):
    """Unsent messages have reached `buffer_bytes`; the message was not buffered."""


class Published(NamedTuple):
    """Position of a published message; partition and offset are -1 for a dropped one."""

    topic: str
    partition: int
    offset: int

    @property
    def is_dropped(self) -> bool:
        return self.partition < 0


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """Producer config, full-buffer policy and partitioner of a client."""

    config: ProducerConfig
    on_full: OnFull = "block"
    partitioner: Partitioner | None = None

    def __post_init__(self) -> None:
        if self.on_full not in ("block", "drop", "raise"):
            raise ValueError(f"on_full={self.on_full!r}: choose 'block', 'drop' or 'raise'")


class Publisher:
    """Publishes messages until it is closed."""

    def __init__(
        self,
        clock: WallClock,
        random: Random,
        cluster: Cluster,
        settings: PublishSettings,
        tracer: Tracer | None = None,
    ) -> None:
        self.dropped = 0
        self._tracer = tracer
        self._settings = settings
        self._cluster = cluster
        self._producer = Producer(clock, random, cluster, settings.config)

    async def publish(self, topic: str, message: Outgoing) -> Published:
        if self._tracer is None:
            return await self._published(topic, await self._buffer(topic, message))
        with sending(self._tracer, topic, [message]) as (span, (traced,)):
            published = await self._published(topic, await self._buffer(topic, traced))
            span.note({PARTITION: str(published.partition), OFFSET: published.offset})
            return published

    async def publish_many(self, topic: str, messages: Iterable[Outgoing]) -> list[Published]:
        """Publishes in order; raises the first failure after every message has its outcome."""
        if self._tracer is None:
            return await self._publish_many(topic, messages)
        with sending(self._tracer, topic, list(messages)) as (_, traced):
            return await self._publish_many(topic, traced)

    async def _publish_many(self, topic: str, messages: Iterable[Outgoing]) -> list[Published]:
        results: list[Published | BaseException] = []
        waiting: list[PendingRecord | None] = []
        for message in messages:
            waiting.append(await self._buffer(topic, message))
            if len(waiting) >= _UNACKNOWLEDGED_MAX:
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

    async def _buffer(self, topic: str, message: Outgoing) -> PendingRecord | None:
        """Buffers the message; returns None if it was dropped."""
        key = encode_key(message.key)
        value = encode_payload(message.payload)
        headers = message.record_headers()
        partition = message.partition
        config = self._settings.config
        if self._settings.partitioner is not None and partition is None:
            info = await self._cluster.topic(topic, auto_create=config.auto_create)
            partition = self._settings.partitioner(topic, key, len(info.partitions))
        timestamp_ms = message.timestamp_ms
        if self._settings.on_full == "block":
            return await self._producer.send(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
            )
        await self._cluster.topic(topic, auto_create=config.auto_create)
        delivery = self._producer.offer(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        if delivery is None:
            if self._settings.on_full == "raise":
                raise BufferFull(
                    f"{self._producer.buffered_bytes} bytes are unsent, buffer_bytes is "
                    f"{config.buffer_bytes}: publish more slowly, or choose on_full='block'"
                )
            self.dropped += 1
        return delivery

    async def flush(self) -> None:
        await self._producer.flush()

    async def close(self, *, drain: bool) -> None:
        await self._producer.close(drain=drain)
