"""One open queue: a group's delivery of one partition that is led here.

The shell around `state.queues.delivery`: feeds it committed records (`log_feed`), hands leases to
waiting consumers, persists its operations, wakes it when something is due, and reports records that
were given up. Decisions of one turn of the loop are persisted together, as one delta; no caller is
answered before it is committed. If that fails, memory no longer agrees with the stored state: the
queue is closed, all waiting callers are answered, and the next caller rebuilds it.

Waiting consumers are served in order of arrival; while several wait, each gets at most an equal
share, or the minimum that its protocol hands out at a time (`Taker.share_min`). After deltas as
large as the last snapshot, or `DELTAS_MAX` of them, a new snapshot is stored.

Bounds: `WAITING_MAX` takers wait at a time.

Counters of events in this node's queues, updated from persisted operations. The time to
acknowledgement is sampled: of each delivery the first record is tracked until it is finished, or
is no longer leased to that consumer. Bounds: `SAMPLES_MAX` at a time; further ones are not
tracked, and those older than `SAMPLE_MS_MAX` are dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.metrics import AGE_BUCKETS, Histogram
from penstock.base.ports import Workers
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.queues.log_feed import LogFeed
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.state.queues import delivery_state
from penstock.state.queues.delivery import Delivery, DeliveryOutcome
from penstock.state.queues.delivery_headers import Intake
from penstock.state.queues.delivery_state import (
    ArchivedRecord,
    Finished,
    LeasedRange,
    LeaseState,
    Op,
    Released,
    Returned,
)
from penstock.state.queues.state_shard import SLOTS, QueueKey

SAMPLES_MAX = 10_000
SAMPLE_MS_MAX = 24 * 3_600_000


class QueueSample(NamedTuple):
    delivered_ms: int
    age_s: float
    """Age of the record at delivery."""


@dataclass(slots=True)
class QueueCounters:
    """Records since the node started."""

    delivered: int = 0
    finished: int = 0
    released: int = 0
    given_up: int = 0
    ack_seconds: Histogram = field(default_factory=lambda: Histogram(AGE_BUCKETS), compare=False)
    """Seconds from delivery to acknowledgement."""
    acked_age: Histogram = field(default_factory=lambda: Histogram(AGE_BUCKETS), compare=False)
    """Seconds from production to acknowledgement."""
    _samples: dict[QueueKey, dict[int, QueueSample]] = field(default_factory=dict)
    _count: int = 0

    def sample(self, key: QueueKey, offset: int, now_ms: int, age_s: float) -> None:
        """Starts to track a delivered record until it is finished."""
        if self._count >= SAMPLES_MAX:
            self._forget_old(now_ms)
            if self._count >= SAMPLES_MAX:
                return
        samples = self._samples.setdefault(key, {})
        self._count += offset not in samples
        samples[offset] = QueueSample(now_ms, age_s)

    def note(self, ops: Iterable[Op], key: QueueKey | None = None, now_ms: int = 0) -> None:
        samples = self._samples.get(key) if key is not None else None
        for op in ops:
            match op:
                case LeasedRange():
                    self.delivered += sum(lease.last - lease.first + 1 for lease in op.leases)
                case Returned():
                    self.delivered -= op.last - op.first + 1
                    if samples:
                        self._take(samples, op.first, op.last)
                case Finished():
                    self.finished += op.last - op.first + 1
                    if samples:
                        for one in self._take(samples, op.first, op.last):
                            held_s = max(0, now_ms - one.delivered_ms) / 1000
                            self.ack_seconds.observe(held_s)
                            self.acked_age.observe(one.age_s + held_s)
                case Released():
                    self.released += op.last - op.first + 1
                    if samples:
                        self._take(samples, op.first, op.last)
                case ArchivedRecord():
                    self.given_up += 1
        if samples is not None and not samples and key is not None:
            del self._samples[key]

    def _take(self, samples: dict[int, QueueSample], first: int, last: int) -> list[QueueSample]:
        """Removes samples in a run, iterating over the shorter of the run and the samples."""
        if last - first < len(samples):
            places = [offset for offset in range(first, last + 1) if offset in samples]
        else:
            places = [offset for offset in samples if first <= offset <= last]
        self._count -= len(places)
        return [samples.pop(offset) for offset in places]

    def _forget_old(self, now_ms: int) -> None:
        for key, samples in list(self._samples.items()):
            kept = {
                offset: one
                for offset, one in samples.items()
                if now_ms - one.delivered_ms < SAMPLE_MS_MAX
            }
            self._count -= len(samples) - len(kept)
            if kept:
                self._samples[key] = kept
            else:
                del self._samples[key]


log = logging.getLogger("penstock.queues")

WAITING_MAX = 10_000
DELTAS_MAX = SLOTS // 2
SNAPSHOT_BYTES_MIN = 64 * 1024
TIMER_MS_MIN = 1

Told: TypeAlias = Callable[[Refused | None], None]
"""Called once: with None when the change is persisted, else with the reason why it is not."""


class QueueStateKeeper(Protocol):
    """Persists a queue's deltas and snapshots, here or on another node."""

    def write(
        self, key: QueueKey, leader_epoch: int, number: int, payload: bytes, is_snapshot: bool
    ) -> "asyncio.Future[int]": ...


