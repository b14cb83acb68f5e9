"""Replica follower: applies the leader's fetch responses to one partition (KIP-101, KIP-320).

Owns the next offset to fetch, and its readiness. It copies the leader's batches unchanged, has the
log truncated or started over where it differs from the leader's, and takes over high watermark and
log start.

Invariants:
- the fetch offset is durable here: the leader takes it for this replica's durable end. So copied
  batches are synced before the next fetch;
- a batch is appended only if its CRC is right and its offset is the next one;
- an offline log is copied anew, but not before the replica has left ISR and ELR.

Elsewhere: requests to the leader (`fetcher`), assignment to leaders (`fetchers`), repairs that wait
for the disk (`log_repair`).
"""

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.base.ports import Random, WallClock, Workers
from penstock.base.retry import Backoff
from penstock.client.errors import code_of
from penstock.cluster.replication.log_repair import CopyCounters, LeaderLacksRecords, LogRepair
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.wire.messages.fetch import FetchPartition, FetchPartitionData
from penstock.wire.records import BATCH_OVERHEAD, read_header

log = logging.getLogger("penstock.replication")

FollowedPartition = tuple[TopicId, int]

NOT_ASKED = 2**63 - 1
RESTORE_SECONDS = 5.0
"""Pause between two attempts to restore a log."""
BEHIND = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)
"""Leader and follower have different images: one of them gets the newer image in a moment."""


class FollowerStatus(enum.Enum):
    READY = "ready"
    """May be fetched: all of its records are on disk."""
    SYNCING = "syncing"
    """Copied batches are being synced."""
    BUSY = "busy"
    """A worker changes its log, or the leader is asked for its log's start or end."""
    PAUSED = "paused"
    """Fetched again a little later."""
    BROKEN = "broken"
    """Its log is offline."""


@dataclass(slots=True)
class ReplicationContext:
    """Services of the node that every replica follower uses."""

    workers: Workers
    clock: WallClock
    random: Random
    spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    """Runs work in the background; a bug in it stops the node."""
    leader_start: Callable[["ReplicaFollower"], Awaitable[int]]
    """Asks the leader for its log's start. Raises what `peer_connections` raises."""
    leader_end: Callable[["ReplicaFollower"], Awaitable[int]]
    """Asks the leader for its log's end, likewise."""
    copied: CopyCounters = field(default_factory=CopyCounters)


