"""Retention hold for delayed records of queues that are not open.

An open queue knows its delayed records (`state.queues.delivery`). A queue closes when it was not
used for a while, or when its leader changes, and what is published then it has not read. Before
segments expire by age or size, this module decodes them, on workers, in partitions where a share
group has state and has not read them. A segment is kept as long as one of its records is delayed,
or came due within the retention time, and a group may still need that record.

If the groups cannot be listed, any group may need a delayed record. A segment is decoded once: the
result is kept as long as the segment is, one for each partition.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import NamedTuple

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ports import Workers
from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.housekeeping import Expiring
from penstock.coordinator.groups_by_topic import GroupPosition, PositionKind, Positions
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.log.read_span import ReadSpan
from penstock.state.queues.backlog import Arrival
from penstock.state.queues.delivery_headers import Intake
from penstock.state.queues.policy import Order
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.records import Column, batches, decode, is_control

log = logging.getLogger("penstock.retention")

CHUNK_BYTES = 1 << 20
NEEDED = Column.OFFSETS | Column.TIMESTAMPS | Column.HEADERS

Segment = tuple[int, int]
"""First and end offset."""


class DelayedRecords(NamedTuple):
    """Delayed records of a segment, or of a part of it."""

    last_offset: int = -1
    due_ms: int = 0
    """Time at which the last one comes due; 0: none is delayed."""

    def joined(self, other: "DelayedRecords") -> "DelayedRecords":
        return DelayedRecords(
            max(self.last_offset, other.last_offset), max(self.due_ms, other.due_ms)
        )


class DelayRetention:
    """Finds the segments that closed queues still need for a delayed record."""

    def __init__(self, queues: QueueCoordinator, positions: Positions, workers: Workers) -> None:
        self._queues = queues
        self._positions = positions
        self._workers = workers
        self._kept: dict[tuple[Partition, Segment], DelayedRecords] = {}
        """Results of the segments that were kept."""

    async def expires_until(self, expiring: Expiring, now_ms: int) -> dict[Partition, int]:
        """Returns the offset of each partition up to which its segments may expire.

        A partition that cannot be read is left out: nothing of it expires in this round.
        """
        groups = await self._groups({partition.topic for partition in expiring})
        kept, self._kept = self._kept, {}
        until: dict[Partition, int] = {}
        for partition, segments in expiring.items():
            there = None if groups is None else groups.get((partition.topic, partition.index), [])
            try:
                until[partition] = await self._until(partition, segments, there, kept, now_ms)
            except (Corrupt, OSError, Refused) as error:
                log.warning(
                    "%s-%d: cannot look for delayed records before they expire: %s",
                    partition.topic,
                    partition.index,
                    error,
                )
        return until

    async def _groups(self, topics: set[str]) -> dict[tuple[str, int], list[str]] | None:
        """Returns the share groups with state in each partition; None if that is not known."""
        if self._queues.keeping.host.topic not in self._queues.around.watcher.image.topics:
            return {}
        try:
            listing = await self._positions.everywhere(topics, (PositionKind.SHARE,))
        except Refused as refused:
            log.info("any group may need what is delayed: %s", refused)
            return None
        return _by_partition(listing.positions)

    async def _until(
        self,
        partition: Partition,
        segments: list[Segment],
        groups: list[str] | None,
        kept: dict[tuple[Partition, Segment], DelayedRecords],
        now_ms: int,
    ) -> int:
        for segment in segments:
            unread = None if groups is None else self._unread(partition, groups, segment)
            if unread is not None and not unread:
                continue
            found = kept.get((partition, segment))
            if found is None:
                found = await self._delayed(partition, segment)
            retention_ms = partition.log.config.retention_ms
            is_over = 0 <= retention_ms < now_ms - found.due_ms
            if not found.due_ms or is_over:
                continue
            if unread is None or await self._is_needed(partition, unread, found.last_offset):
                self._kept[partition, segment] = found
                return segment[0]
        return segments[-1][1]

    def _unread(self, partition: Partition, groups: list[str], segment: Segment) -> list[str]:
        """Returns the groups whose queue has not read all of a segment: it is closed, or behind."""
        unread = []
        for group in groups:
            queue = self._queues.find_quietly(QueueKey(group, partition.topic_id, partition.index))
            if queue is None or queue.machine.end < segment[1]:
                unread.append(group)
        return unread

    async def _is_needed(self, partition: Partition, groups: list[str], offset: int) -> bool:
        """True unless all of these groups have finished with the record at `offset`."""
        for group in groups:
            key = QueueKey(group, partition.topic_id, partition.index)
            queue = self._queues.find_quietly(key)
            try:
                kept = queue.machine.kept if queue else await self._queues.look_up(key)
            except Refused as refused:
                log.info("group %s may need what is delayed: %s", group, refused)
                return True
            if kept is not None and kept.start <= offset:
                return True
        return False

    async def _delayed(self, partition: Partition, segment: Segment) -> DelayedRecords:
        """Decodes a segment, in chunks on workers."""
        found = DelayedRecords()
        position, end = max(segment[0], partition.log.start_offset), segment[1]
        while position < end:
            span = partition.log.locate(position, CHUNK_BYTES, end)
            if span is None:
                break
            following, delayed = await self._workers.run(_delayed_in, span)
            if following <= position:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was truncated meanwhile")
            found = found.joined(delayed)
            position = following
            await asyncio.sleep(0)
        return found


def _by_partition(positions: Iterable[GroupPosition]) -> dict[tuple[str, int], list[str]]:
    groups: dict[tuple[str, int], list[str]] = {}
    for one in positions:
        groups.setdefault((one.topic, one.partition), []).append(one.group)
    return groups


def _delayed_in(span: ReadSpan) -> tuple[int, DelayedRecords]:
    """Returns the offset after a span, and its delayed records. Blocks; runs on a worker."""
    intake = Intake(Order.NONE)
    found, view = DelayedRecords(), memoryview(span.read())
    following = 0
    for position, header in batches(view):
        following = header.next_offset
        if is_control(header.attributes):
            continue
        try:
            columns = decode(view[position : position + header.size_bytes], columns=NEEDED)
        except Refused:
            continue  # Queues skip an invalid batch, too.
        if not intake.is_plain(columns):
            found = found.joined(_delayed_among(intake.arrivals(columns)))
    return following, found


def _delayed_among(arrivals: Iterable[Arrival | int]) -> DelayedRecords:
    last, due_ms = -1, 0
    for arrival in arrivals:
        if not isinstance(arrival, int) and arrival.due_ms:
            last, due_ms = arrival.offset, max(due_ms, arrival.due_ms)
    return DelayedRecords(last, due_ms)