class Taker(Protocol):
    """Consumer that waits for records, perhaps at several queues at once."""

    @property
    def member(self) -> str: ...

    @property
    def lock_ms(self) -> int | None:
        """Requested lease duration in ms; None: by the queue's policy."""
        ...

    @property
    def share_min(self) -> int:
        """Minimum share of records, if available, however many consumers wait."""
        ...

    @property
    def with_followers(self) -> bool:
        """True if it accepts several records of one key, in order, from a queue with an order."""
        ...

    def capacity(self, queue: "OpenQueue") -> int:
        """Maximum records to acquire now; 0 cancels the wait."""
        ...

    def taken(self, queue: "OpenQueue", leases: tuple[LeaseState, ...]) -> None:
        """Called with leases that are not persisted yet."""
        ...

    def kept(
        self, queue: "OpenQueue", leases: tuple[LeaseState, ...], refused: Refused | None
    ) -> None:
        """Called when its leases are persisted, or with the reason why they are not and do not
        count."""
        ...

    def turned_away(self, queue: "OpenQueue", why: Refused) -> None:
        """Called when the queue is closed; no records follow."""
        ...


@dataclass(slots=True)
class Loaded:
    """Loaded state of a queue, and the size of its deltas."""

    number: int = 0
    deltas: int = 0
    delta_bytes: int = 0
    snapshot_bytes: int = 0


