"""One queue at work: a group's delivery of one partition that is led here.

The shell around `queues.delivery`: shows it the records as they are committed, hands leases to
those who wait, keeps its operations, wakes it when something is due, and says when there are
records to bury. What was decided in one turn of the loop is kept together, as one delta; nobody is
answered before it is committed. If it cannot be kept, the machine no longer agrees with what is
kept: the queue is closed, everybody who waits is told, and whoever comes next builds it anew.

Who waits is served in the order of coming, and nobody takes more than an equal share while others
wait. After deltas as large as the last snapshot, or `DELTAS_MAX` of them, a new one is kept.

Bounds: `WAITING_MAX` takers wait at a time; records are shown in chunks of `CHUNK_BYTES`, as long
as the machine has room.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ports import Workers
from penstock.cluster.partition import Partition
from penstock.coordinator.time import SteadyTime
from penstock.log.caches import AbortedTxn
from penstock.log.span import Span
from penstock.queues import state
from penstock.queues.delivery import Delivery, Outcome
from penstock.queues.intake import Intake
from penstock.queues.keeping import SLOTS, QueueKey
from penstock.queues.state import Lease, Op
from penstock.wire.records import (
    ALL,
    BatchHeader,
    Column,
    batches,
    decode,
    is_control,
    is_transactional,
)

log = logging.getLogger("penstock.queues")

WAITING_MAX = 10_000
CHUNK_BYTES = 1 << 20
DELTAS_MAX = SLOTS // 2
SNAPSHOT_BYTES_MIN = 64 * 1024
TIMER_MS_MIN = 1

Told: TypeAlias = Callable[[Refused | None], None]
"""Called once: with None when what was asked is kept, else with why it is not."""


class Keeper(Protocol):
    """Keeps a queue's deltas and snapshots, here or on another node."""

    def write(
        self, key: QueueKey, leader_epoch: int, number: int, payload: bytes, is_snapshot: bool
    ) -> "asyncio.Future[int]": ...


class Taker(Protocol):
    """Somebody who waits for records, perhaps at several queues at once."""

    @property
    def member(self) -> str: ...

    @property
    def lock_ms(self) -> int | None:
        """How long it wants to hold them; None: as long as the queue's policy says."""
        ...

    def room(self, queue: "Queue") -> int:
        """How many records it takes now; 0: it waits no longer."""
        ...

    def taken(self, queue: "Queue", leases: tuple[Lease, ...]) -> None:
        """It was given these; they are not kept yet."""
        ...

    def kept(self, queue: "Queue", leases: tuple[Lease, ...], refused: Refused | None) -> None:
        """What it was given is kept; or it cannot be, and it has got nothing."""
        ...

    def turned_away(self, queue: "Queue", why: Refused) -> None:
        """The queue is closed; nothing comes from here any more."""
        ...


@dataclass(slots=True)
class Loaded:
    """What was read of a queue's state, and how much of it are deltas."""

    number: int = 0
    deltas: int = 0
    delta_bytes: int = 0
    snapshot_bytes: int = 0