class ReplicaFollower:
    """Follower of one partition's leader in one leader epoch."""

    __slots__ = (
        "_attempt",
        "_backoff",
        "_context",
        "_is_asking",
        "_is_lack_reported",
        "_repair",
        "_reported",
        "_task",
        "_timer",
        "asked_in",
        "changed",
        "is_retired",
        "key",
        "leader",
        "leader_epoch",
        "partition",
        "status",
    )

    def __init__(self, partition: Partition, context: ReplicationContext) -> None:
        self.partition = partition
        self.key: FollowedPartition = (partition.topic_id, partition.index)
        self.leader = partition.record.leader
        self.leader_epoch = partition.record.leader_epoch
        self.status = FollowerStatus.BUSY
        self.asked_in = NOT_ASKED
        """Number of the request that carried the present offset; see `fetcher`."""
        self.changed: Callable[[ReplicaFollower], None] | None = None
        """Called after every change of `status`."""
        self.is_retired = False
        self._context = context
        self._backoff = Backoff(context.random, base_s=0.02)
        self._attempt = 0
        self._reported: ErrorCode | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_asking = False
        self._is_lack_reported = False
        self._repair = LogRepair(
            partition,
            self.leader,
            context.workers,
            context.clock,
            context.copied,
            lambda: self.is_over,
        )

    def start(self, before: "ReplicaFollower | None" = None) -> None:
        """Prepares the log for copying; `before` is this partition's previous follower."""
        task = before._task if before is not None else None
        if task is not None and task.done():
            task = None
        if task is not None or self._repair.has_empty_epoch:
            self._begin(self._prepare_log(task))
        else:
            self._await_sync()

    def retire(self) -> None:
        """Ends this follower: leader or epoch changed, or the partition is gone. Disk work that
        has started is finished."""
        self.is_retired = True
        self.changed = None
        if self._is_asking and self._task is not None:
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_over(self) -> bool:
        """True once the partition has another role or leader."""
        partition = self.partition
        return self.is_retired or partition.is_leader or partition.leader_epoch != self.leader_epoch

    @property
    def is_ready(self) -> bool:
        return self.status is FollowerStatus.READY

    @property
    def is_in_sync(self) -> bool:
        return self.partition.node_id in self.partition.record.isr

    def reconsider(self) -> None:
        """Restores a broken log if the partition's record allows it by now."""
        record, node_id = self.partition.record, self.partition.node_id
        if self.status is not FollowerStatus.BROKEN or self.is_over:
            return
        if node_id not in record.isr and node_id not in record.elr and self._timer is None:
            self._begin(self._repair.restore(lambda: self._context.leader_end(self)))

    def fetch_row(self, bytes_max: int) -> FetchPartition:
        held = self.partition.log
        offset = held.end_offset
        return FetchPartition(
            partition=self.partition.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=held.epochs.of(offset - 1),
            log_start_offset=held.start_offset,
            partition_max_bytes=bytes_max,
            high_watermark=self.partition.high_watermark,
        )

    # -- responses --------------------------------------------------------------------------

    def take(self, row: FetchPartitionData) -> int:
        """Applies the leader's response; returns the number of bytes copied."""
        assert self.status is FollowerStatus.READY
        if self.partition.log.offline is not None:
            self._set_status(FollowerStatus.BROKEN)
            return 0
        if row.error_code:
            self._refused(code_of(row.error_code))
            return 0
        diverging = row.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            self._begin(self._repair.truncate(diverging.epoch, diverging.end_offset))
            return 0
        self._reported = None
        if not row.records:
            self._attempt = 0
            self._learn(row)
            return 0
        assert isinstance(row.records, bytes | bytearray | memoryview), "as it was received"
        view = memoryview(row.records)
        if len(view) >= BATCH_OVERHEAD and read_header(view).next_offset <= self._end_offset:
            return 0  # A response to an earlier fetch.
        return self._copy(view, row)

    @property
    def _end_offset(self) -> int:
        return self.partition.log.end_offset

    def _copy(self, view: memoryview, row: FetchPartitionData) -> int:
        held = self.partition.log
        # A leader commits nothing that a replica in sync has not fetched: what it sends is new.
        end_offset = held.end_offset
        is_new = row.high_watermark <= end_offset and _epoch_of(view) == self.partition.leader_epoch
        try:
            if held.start_offset == held.end_offset and _spans(view, held.end_offset):
                taken = 0
            else:
                taken = held.append_replica(view, self._context.clock.now_ms(), waits=False)
        except (Refused, OSError) as error:
            self._append_failed(error)
            return 0
        uncommitted_from = end_offset if is_new else None
        if not taken:
            self._begin(self._copy_slowly(view, row, uncommitted_from))
            return len(view)
        self._context.copied.bytes += taken
        self._settle(row, uncommitted_from)
        return taken

    def _settle(self, row: FetchPartitionData, uncommitted_from: int | None) -> None:
        """Syncs the appended batches before the next fetch."""
        self._attempt = 0
        self.partition.is_unwritable = False
        self.partition.copied(uncommitted_from)
        self._learn(row)
        self._await_sync()

    def _await_sync(self) -> None:
        held = self.partition.log
        if held.offline is not None:
            self._set_status(FollowerStatus.BROKEN)
        elif held.durable_offset >= held.end_offset:
            self._set_status(FollowerStatus.READY)
        else:
            self._set_status(FollowerStatus.SYNCING)
            self.partition.when_durable(held.end_offset, self._synced)

    def _synced(self) -> None:
        if not self.is_over:
            self._await_sync()

    def _learn(self, row: FetchPartitionData) -> None:
        """Takes over the leader's high watermark and log start."""
        partition = self.partition
        if row.high_watermark >= 0:
            partition.learn_high_watermark(row.high_watermark)
        held = partition.log
        start_offset = min(row.log_start_offset, partition.high_watermark)
        if start_offset > held.start_offset:
            held.delete_before(start_offset)
            partition.flush()
            self.asked_in = NOT_ASKED  # The leader must learn of the new start offset.

    def _refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin(self._move_into_range())
            return
        if code not in BEHIND and code is not self._reported:
            self._reported = code
            log.warning("node %d refuses fetches of %s-%d: %s", self.leader, *self._name, code.name)
        self.pause()

    # -- status -----------------------------------------------------------------------------

    def _set_status(self, status: FollowerStatus) -> None:
        self.status = status
        self.asked_in = NOT_ASKED
        if self.changed is not None:
            self.changed(self)

    def pause(self) -> None:
        """Fetches again after a delay that grows with each failed attempt."""
        delay_s = self._backoff.delay_s(self._attempt)
        self._attempt += 1
        self._set_status(FollowerStatus.PAUSED)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        if not self.is_over and self.status is FollowerStatus.PAUSED:
            self._await_sync()
        self.reconsider()

    def _append_failed(self, error: Refused | OSError) -> None:
        if isinstance(error, Refused):
            self._context.copied.batches_refused += 1
        if not self.partition.is_unwritable:
            words = "batches of node %d for %s-%d are rejected: %s"
            log.error(words, self.leader, *self._name, error)
        # Batches before the rejected one may have been appended.
        self.partition.copied()
        if self.partition.log.offline is not None:
            self._set_status(FollowerStatus.BROKEN)
            return
        if isinstance(error, OSError):
            self.partition.mark_unwritable()
        self.pause()

    # -- disk work --------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._set_status(FollowerStatus.BUSY)
        self._task = self._context.spawn(self._carry_out(work))

    async def _carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except LeaderLacksRecords as lack:
            if not self._is_lack_reported:
                self._is_lack_reported = True
                log.error("%s-%d is not replicated: %s", *self._name, lack)
            if not self.is_over:
                self._set_status(
                    FollowerStatus.BROKEN if self._is_offline else FollowerStatus.PAUSED
                )
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(RESTORE_SECONDS, self._resume)
            return
        except Refused as refused:
            log.warning("replication of %s-%d is retried: %s", *self._name, refused)
        except PEER_ERRORS:
            pass  # The leader is unreachable; the fetcher retries.
        else:
            if not self.is_over and self.status is FollowerStatus.BUSY:
                self._await_sync()
            return
        if not self.is_over:
            if self._is_offline:
                self._set_status(FollowerStatus.BROKEN)
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(RESTORE_SECONDS, self._resume)
            else:
                self.pause()

    async def _prepare_log(self, unfinished: "asyncio.Task[None] | None") -> None:
        if unfinished is not None:
            await asyncio.wait([unfinished])
        await self._repair.forget_empty_epoch()

    async def _move_into_range(self) -> None:
        """Handles an offset that the leader lacks: its log begins later, or this one is empty."""
        self._is_asking = True
        try:
            start_offset = await self._context.leader_start(self)
        finally:
            self._is_asking = False
        held = self.partition.log
        if start_offset <= held.end_offset and held.start_offset < held.end_offset:
            # In range by now, or above the leader's end: then the epochs tell after the next fetch.
            if not self.is_over:
                self.pause()
            return
        await self._repair.start_over(start_offset)

    async def _copy_slowly(
        self, view: memoryview, row: FetchPartitionData, uncommitted_from: int | None
    ) -> None:
        if await self._repair.copy(view, uncommitted_from):
            self._attempt = 0
            self.partition.is_unwritable = False
            self._learn(row)

    @property
    def _is_offline(self) -> bool:
        return self.partition.log.offline is not None

    @property
    def _name(self) -> tuple[str, int]:
        return self.partition.topic, self.partition.index


def _spans(view: memoryview, offset: int) -> bool:
    """True if the first batch begins before `offset` and ends after it."""
    if len(view) < BATCH_OVERHEAD:
        return False
    header = read_header(view)
    return header.base_offset < offset <= header.last_offset


def _epoch_of(view: memoryview) -> int:
    """Leader epoch of the first batch; -1: there is none."""
    return read_header(view).leader_epoch if len(view) >= BATCH_OVERHEAD else -1
