"""Pages of a topic's messages: the newest, or from an offset or a time on, and their neighbours.

A page contains messages of all chosen partitions, ordered by time. Cursors lead to the neighbouring
pages: for each partition the first offset shown, or the one after the last.

Bounds: `PARTITIONS_MAX` partitions, `PAGE_MAX` messages and about `PAGE_BYTES` per page.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation
from penstock.client.consumer.fetched import FetchedRecord
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.log_reader import Portion, size_of
from penstock.gateway.core.permissions import Principal, require_topic

PARTITIONS_MAX = 64
PAGE_MAX = 200
PAGE_BYTES = 8 << 20
CHUNK_BYTES = 256 << 10
ROUNDS_MAX = 64

PageOffsets = dict[int, int]


@dataclass(slots=True)
class MessagePage:
    messages: list[FetchedRecord]
    begins: PageOffsets
    ends: PageOffsets
    older: PageOffsets = field(default_factory=dict)
    """End offsets of the page before this one; empty if there is none."""
    newer: PageOffsets = field(default_factory=dict)
    is_cut: bool = False
    """True if some of the requested messages could not be read."""


class Browser:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def topic(self, principal: Principal, name: str) -> TopicImage:
        """Returns a topic, also an internal one; refuses unless the caller may read it."""
        topic = self._gateway.topics.one(principal, name)
        require_topic(self._gateway.ctx, principal, Operation.READ, name)
        return topic

    async def bounds(
        self, principal: Principal, topic: TopicImage, partition: int | None
    ) -> tuple[PageOffsets, PageOffsets]:
        """Returns the start and end offsets of the chosen partitions."""
        count = len(topic.partitions)
        if partition is not None and not 0 <= partition < count:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"invalid partition {partition}: {topic.name} has partitions 0 to {count - 1}",
            )
        chosen = range(min(count, PARTITIONS_MAX)) if partition is None else [partition]
        found = await self._gateway.topics.offsets(principal, topic)
        places = [at for at in chosen if at in found.start and at in found.end]
        if not places:
            raise Refused(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"no partition of {topic.name} has a leader at the moment: retry later",
            )
        return {at: found.start[at] for at in places}, {at: found.end[at] for at in places}

    async def at_time(
        self, principal: Principal, topic: TopicImage, timestamp_ms: int
    ) -> PageOffsets:
        return await self._gateway.topics.offsets_at(principal, topic, timestamp_ms)

    # -- pages ------------------------------------------------------------------------------

    async def backward(
        self,
        principal: Principal,
        topic: TopicImage,
        begins: PageOffsets,
        ends: PageOffsets,
        limit: int,
    ) -> MessagePage:
        """Returns the last messages before `ends`, newest first."""
        sizes = await self._message_sizes(topic, begins, ends)
        starts = {
            at: max(begins[at], end - max(1, min(limit, PAGE_BYTES // (len(ends) * sizes[at]))))
            for at, end in ends.items()
        }
        found, is_cut = await self.read(principal, topic, starts, ends, limit)
        found.sort(key=lambda one: (-one.timestamp, one.partition, -one.offset))
        shown = found[:limit]
        older = {
            at: min((one.offset for one in shown if one.partition == at), default=end)
            for at, end in ends.items()
        }
        if len(shown) < limit:  # Gaps of compaction and transactions: continue before the window.
            older = {at: min(older[at], starts[at]) for at in older}
        more = any(offset > begins[at] for at, offset in older.items())
        return MessagePage(shown, begins, ends, older if more else {}, dict(ends), is_cut)

    async def forward(
        self,
        principal: Principal,
        topic: TopicImage,
        begins: PageOffsets,
        ends: PageOffsets,
        starts: PageOffsets,
        limit: int,
    ) -> MessagePage:
        """Returns messages from `starts` on, oldest first."""
        starts = {at: min(max(starts.get(at, end), begins[at]), end) for at, end in ends.items()}
        found, is_cut = await self.read(principal, topic, starts, ends, limit)
        found.sort(key=lambda one: (one.timestamp, one.partition, one.offset))
        shown = found[:limit]
        newer = {
            at: max((one.offset + 1 for one in shown if one.partition == at), default=start)
            for at, start in starts.items()
        }
        has_older = any(offset > begins[at] for at, offset in starts.items())
        return MessagePage(shown, begins, ends, starts if has_older else {}, newer, is_cut)

    async def read(
        self,
        principal: Principal,
        topic: TopicImage,
        starts: Mapping[int, int],
        ends: PageOffsets,
        limit: int,
    ) -> tuple[list[FetchedRecord], bool]:
        """Returns up to `limit` messages of each partition; and True if some were left out."""
        positions = {at: start for at, start in starts.items() if start < ends[at]}
        counts = dict.fromkeys(positions, 0)
        found: list[FetchedRecord] = []
        size = 0
        for _ in range(ROUNDS_MAX):
            if not positions or size > PAGE_BYTES:
                break
            for portion in await self._gateway.log.portions(
                principal, topic, positions, partition_bytes=CHUNK_BYTES
            ):
                at = portion.partition
                messages, is_all = await self._decoded(portion, ends[at], limit - counts[at])
                found += messages
                counts[at] += len(messages)
                size += sum(map(size_of, messages))
                positions[at] = portion.fetched.next_offset if is_all else messages[-1].offset + 1
                is_over = portion.error_code or portion.is_empty
                if is_over or positions[at] >= ends[at] or counts[at] >= limit:
                    del positions[at]
                if size > PAGE_BYTES:
                    break
        return found, bool(positions)

    async def one(
        self, principal: Principal, topic: TopicImage, partition: int, offset: int
    ) -> FetchedRecord:
        positions = {partition: offset}
        for portion in await self._gateway.log.portions(
            principal, topic, positions, partition_bytes=1
        ):
            messages, _ = await self._decoded(portion, offset + 1, 1)
            for message in messages:
                if message.offset == offset:
                    return message
        raise Refused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic.name}-{partition} has no message at offset {offset}: it was deleted, or not "
            "written yet",
        )

    async def _decoded(
        self, portion: Portion, end: int, limit: int
    ) -> tuple[list[FetchedRecord], bool]:
        """Decodes messages in a worker, as batches may be large and compressed; returns them, and
        True if these are all."""
        if portion.error_code or portion.is_empty:
            return [], True
        return await self._gateway.ctx.workers.run(_decode, portion, end, limit)

    async def _message_sizes(
        self, topic: TopicImage, begins: PageOffsets, ends: PageOffsets
    ) -> PageOffsets:
        """Estimates the mean message size by partition from this node's logs; at least 1."""
        sizes: PageOffsets = {}
        for at, end in ends.items():
            here = self._gateway.ctx.partitions.replica(topic.name, at)
            count = max(1, end - begins[at])
            sizes[at] = max(1, here.log.size_bytes // count) if here is not None else 1024
        await asyncio.sleep(0)
        return sizes


def _decode(portion: Portion, end: int, limit: int) -> tuple[list[FetchedRecord], bool]:
    found: list[FetchedRecord] = []
    size = 0
    for message in portion.fetched.messages():
        if message.offset >= end or len(found) >= limit:
            break
        found.append(message)
        size += size_of(message)
        if size > PAGE_BYTES:
            return found, False
    return found, True