class OpenQueue:
    """Runs entirely on the loop; only disk reads are awaited."""

    def __init__(
        self,
        key: QueueKey,
        partition: Partition,
        machine: Delivery,
        loaded: Loaded,
        intake: Intake,
        keeper: QueueStateKeeper,
        workers: Workers,
        time: SteadyTime,
        *,
        on_given_up: Callable[["OpenQueue"], None],
        closed: Callable[["OpenQueue"], None],
        unreadable: Callable[[Exception], None],
        counts: QueueCounters | None = None,
        committed_only: bool = False,
        read_from: int | None = None,
    ) -> None:
        """`on_given_up` is called when records were given up; `closed` when the queue cannot
        continue; `unreadable` if that is because of damaged data.

        `read_from`: see `log_feed`.
        """
        self.key = key
        self.partition = partition
        self.machine = machine
        self.leader_epoch = partition.leader_epoch
        self.committed_only = committed_only
        self.is_closed = False
        self.time = time
        self._loaded = loaded
        self._keeper = keeper
        self._on_given_up = on_given_up
        self._closed = closed
        self._unreadable = unreadable
        self._counts = counts or QueueCounters()
        self._takers: dict[Taker, None] = {}
        self._ops: list[Op] = []
        self._told: list[Told] = []
        self._has_dead_letters = False
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.kept_start = machine.kept.start
        """Persisted part of `machine.kept.start`: records before it stay finished."""
        self._feed = LogFeed(
            partition,
            machine,
            intake,
            workers,
            committed_only=committed_only,
            read_from=read_from,
            now_ms=time.now_ms,
            keep=lambda ops: self._take_in(DeliveryOutcome(ops), None),
            shown=self._serve,
            failed=self._cannot_read,
        )
        partition.watch(self._progress)

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    def waiting(self) -> int:
        return len(self._takers)

    @property
    def is_behind(self) -> bool:
        """True if committed records wait to be fed to the machine."""
        return not self.is_closed and self._feed.is_behind

    # -- calls ------------------------------------------------------------------------------

    def start(self) -> None:
        """Feeds the log, writes pending dead letters, and continues from there."""
        kept = self.machine.kept
        if kept.archived or (kept.dead_letter_batch is not None and kept.dead_letter_batch.offsets):
            self._on_given_up(self)
        self._feed.soon()
        self._arm()

    def take(self, taker: Taker) -> None:
        """Hands out records now or as soon as there are any; `forget` ends the wait."""
        self._require_open()
        if len(self._takers) >= WAITING_MAX:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "too many consumers wait for this queue: retry later",
            )
        self._takers[taker] = None
        self._serve()

    def is_waiting(self, taker: Taker) -> bool:
        return taker in self._takers

    def forget(self, taker: Taker) -> None:
        """Ends a taker's wait."""
        self._takers.pop(taker, None)

    def change(self, decide: Callable[[Delivery, int], DeliveryOutcome], told: Told) -> None:
        """Changes leases or anything else; raises at once what the machine refuses."""
        self._require_open()
        self._take_in(decide(self.machine, self.time.now_ms()), told)
        self._serve()

    def _require_open(self) -> None:
        if self.is_closed:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- records ----------------------------------------------------------------------------

    def _progress(self) -> None:
        """Called when more is committed, or when leadership has ended."""
        if self.partition.leader_epoch != self.leader_epoch or not self.partition.is_leader:
            self.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            self._feed.soon()

    def _cannot_read(self, error: Exception) -> None:
        log.error("%s: the records of %s cannot be read: %s", self.key.group, self.name, error)
        self.close(Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if not isinstance(error, Refused):
            self._unreadable(error)

    # -- serving ----------------------------------------------------------------------------

    def _serve(self) -> None:
        """Hands ready records to waiting takers, the longest waiting first."""
        now_ms = self.time.now_ms()
        machine = self.machine
        self._take_in(machine.tick(now_ms), None)
        while self._takers and not self.is_closed:
            ready = machine.ready_count
            if not ready:
                break
            taker = next(iter(self._takers))
            capacity = taker.capacity(self)
            if capacity > 0:
                share = max(taker.share_min, -(-ready // len(self._takers)))
                outcome = machine.acquire(
                    taker.member,
                    min(capacity, share),
                    now_ms,
                    lock_ms=taker.lock_ms,
                    one_priority=True,
                    with_followers=taker.with_followers,
                )
                if not outcome.leases:
                    break
                self._take_in(outcome, _hand_over(self, taker, outcome.leases))
                taker.taken(self, outcome.leases)
            self._takers.pop(taker, None)
        self._arm()

    def _arm(self) -> None:
        due_ms = None if self.is_closed else self.machine.deadline_ms()
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = max(TIMER_MS_MIN, due_ms - self.time.now_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.is_closed:
            self._serve()

    # -- persisting -------------------------------------------------------------------------

    def _take_in(self, outcome: DeliveryOutcome, told: Told | None) -> None:
        """Persists a decision's operations at the end of this turn."""
        self._ops += outcome.ops
        self._has_dead_letters = self._has_dead_letters or bool(outcome.dead_letters)
        if told is not None:
            self._told.append(told)
        if (self._ops or self._told) and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._is_due = False
        if self.is_closed:
            return
        ops, self._ops = self._ops, []
        told, self._told = self._told, []
        has_dead_letters, self._has_dead_letters = self._has_dead_letters, False
        self._counts.note(ops, self.key, self.time.now_ms())
        start = self.machine.kept.start
        try:
            kept = self._keep(ops)
        except Refused as refused:
            self._told = told
            self.close(refused)
            return
        kept.add_done_callback(lambda done: self._was_kept(done, told, has_dead_letters, start))
        self._feed.soon()  # There may be capacity again.

    def _keep(self, ops: list[Op]) -> "asyncio.Future[int]":
        loaded = self._loaded
        is_due = loaded.delta_bytes >= max(SNAPSHOT_BYTES_MIN, loaded.snapshot_bytes)
        if is_due or loaded.deltas >= DELTAS_MAX:
            # It includes this turn's decisions, so it replaces this turn's delta as well.
            payload = delivery_state.encode_snapshot(self.machine.kept.snapshot())
            loaded.deltas = loaded.delta_bytes = 0
            loaded.snapshot_bytes = len(payload)
            return self._keeper.write(self.key, self.leader_epoch, loaded.number, payload, True)
        payload = delivery_state.encode_ops(ops)
        loaded.number += 1
        loaded.deltas += 1
        loaded.delta_bytes += len(payload)
        return self._keeper.write(self.key, self.leader_epoch, loaded.number, payload, False)

    def _was_kept(
        self, done: "asyncio.Future[int]", told: list[Told], has_dead_letters: bool, start: int
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            why = error if isinstance(error, Refused) else Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            for tell in told:
                tell(why)
            self.close(why)
            return
        self.kept_start = max(self.kept_start, start)
        for tell in told:
            tell(None)
        if has_dead_letters and not self.is_closed:
            self._on_given_up(self)

    def close(self, why: Refused) -> None:
        """Closes the queue; waiting callers get the reason."""
        if self.is_closed:
            return
        self.is_closed = True
        self.partition.unwatch(self._progress)
        if self._timer is not None:
            self._timer.cancel()
        self._feed.end()
        told, self._told = self._told, []
        for tell in told:
            tell(why)
        takers, self._takers = self._takers, {}
        for taker in takers:
            taker.turned_away(self, why)
        self._closed(self)


def _hand_over(queue: OpenQueue, taker: Taker, leases: tuple[LeaseState, ...]) -> Told:
    return lambda refused: taker.kept(queue, leases, refused)
