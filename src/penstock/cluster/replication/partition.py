"""Replica of a partition on this node: its log, its role, and the requests that wait for it.

A replica leads or follows, as its record in the image says; it changes role on the loop together
with the image. Partitions start as followers.

A record is committed when it is on the disk of every in-sync replica (`leader_state`). Only
committed records are shown to consumers, and only they are acknowledged to producers with acks=all.
A follower learns the high watermark from its leader.

Waiting requests are parked here: producers by the offset that must be committed or durable, in
order; consumers' fetches as watchers of the high watermark; replicas' fetches as watchers of
appends. No request that needs a leader succeeds once this node is no longer sure of its leadership
(`Validity`), or has lost it: records that a new leader may truncate prove nothing.

Elsewhere: ISR changes (`isr`), copying (`replica_follower`), opening (`partitions`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from penstock.base.append_times import AppendTimes
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.cluster.controller.leader_elections import majority
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.leader_state import LeaderState
from penstock.log.config import LogConfig
from penstock.log.flusher import Flusher
from penstock.log.log import Appended, Log
from penstock.wire.records import BatchHeader


class CommitWaiter(Protocol):
    """A request that waits for an append to be committed."""

    def committed(self, row: object, code: ErrorCode) -> None: ...


class Validity(Protocol):
    """Time until which this node may act as a leader, by the loop's clock; see `membership`."""

    @property
    def valid_until(self) -> float: ...


FOREVER = float("inf")


class Always:
    """Validity of a single node without a cluster."""

    valid_until = FOREVER


ALWAYS = Always()


def ignore_partition(partition: "Partition") -> None:
    pass


def always_reachable(node_id: int) -> bool:
    return True


def _loop_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """Services and callbacks that all replicas of a node share."""

    node_id: NodeId
    flusher: Flusher
    validity: Validity = ALWAYS
    isr_due: Callable[["Partition"], None] = ignore_partition
    """Callback: the ISR of a partition needs a check; see `isr`."""
    role_due: Callable[["Partition"], None] = ignore_partition
    """Callback: a log under repair is ready for the role that its record gives it."""
    save_known: Callable[[], Awaitable[None]] = nothing
    """Writes the high watermark checkpoint (`high_watermark_checkpoint`)."""
    is_reachable: Callable[[int], bool] = always_reachable
    """True while that node answers; see `peer_reachability`."""


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """Rules of a topic's config that a batch must meet before it is appended."""

    message_bytes_max: int
    append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    keys_required: bool
    """True for a compacted topic: it takes no record without a key."""
    codec: int | None
    """Codec that batches must have; None: any that the producer chose."""
    level: int | None = None
    """Compression level of that codec; None: its default."""
    key_schema: str | None = None
    """Naming of the subject of keys' schemas; None: keys need no schema."""
    value_schema: str | None = None

    @property
    def look_inside(self) -> bool:
        """True when the records themselves must be read before the append."""
        return self.keys_required or self.codec is not None or self.needs_schemas

    @property
    def needs_schemas(self) -> bool:
        return self.key_schema is not None or self.value_schema is not None


