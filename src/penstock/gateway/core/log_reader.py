"""Reads a topic as a log, from a group's committed offsets or from offsets the caller gives.

Reads keep no state: each starts at the same offsets until the group commits others. A group without
committed offsets starts at the beginning or the end of the log, as the caller asks. Records of
uncommitted transactions are not read. A waiting read is notified of new records in partitions that
this node leads; it polls partitions of other leaders every `POLL_SECONDS`.

Bounds: `PARTITION_BYTES` of each partition at a time, though never less than one batch. Workers
decompress records, `DECOMPRESSED_BYTES` in all, though never less than one message.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import Context
from penstock.broker.api.quota import GatewayQuota
from penstock.broker.api.route_row import Operation
from penstock.client.consumer.fetched import (
    READ_COMMITTED,
    Fetched,
    FetchedRecord,
    next_offset_after,
)
from penstock.client.errors import code_of
from penstock.client.metadata import TopicPartition
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.group_lag import ends_elsewhere
from penstock.coordinator.queues.receive import nothing
from penstock.gateway.core.groups import Groups
from penstock.gateway.core.leader_calls import LeaderCalls
from penstock.gateway.core.messages import HANDED_BYTES_MAX
from penstock.gateway.core.permissions import Principal, require_group, require_topic
from penstock.gateway.core.topics import EARLIEST, LATEST, TopicAdmin
from penstock.security.quotas import QuotaKind
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.wire.records import is_compressed
from penstock.wire.schema import Records

PARTITION_BYTES = 1 << 20
DECOMPRESSED_BYTES = 16 << 20
REQUEST_BYTES = 16 << 20
POLL_SECONDS = 0.2
RESETS: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}


class Portion(NamedTuple):
    """Records of one partition from one fetch, not decoded yet."""

    partition: int
    fetched: Fetched
    error_code: int = 0

    @property
    def is_empty(self) -> bool:
        return self.fetched.next_offset == self.fetched.offset


class GatewayLogReader:
    """Reads logs for the gateway protocols, whichever nodes lead the partitions."""

    def __init__(
        self,
        ctx: Context,
        topics: TopicAdmin,
        groups: Groups,
        leaders: LeaderCalls,
        quota: GatewayQuota,
    ) -> None:
        self._ctx = ctx
        self._topics = topics
        self._groups = groups
        self._leaders = leaders
        self._quota = quota
        self._turn = 0

    async def read(
        self,
        principal: Principal,
        topic: TopicImage,
        positions: dict[int, int],
        *,
        records_max: int,
        wait_ms: int = 0,
        bytes_max: int = DECOMPRESSED_BYTES,
        on_wait: Callable[[], None] = nothing,
    ) -> list[FetchedRecord]:
        """Reads records from `positions` on, one offset per partition; waits until there are some.

        Calls `on_wait` before it waits, not if there are records.
        """
        require_topic(self._ctx, principal, Operation.READ, topic.name)
        self._quota.require(principal, QuotaKind.FETCH)
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        watch = _Watch(self._ctx, topic, positions)
        try:
            while True:
                watch.clear()
                found = await self._read_now(principal, topic, positions, records_max, bytes_max)
                if wait_ms and not found:
                    on_wait()
                if found or not await watch.wait(deadline):
                    self._quota.charge(principal, QuotaKind.FETCH, sum(map(size_of, found)))
                    return found
        finally:
            watch.end()

    async def portions(
        self,
        principal: Principal,
        topic: TopicImage,
        positions: Mapping[int, int],
        *,
        partition_bytes: int = PARTITION_BYTES,
    ) -> list[Portion]:
        """Reads from each partition without decoding, for callers that decode elsewhere."""
        require_topic(self._ctx, principal, Operation.READ, topic.name)
        self._quota.require(principal, QuotaKind.FETCH)
        rows = await self._fetch(principal, topic, positions, partition_bytes)
        for at, row in enumerate(rows):
            start = positions[row.partition_index]
            if not row.error_code and not len(row.records or ()) and start < row.last_stable_offset:
                # A batch larger than a portion is only returned to a fetch of this partition alone.
                alone = {row.partition_index: start}
                rows[at : at + 1] = await self._fetch(principal, topic, alone, partition_bytes)
        self._quota.charge(principal, QuotaKind.FETCH, sum(len(row.records or ()) for row in rows))
        return [
            Portion(
                row.partition_index,
                _fetched(topic.name, positions[row.partition_index], row),
                row.error_code,
            )
            for row in rows
        ]

    async def group_positions(
        self, principal: Principal, topic: TopicImage, group: str, reset: str
    ) -> dict[int, int]:
        """Returns a consumer group's next offsets, in all partitions whose leaders answer."""
        require_group(self._ctx, principal, Operation.READ, group)
        known = await self._groups.positions(principal, group, topic)
        if len(known) == len(topic.partitions):
            return known
        begin = await self.ends(principal, topic, reset)
        return {**begin, **known}

    async def ends(self, principal: Principal, topic: TopicImage, reset: str) -> dict[int, int]:
        """Returns the start (earliest) or end (latest) offsets of a topic's partitions."""
        return await self._topics.offsets_at(principal, topic, RESETS[reset])

    async def offsets_elsewhere(
        self, places: Iterable[tuple[str, int]], timestamp: int = LATEST
    ) -> dict[tuple[str, int], int]:
        """Returns the end offsets of partitions led by other nodes, or the offsets of `timestamp`.

        Partitions whose leaders do not answer are missing. The caller checks permissions.
        """
        return await ends_elsewhere(self._ctx.queue.queues.around, places, timestamp)

    async def _read_now(
        self,
        principal: Principal,
        topic: TopicImage,
        positions: dict[int, int],
        records_max: int,
        bytes_max: int,
    ) -> list[FetchedRecord]:
        rows = await self._fetch(principal, topic, positions)
        lost = [row for row in rows if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE]
        if lost:
            # Retention deleted past the group's offset, or the topic was recreated: continue with
            # the oldest record.
            begin = await self.ends(principal, topic, "earliest")
            for row in lost:
                positions[row.partition_index] = begin.get(row.partition_index, 0)
            rows = await self._fetch(principal, topic, positions)
        good = [row for row in rows if not row.error_code]
        if rows and not good:
            raise Refused(code_of(rows[0].error_code))
        found: list[FetchedRecord] = []
        remaining = bytes_max
        self._turn += 1
        start = self._turn % len(good) if good else 0
        for row in good[start:] + good[:start]:
            at = row.partition_index
            fetched = _fetched(topic.name, positions[at], row)
            some = await self._first(fetched, records_max - len(found), remaining)
            found += some
            remaining -= sum(map(size_of, some))
            if some:
                positions[at] = some[-1].offset + 1
            if len(found) >= records_max or remaining <= 0:
                return found
            if not found:
                # No visible records, perhaps an aborted transaction: continue after it.
                positions[at] = fetched.next_offset
        return found

    async def _first(
        self, fetched: Fetched, records_max: int, bytes_max: int
    ) -> list[FetchedRecord]:
        """Decodes messages of one partition; in a worker if they are compressed."""
        if is_compressed(fetched.records):
            return await self._ctx.workers.run(_first, fetched, records_max, bytes_max)
        return _first(fetched, records_max, bytes_max)

    async def _fetch(
        self,
        principal: Principal,
        topic: TopicImage,
        positions: Mapping[int, int],
        partition_bytes: int = PARTITION_BYTES,
    ) -> list[FetchPartitionData]:
        def request(indexes: list[int]) -> FetchRequest:
            return FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=REQUEST_BYTES,
                isolation_level=READ_COMMITTED,
                topics=[
                    FetchTopic(
                        topic=topic.name,
                        topic_id=topic.id,
                        partitions=[
                            FetchPartition(
                                partition=index,
                                fetch_offset=positions[index],
                                partition_max_bytes=partition_bytes,
                            )
                            for index in indexes
                        ],
                    )
                ],
            )

        answers = await self._leaders.ask(
            principal, topic, sorted(positions), request, FetchResponse
        )
        return [row for answer in answers for there in answer.responses for row in there.partitions]