class Queue:
    """Everything runs on the loop, and nothing but reading from the disk waits."""

    def __init__(
        self,
        key: QueueKey,
        partition: Partition,
        machine: Delivery,
        loaded: Loaded,
        intake: Intake,
        keeper: Keeper,
        workers: Workers,
        time: SteadyTime,
        *,
        bury: Callable[["Queue"], None],
        closed: Callable[["Queue"], None],
        committed_only: bool = False,
        read_from: int | None = None,
    ) -> None:
        """`bury` is told when records were given up; `closed` when the queue cannot go on.

        `read_from` is before the queue's start where ids of earlier records must be known.
        """
        self.key = key
        self.partition = partition
        self.machine = machine
        self.leader_epoch = partition.leader_epoch
        self.committed_only = committed_only
        self.is_closed = False
        self.time = time
        self._position = machine.end if read_from is None else min(read_from, machine.end)
        self._loaded = loaded
        self._intake = intake
        self._keeper = keeper
        self._workers = workers
        self._bury = bury
        self._closed = closed
        self._takers: dict[Taker, None] = {}
        self._ops: list[Op] = []
        self._told: list[Told] = []
        self._has_letters = False
        self._is_due = False
        self._is_feeding = False
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        partition.watch(self._progress)

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    def waiting(self) -> int:
        return len(self._takers)

    @property
    def limit(self) -> int:
        """Up to where records may be shown."""
        partition = self.partition
        return partition.last_stable_offset if self.committed_only else partition.high_watermark

    # -- calls ------------------------------------------------------------------------------

    def start(self) -> None:
        """Shows what is in the log, has buried what was given up, and goes on from there."""
        if self.machine.kept.archived:
            self._bury(self)
        self._feed_soon()
        self._arm()

    def take(self, taker: Taker) -> None:
        """Gives records now or as soon as there are any; `forget` ends the waiting."""
        self._require_open()
        if len(self._takers) >= WAITING_MAX:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many wait for this queue")
        self._takers[taker] = None
        self._serve()

    def is_waiting(self, taker: Taker) -> bool:
        return taker in self._takers

    def forget(self, taker: Taker) -> None:
        """It waits no longer."""
        self._takers.pop(taker, None)

    def change(self, decide: Callable[[Delivery, int], Outcome], told: Told) -> None:
        """An answer to leases, or any other change; refuses at once what the machine refuses."""
        self._require_open()
        self._take_in(decide(self.machine, self.time.now_ms()), told)
        self._serve()

    def _require_open(self) -> None:
        if self.is_closed:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- records ----------------------------------------------------------------------------

    def _progress(self) -> None:
        """More is committed; or the leadership is gone."""
        if self.partition.leader_epoch != self.leader_epoch or not self.partition.is_leader:
            self.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            self._feed_soon()

    def _feed_soon(self) -> None:
        if not self._is_feeding and not self.is_closed:
            self._is_feeding = True
            asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        """Shows the machine the next chunk: from the page cache now, from the disk later."""
        if self.is_closed:
            return
        try:
            span = self._next_span()
            if span is None:
                self._is_feeding = False
                return
            data = span.read_cached()
            if data is None:
                loop = asyncio.get_running_loop()
                self._reading = loop.create_task(self._read_and_show(span))
                return
            self._show(data)
        except (Corrupt, OSError, Refused) as error:
            self._cannot_read(error)

    async def _read_and_show(self, span: Span) -> None:
        try:
            data = await self._workers.run(span.read)
            self._reading = None
            if not self.is_closed:
                self._show(data)
        except (Corrupt, OSError, Refused) as error:
            self._reading = None
            self._cannot_read(error)

    def _cannot_read(self, error: Exception) -> None:
        log.error("%s: the records of %s cannot be read: %s", self.key.group, self.name, error)
        self.close(Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def _next_span(self) -> Span | None:
        machine, files = self.machine, self.partition.log
        if machine.kept.start < files.start_offset:
            self._take_in(Outcome(machine.move_start(files.start_offset)), None)
        self._position = max(self._position, files.start_offset)
        if self._position >= self.limit or machine.is_full:
            return None
        return files.locate(self._position, CHUNK_BYTES, self.limit)

    def _show(self, data: bytes) -> None:
        limit, before = self.limit, self._position
        aborted = self.partition.log.aborted(before, limit) if self.committed_only else []
        view = memoryview(data)
        for position, header in batches(view):
            if header.next_offset > self._position and header.base_offset < limit:
                self._show_batch(view[position:], header, aborted)
                self._position = header.next_offset
        self._serve()
        self._is_feeding = False
        if self._position > before:
            self._feed_soon()

    def _show_batch(
        self, batch: memoryview, header: BatchHeader, aborted: list[AbortedTxn]
    ) -> None:
        machine = self.machine
        last = header.last_offset
        if is_control(header.attributes) or _is_aborted(header, aborted):
            if last >= machine.end:
                self._pass_over(last)
            return
        columns = decode(batch, columns=ALL & ~Column.VALUES)
        if last < machine.end:
            self._intake.remember(columns)
            return
        if self._intake.is_plain(columns):
            if header.base_offset > machine.end:
                self._pass_over(header.base_offset - 1)
            machine.arrive_run(machine.end, last)
            return
        for arrival in self._intake.arrivals(columns):
            offset = arrival if isinstance(arrival, int) else arrival.offset
            if offset < machine.end:
                continue
            if offset > machine.end:
                self._pass_over(offset - 1)
            if isinstance(arrival, int):
                self._pass_over(offset)
            else:
                machine.arrive((arrival,))
        if machine.end <= last:
            self._pass_over(last)
        if self._intake.has_ids and not machine.kept.has_ids:
            self._take_in(Outcome(machine.note_ids()), None)

    def _pass_over(self, last: int) -> None:
        self._take_in(Outcome(self.machine.pass_over(last)), None)

    # -- serving ----------------------------------------------------------------------------

    def _serve(self) -> None:
        """Gives what is ready to those who wait, the longest waiting first."""
        now_ms = self.time.now_ms()
        machine = self.machine
        self._take_in(machine.tick(now_ms), None)
        while self._takers and not self.is_closed:
            ready = machine.ready_count
            if not ready:
                break
            taker = next(iter(self._takers))
            room = taker.room(self)
            if room > 0:
                share = max(1, -(-ready // len(self._takers)))
                outcome = machine.acquire(
                    taker.member,
                    min(room, share),
                    now_ms,
                    lock_ms=taker.lock_ms,
                    one_priority=True,
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

    # -- keeping ----------------------------------------------------------------------------

    def _take_in(self, outcome: Outcome, told: Told | None) -> None:
        """Has a decision's operations kept at the end of this turn."""
        self._ops += outcome.ops
        self._has_letters = self._has_letters or bool(outcome.letters)
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
        has_letters, self._has_letters = self._has_letters, False
        try:
            kept = self._keep(ops)
        except Refused as refused:
            self._told = told
            self.close(refused)
            return
        kept.add_done_callback(lambda done: self._was_kept(done, told, has_letters))
        self._feed_soon()  # There may be room again.

    def _keep(self, ops: list[Op]) -> "asyncio.Future[int]":
        loaded = self._loaded
        is_due = loaded.delta_bytes >= max(SNAPSHOT_BYTES_MIN, loaded.snapshot_bytes)
        if is_due or loaded.deltas >= DELTAS_MAX:
            # It includes what was just decided, so it stands for this turn's delta as well.
            payload = state.encode_snapshot(self.machine.kept.snapshot())
            loaded.deltas = loaded.delta_bytes = 0
            loaded.snapshot_bytes = len(payload)
            return self._keeper.write(self.key, self.leader_epoch, loaded.number, payload, True)
        payload = state.encode_ops(ops)
        loaded.number += 1
        loaded.deltas += 1
        loaded.delta_bytes += len(payload)
        return self._keeper.write(self.key, self.leader_epoch, loaded.number, payload, False)

    def _was_kept(self, done: "asyncio.Future[int]", told: list[Told], has_letters: bool) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            why = error if isinstance(error, Refused) else Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            for tell in told:
                tell(why)
            self.close(why)
            return
        for tell in told:
            tell(None)
        if has_letters and not self.is_closed:
            self._bury(self)

    def close(self, why: Refused) -> None:
        """Serves no longer; whoever waits is told why."""
        if self.is_closed:
            return
        self.is_closed = True
        self.partition.unwatch(self._progress)
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
        told, self._told = self._told, []
        for tell in told:
            tell(why)
        takers, self._takers = self._takers, {}
        for taker in takers:
            taker.turned_away(self, why)
        self._closed(self)


def _is_aborted(header: BatchHeader, aborted: list[AbortedTxn]) -> bool:
    return is_transactional(header.attributes) and any(
        txn.producer_id == header.producer_id
        and txn.first_offset <= header.base_offset <= txn.last_offset
        for txn in aborted
    )


def _hand_over(queue: Queue, taker: Taker, leases: tuple[Lease, ...]) -> Told:
    return lambda refused: taker.kept(queue, leases, refused)