class Partition:
    """Replica of a partition. Every method runs on the event loop; only coroutines wait."""

    __slots__ = (
        "_acks",
        "_append_watchers",
        "_appended_ms",
        "_context",
        "_durables",
        "_flusher",
        "_watchers",
        "_written",
        "append_times",
        "high_watermark",
        "index",
        "is_compacting",
        "is_under_repair",
        "is_unwritable",
        "known_end_max",
        "leader_epoch",
        "leader_state",
        "log",
        "lost_end",
        "record",
        "rules",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        log: Log,
        record: PartitionRecord,
        rules: ProduceRules,
        context: ReplicaContext,
        *,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` is known from an earlier process: it may be higher by now."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.record = record
        self.leader_epoch = record.leader_epoch
        self.rules = rules
        self.leader_state: LeaderState | None = None
        """State of this node's leadership; None while it follows."""
        self.is_under_repair = False
        """True while a worker changes the log's files to match the leader's: no reads and no
        leadership until `repair_ended`."""
        self.is_compacting = False
        """True while a worker rewrites sealed segments: retention leaves them alone until then;
        see `compaction_schedule`."""
        self.is_unwritable = False
        """True after a failed append to a sound log: the disk is full, for example."""
        self.high_watermark: int = max(log.start_offset, min(high_watermark, log.end_offset))
        self.lost_end = high_watermark if log.offline is not None else 0
        """For an offline log: everything below it is known to have been committed and held."""
        self.known_end_max: int | None = None
        """Offset at which the log is about to be truncated, although it held more that was
        committed."""
        self.append_times = AppendTimes()
        """By the loop's time in milliseconds, since this node opened the log."""
        self._appended_ms = _loop_ms()
        """Loop time of the last append, or of opening the log."""
        self._context = context
        self._flusher = context.flusher
        self._acks: deque[tuple[int, CommitWaiter, object]] = deque()
        self._written: deque[tuple[int, CommitWaiter, object]] = deque()
        self._durables: deque[tuple[int, Callable[[], None]]] = deque()
        # Dicts for their order: fetches are woken in the order in which they came.
        self._watchers: dict[Callable[[], None], None] = {}
        self._append_watchers: dict[Callable[[], None], None] = {}
        log.on_durable = self.advance

    @property
    def node_id(self) -> NodeId:
        return self._context.node_id

    @property
    def is_leader(self) -> bool:
        return self.leader_state is not None

    @property
    def is_settled(self) -> bool:
        """True once the leader's high watermark has reached its epoch's start: only then does it
        cover everything committed before (KIP-207)."""
        leader_state = self.leader_state
        return leader_state is not None and self.high_watermark >= leader_state.epoch_start

    @property
    def known_end(self) -> int:
        """All records below it were committed and on this disk; see `high_watermark_checkpoint`."""
        known = max(self.lost_end, min(self.high_watermark, self.log.synced_offset))
        return known if self.known_end_max is None else min(known, self.known_end_max)

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    # -- roles ------------------------------------------------------------------------------

    def lead(self, record: PartitionRecord, min_isr: int, now_s: float) -> None:
        """Becomes leader with `record`, or applies a newer record of the same epoch."""
        assert not self.is_under_repair, "a log under repair cannot lead"
        leader_state = self.leader_state
        if leader_state is None or record.leader_epoch > self.leader_epoch:
            # Producers that wait since an earlier epoch of this node keep waiting: their batches
            # are in this log, and it is now the leader's log.
            self.record, self.leader_epoch = record, record.leader_epoch
            end_offset = self.log.end_offset
            self.leader_state = LeaderState(
                self._context.node_id, record, min_isr, end_offset, now_s
            )
            self._wake_all()
        else:
            has_left = leader_state.adopt(record, min_isr, now_s)
            self.record = leader_state.record
            if has_left:
                for wake in tuple(self._append_watchers):
                    wake()
            if leader_state.is_under_min:
                self._tell(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, self._acks)
        self.advance()

    def follow(self, record: PartitionRecord) -> None:
        """Follows another leader, or none; requests that need this leader fail."""
        was_leader, self.leader_state = self.leader_state is not None, None
        is_news = record.leader_epoch != self.leader_epoch
        self.record, self.leader_epoch = record, record.leader_epoch
        if was_leader:
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif is_news:
            self._wake_all()

    def check_epoch(self, epoch: int) -> None:
        """Fences a client whose leader epoch is older or newer than this replica's (KIP-320)."""
        if epoch >= 0 and epoch != self.leader_epoch:
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH
                if epoch < self.leader_epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Last epoch at or below `epoch`, and its end offset; (-1, -1) if unknown here."""
        found = self.log.epoch_end(epoch)
        if found[1] < 0 <= epoch <= self.leader_epoch and self.leader_state is not None:
            # Newer than any in the log, in which this leader has written nothing yet: batches of
            # such an epoch on other replicas were never committed.
            return self.log.epochs.latest, self.log.end_offset
        return found

    def is_valid(self) -> bool:
        """True while this node may still act as the leader."""
        if self.leader_state is None:
            return False
        valid_until = self._context.validity.valid_until
        return valid_until == FOREVER or asyncio.get_running_loop().time() < valid_until

    def is_in_touch(self) -> bool:
        """True while this node surely leads and enough replicas are reachable to commit.

        A leader that was replaced because other nodes cannot reach it may learn of it last.
        """
        leader_state = self.leader_state
        if leader_state is None or not self.is_valid():
            return False
        record = leader_state.record
        others = sum(
            node != self.node_id and self._context.is_reachable(node) for node in record.isr
        )
        return others + 1 >= min(majority(record), len(record.isr))

    # -- appends as leader ------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, transaction_version: int = 0
    ) -> Appended:
        """Appends one checked batch. It may be acknowledged once `when_committed` says so."""
        if self.leader_state is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        try:
            appended = log.append(
                batch, header, self.leader_epoch, now_ms, transaction_version=transaction_version
            )
        except OSError:
            self.advance()  # If the log went offline, waiting requests fail.
            self.mark_unwritable()
            raise
        self.is_unwritable = False
        if not appended.duplicate:
            self._note_append(appended.base_offset)
            if log.config.page_cache:
                self.advance()
            else:
                self._flusher.mark(log)
            for wake in self._append_watchers:
                wake()
        return appended

    def when_committed(self, end_offset: int, waiter: CommitWaiter, row: object) -> bool:
        """True if everything below `end_offset` is committed; else `waiter` is notified later."""
        if end_offset <= self.high_watermark:
            return True
        self._acks.append((end_offset, waiter, row))
        return False

    def when_written(self, end_offset: int, waiter: CommitWaiter, row: object) -> bool:
        """As `when_committed`, for producers that need this node's disk only (acks=1)."""
        if end_offset <= self.log.durable_offset:
            return True
        self._written.append((end_offset, waiter, row))
        return False

    def _note_append(self, base_offset: int) -> None:
        self._appended_ms = _loop_ms()
        self.append_times.note(base_offset, self._appended_ms)

    def age_bounds_ms(self, offset: int) -> tuple[int, int | None]:
        """Bounds of the time since the record at `offset` was appended.

        Before the next noted append, or before the last append to this replica; and after what
        `append_times` knows. None: unknown.
        """
        now_ms, since_ms = _loop_ms(), self.append_times.since(offset)
        until_ms = self.append_times.until(offset)
        age_ms_min = now_ms - (self._appended_ms if until_ms is None else until_ms)
        return age_ms_min, None if since_ms is None else now_ms - since_ms

    # -- replicas ---------------------------------------------------------------------------

    def replica_fetched(
        self, node_id: int, broker_epoch: int, offset: int, now_s: float, *, start_offset: int = -1
    ) -> None:
        """Handles a follower's fetch from `offset`: it has everything below on its disk."""
        leader_state = self.leader_state
        if leader_state is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        copy = leader_state.fetched(node_id, broker_epoch, offset, self.log.end_offset, now_s)
        if copy is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {node_id} has no replica of it")
        copy.start_offset = start_offset
        self.advance()
        if leader_state.may_join(node_id, self.high_watermark):
            self._context.isr_due(self)

    def mark_unwritable(self) -> None:
        """Marks the replica as unwritable after a failed append; it may have to leave the ISR."""
        self.is_unwritable = True
        self._context.isr_due(self)

    def copied(self, uncommitted_from: int | None = None) -> None:
        """Makes batches durable that were copied from the leader.

        `uncommitted_from`: the first offset, if none of them was committed when they were sent.
        """
        if uncommitted_from is not None:
            self._note_append(uncommitted_from)
        else:
            self._appended_ms = _loop_ms()
        if self.log.config.page_cache:
            self.advance()
        else:
            self._flusher.mark(self.log)

    def when_durable(self, offset: int, done: Callable[[], None]) -> None:
        """Runs `done()` once: at once if everything below `offset` is durable; else when it is,
        or when the log was truncated, closed or failed. The callback must check the log."""
        if offset <= self.log.durable_offset or self.log.offline is not None:
            done()
        else:
            self._durables.append((offset, done))

    def learn_high_watermark(self, offset: int) -> None:
        """Applies the leader's high watermark, as far as records have been copied."""
        reached = min(offset, self.log.end_offset)
        if self.leader_state is None and reached > self.high_watermark:
            self.high_watermark = reached
            for wake in tuple(self._watchers):
                wake()

    def adopt(self, log: Log) -> None:
        """Replaces a damaged log by another; `repair_ended` follows."""
        self.log.on_durable = None
        self.lost_end = 0
        self.log = log
        log.on_durable = self.advance

    async def lower_known_end(self, offset: int) -> None:
        """Lowers the checkpoint before the log is truncated to `offset`: otherwise a restart after
        a crash in between would report lost records. Raises errors of the disk."""
        if offset < self.known_end:
            self.known_end_max = offset
            await self._context.save_known()

    def repair_ended(self) -> None:
        """Continues with a log that was truncated, started over or replaced."""
        self.known_end_max = None
        start, end = self.log.start_offset, self.log.end_offset
        self.append_times.forget_from(end)
        self.high_watermark = max(start, min(self.high_watermark, end))
        self._release_durables(release_all=True)
        self._wake_all()
        self._context.role_due(self)

    # -- waiting requests -------------------------------------------------------------------

    def watch(self, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever the high watermark advances, until `unwatch`."""
        self._watchers[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._watchers.pop(wake, None)

    def watch_appends(self, wake: Callable[[], None]) -> None:
        """Calls `wake` at every append and change of role, until `unwatch_appends`.

        `wake` runs within the append, so it must not call back: it makes a note and acts later.
        """
        self._append_watchers[wake] = None

    def unwatch_appends(self, wake: Callable[[], None]) -> None:
        self._append_watchers.pop(wake, None)

    def advance(self) -> None:
        """Advances the high watermark after progress of this log or of a replica."""
        log = self.log
        if log.offline is not None:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if self._durables:
            self._release_durables()
        leader_state = self.leader_state
        if leader_state is None:
            return
        reached = log.durable_offset
        if self._written:
            self._release(self._written, reached)
        if not leader_state.is_alone:
            reached = leader_state.high_watermark(reached, asyncio.get_running_loop().time())
        if reached <= self.high_watermark:
            return
        self.high_watermark = reached
        if self._acks:
            self._release(self._acks, reached)
        if self._watchers:
            for wake in tuple(self._watchers):
                wake()

    def _release(self, acks: deque[tuple[int, CommitWaiter, object]], reached: int) -> None:
        """Acknowledges requests that wait for an offset up to `reached`."""
        valid_until = self._context.validity.valid_until
        if valid_until != FOREVER and asyncio.get_running_loop().time() >= valid_until:
            self._tell(ErrorCode.NOT_LEADER_OR_FOLLOWER, acks)
            return
        while acks and acks[0][0] <= reached:
            _, waiter, row = acks.popleft()
            waiter.committed(row, ErrorCode.NONE)

    def _release_durables(self, *, release_all: bool = False) -> None:
        durables = self._durables
        while durables and (release_all or durables[0][0] <= self.log.durable_offset):
            durables.popleft()[1]()

    def _tell(self, code: ErrorCode, acks: deque[tuple[int, CommitWaiter, object]]) -> None:
        """Ends the requests that wait now with `code`; requests added meanwhile stay."""
        for _ in range(len(acks)):
            if not acks:
                return
            _, waiter, row = acks.popleft()
            waiter.committed(row, code)

    def _wake_all(self) -> None:
        for wake in (*self._watchers, *self._append_watchers):
            wake()

    def fence(self) -> None:
        """Fails waiting acknowledgements: this node is no longer sure that it leads."""
        self._tell(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._written)
        self._tell(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._acks)

    def fail(self, code: ErrorCode) -> None:
        """Fails all waiting requests with `code`."""
        self._tell(code, self._written)
        self._tell(code, self._acks)
        self._release_durables(release_all=True)
        self._wake_all()

    # -- the log ----------------------------------------------------------------------------

    def configure(self, config: LogConfig, rules: ProduceRules) -> None:
        """Applies a changed config, from the next batch on."""
        self.log.config = config
        self.log.producers.expiration_ms = config.producer_expiration_ms
        self.rules = rules

    def flush(self) -> None:
        """Schedules a flush of all that is not durable yet, such as a new start offset."""
        self._flusher.mark(self.log)

    async def flushed(self) -> None:
        """Waits until no flush of the log is running or due."""
        await self._flusher.settle(self.log)

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Prevents flushes of the log while its files are changed; see `Flusher.hold`."""
        return self._flusher.hold(self.log)

    async def delete_before(self, offset: int) -> None:
        """Advances the start of the log (DeleteRecords); durable on return."""
        self.log.delete_before(offset)
        self.truncated()
        self._flusher.mark(self.log)
        await self._flusher.settle(self.log)
        self.log.require_online()

    def truncated(self) -> None:
        """Wakes fetches below a start of the log that has advanced: they are out of range."""
        self.high_watermark = max(self.high_watermark, self.log.start_offset)
        self._wake_all()

    def close(self, reason: str, code: ErrorCode) -> None:
        """Stops serving this partition; all waiting requests fail with `code`."""
        self.log.fail(reason)
        # The log and its open files are freed with the last reference, so there must be no cycle.
        self.log.on_durable = None
        self.leader_state = None
        self.fail(code)