def _first(fetched: Fetched, records_max: int, bytes_max: int) -> list[FetchedRecord]:
    found: list[FetchedRecord] = []
    for message in islice(within(fetched.messages(), bytes_max), records_max):
        size = size_of(message)
        if size > max(HANDED_BYTES_MAX, len(fetched.records)):
            if found:
                break
            raise Refused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the message at {message.topic}-{message.partition}:{message.offset} decompresses "
                f"to {size} bytes, more than HTTP and SQS deliver: read it with a Kafka client, or "
                "commit the offset after it",
            )
        found.append(message)
    return found


def within(messages: Iterable[FetchedRecord], bytes_max: int) -> Iterator[FetchedRecord]:
    """Yields messages up to `bytes_max` in all, and at least one."""
    size = 0
    for message in messages:
        before, size = size, size + size_of(message)
        if before and size > bytes_max:
            return
        yield message


def _fetched(topic: str, offset: int, row: FetchPartitionData) -> Fetched:
    records = _joined(row.records)
    return Fetched(
        TopicPartition(topic, row.partition_index),
        offset,
        next_offset_after(records, offset),
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        records,
        row.aborted_transactions or (),
    )


def size_of(message: FetchedRecord) -> int:
    return len(message.key or b"") + len(message.value or b"")


def _joined(records: Records | None) -> memoryview:
    """Returns a records field as one buffer, from the wire or from a handler in process."""
    if records is None:
        return memoryview(b"")
    if isinstance(records, list):
        return memoryview(b"".join(records))
    if isinstance(records, bytes | bytearray | memoryview):
        return memoryview(records)
    return memoryview(records.take(len(records)))  # A section of a file, not read yet.


class _Watch:
    """Waits for new records in partitions: by notification from this node's, by polling others."""

    def __init__(self, ctx: Context, topic: TopicImage, positions: Mapping[int, int]) -> None:
        found = [ctx.partitions.get(topic.name, index) for index in positions]
        self._partitions = [partition for partition in found if partition is not None]
        self._are_all_local = len(self._partitions) == len(found)
        self._news = asyncio.Event()
        for partition in self._partitions:
            partition.watch(self._news.set)

    def clear(self) -> None:
        self._news.clear()

    async def wait(self, deadline: float) -> bool:
        """Waits for new records, or for the next poll; False once the deadline has passed."""
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        try:
            async with asyncio.timeout(left if self._are_all_local else min(left, POLL_SECONDS)):
                await self._news.wait()
        except TimeoutError:
            return not self._are_all_local
        return True

    def end(self) -> None:
        for partition in self._partitions:
            partition.unwatch(self._news.set)
