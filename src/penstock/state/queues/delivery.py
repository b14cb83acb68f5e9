"""Delivery of one partition to one group: leases, acknowledgements, retries (KIP-932).

Pure: inputs are arriving records, requests of members, and the time. Outputs are operations to
persist (`delivery_state`), granted leases, and records to dead-letter. A call changes the state at
once; the host persists the operations and sends no reply before they are committed. If they cannot
be committed, the state machine is discarded and rebuilt.

A record is waiting (delayed, or behind others of its key), ready, leased, archived (its copy for
the dead-letter topic is being written) or finished. Ready records are kept by priority as runs of
offsets, so one unfinished record never delays another, and a backlog of millions costs nothing.

Rules: a higher priority goes first, then the lower offset. With order by key a record joins its
key's queue when it is due. Only the head of a key is delivered, alone or with its followers
(`with_followers`), and it stays the head while it waits for its retry. An expired lease counts as
a failure. After `deliveries_max` deliveries, on rejection, and after its expiry a record is
archived. Bounds: `policy.locks_max` in flight, `policy.entries_max` in memory (`is_full`: no
arrivals until there is capacity again).

Retention hold: the first offset that a log must keep for records that are or were delayed.
Retention counts from a record's timestamp, so a record with a longer delay would be deleted
before it is due. So the log keeps records while they are delayed, and for the retention time
after they came due. Coarse, and never too early: of the records that came due within one
`STEP_MS` the lowest offset is kept, and with more than `STEPS_MAX` steps two are merged.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.state.queues import delivery_state
from penstock.state.queues.backlog import Arrival, Backlog
from penstock.state.queues.delivery_state import (
    ERROR_TEXT_MAX,
    TRACEBACK_MAX,
    TRACEBACKS_MAX,
    ArchivedRecord,
    DeadLetterBatch,
    DeadLettersPlanned,
    DeadLettersWritten,
    DeliveryFailure,
    Finished,
    LeasedRange,
    LeaseState,
    Moved,
    Op,
    QueueState,
    Released,
    Renewed,
    Returned,
)
from penstock.state.queues.policy import PRIORITY_MAX, QueuePolicy

STEP_MS = 60_000
STEPS_MAX = 256


class Holding:
    __slots__ = ("_came",)

    def __init__(self) -> None:
        self._came: dict[int, int] = {}
        """Lowest offset that came due, by the end of its step; the earliest step first."""

    def came_due(self, offset: int, now_ms: int) -> None:
        came = self._came
        until_ms = (now_ms // STEP_MS + 1) * STEP_MS
        came[until_ms] = min(came.get(until_ms, offset), offset)
        if len(came) > STEPS_MAX:
            first, second = list(came)[:2]
            lowest = min(came.pop(first), came[second])
            came[second] = lowest

    def first(self, now_ms: int, retention_ms: int) -> int | None:
        """Lowest offset that came due within the last `retention_ms`; below 0: without limit."""
        if retention_ms >= 0:
            for until_ms in [one for one in self._came if now_ms - one > retention_ms]:
                del self._came[until_ms]
        return min(self._came.values(), default=None)


EXPIRED = "expired"
LEASE_RAN_OUT = "lease-expired"
REJECTED = "rejected"
ANSWERED_BEFORE = "they were answered before"
"""Reason in refusals: the records are finished, by this lease or by another."""


class DeadLetter(NamedTuple):
    """A record to dead-letter: it is copied before it counts as finished."""

    offset: int
    failure: DeliveryFailure


@dataclass(slots=True)
class DeliveryOutcome:
    """Result of a call: operations to persist, granted leases, records to dead-letter."""

    ops: list[Op] = field(default_factory=list)
    leases: tuple[LeaseState, ...] = ()
    dead_letters: list[DeadLetter] = field(default_factory=list)


class Delivery(Backlog):
    """Create it from the persisted state, then let records arrive from `kept.start` on."""

    def __init__(self, policy: QueuePolicy, kept: QueueState) -> None:
        super().__init__(policy, kept)
        self._holding = Holding()
        self._deadlines: list[tuple[int, int]] = []  # A heap: deadline, first offset of the lease.
        for lease in kept.leases.values():
            heapq.heappush(self._deadlines, (lease.deadline_ms, lease.first))

    # -- queries ----------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Time of the next `tick`; perhaps earlier than needed, never later."""
        times = [self._delays.next_ms(), self._expiries.next_ms()]
        if self._deadlines:
            times.append(self._deadlines[0][0])
        return min((time for time in times if time is not None), default=None)

    def dead_letters(self) -> list[DeadLetter]:
        """Archived records without a committed copy: after a replay they are copied (again)."""
        return [DeadLetter(*item) for item in sorted(self.kept.archived.items())]

    def kept_from(self, now_ms: int, retention_ms: int) -> int | None:
        """First offset that retention by age and size must keep: records from there on are delayed,
        or came due within the retention time."""
        offsets = [self._delays.first_offset(), self._holding.first(now_ms, retention_ms)]
        lowest = min((offset for offset in offsets if offset is not None), default=None)
        return None if lowest is None else max(lowest, self.kept.start)

    # -- leases -----------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        records_max: int,
        now_ms: int,
        *,
        lock_ms: int | None = None,
        one_priority: bool = False,
        with_followers: bool = False,
    ) -> DeliveryOutcome:
        """Leases up to `records_max` ready records to a member, for `lock_ms` or the policy's.

        `with_followers`: where there is an order, records right behind a head are leased with it.

        `one_priority`: leases no records of a lower priority; for members that receive records in
        log order, and would see the most important one last.
        """
        remaining = min(records_max, self.policy.locks_max - self.kept.leased)
        lock_ms = self.policy.lock_ms if lock_ms is None else lock_ms
        deadline_ms = now_ms + lock_ms
        leases: list[LeaseState] = []
        for priority in range(PRIORITY_MAX, -1, -1):
            for run in self._take_ready(priority, remaining, with_followers and self.is_ordered):
                remaining -= run[1] - run[0] + 1
                if priority:
                    for offset in range(run[0], run[1] + 1):
                        self._priorities[offset] = priority
                leases += self._leases_of(run, member, deadline_ms, lock_ms)
            if leases and one_priority:
                break
        outcome = DeliveryOutcome(leases=tuple(leases))
        if leases:
            self._keep(outcome.ops, LeasedRange(outcome.leases))
            for lease in leases:
                heapq.heappush(self._deadlines, (deadline_ms, lease.first))
        return outcome

    def _take_ready(
        self, priority: int, remaining: int, with_followers: bool
    ) -> Iterator[tuple[int, int]]:
        """Runs of ready records, at most `remaining` in all; the caller leases them at once."""
        ready = self._ready[priority]
        while remaining > 0 and (run := ready.take(1 if with_followers else remaining)) is not None:
            remaining -= run[1] - run[0] + 1
            yield run
            if not with_followers:
                continue
            for offset in self._key_queues.followers(self._key_of(run[0]), remaining):
                is_fit = self._priorities.get(offset, 0) == priority and self._is_waiting(offset)
                if not is_fit or offset in self._stale:
                    break
                remaining -= 1
                yield offset, offset

    def _leases_of(
        self, run: tuple[int, int], member: str, deadline_ms: int, lock_ms: int
    ) -> list[LeaseState]:
        """One lease for each run of records with the same delivery count."""
        failures = self.kept.failures
        first, last = run
        if not failures:
            return [LeaseState(first, last, member, deadline_ms, 1, lock_ms)]
        leases: list[LeaseState] = []
        start, count = first, _next_count(failures, first)
        for offset in range(first + 1, last + 1):
            other = _next_count(failures, offset)
            if other != count:
                leases.append(LeaseState(start, offset - 1, member, deadline_ms, count, lock_ms))
                start, count = offset, other
        leases.append(LeaseState(start, last, member, deadline_ms, count, lock_ms))
        return leases

    # -- acknowledgements -------------------------------------------------------------------

    def accept(self, member: str, first: int, last: int, now_ms: int) -> DeliveryOutcome:
        """Acknowledges the records."""
        self._require_held(member, first, last, now_ms)
        outcome = DeliveryOutcome()
        self._keep(outcome.ops, Finished(first, last))
        self._gone(first, last)
        self._watch_rest(last)
        return outcome

    def finish(self, member: str, first: int, last: int, now_ms: int) -> DeliveryOutcome:
        """Like `accept`, but also after the lease expired, as long as no other member got them."""
        is_held = any(lease.deadline_ms > now_ms for lease in self.kept.leases_within(first, last))
        if is_held or any(map(self.kept.is_settled, range(first, min(last, self.end) + 1))):
            return self.accept(member, first, last, now_ms)
        outcome = self.resolve(first, min(last, self.end - 1))
        # Records delivered by another leader may not have arrived here yet.
        for offset in [offset for offset in self.kept.failures if self.end <= offset <= last]:
            if offset >= first:
                self._keep(outcome.ops, Finished(offset, offset))
        return outcome

    def _has_arrived(self, offset: int) -> bool:
        """False for a record leased by another leader, until the log delivers it here.

        It becomes ready when it arrives, after its backoff if it has failed.
        """
        return offset < self.end

    def release(
        self,
        member: str,
        first: int,
        last: int,
        now_ms: int,
        *,
        delay_ms: int | None = None,
        is_patient: bool = False,
        error_class: str = "",
        error_message: str = "",
        traceback: str = "",
    ) -> DeliveryOutcome:
        """Releases records for a retry, after `delay_ms` or the policy's backoff.

        `is_patient`: the member requests that backoff.
        """
        held = self._require_held(member, first, last, now_ms)
        outcome = DeliveryOutcome()
        for lease in held:
            self._fail(
                outcome, lease, now_ms, delay_ms, is_patient, error_class, error_message, traceback
            )
        self._watch_rest(last)
        return outcome

    def reject(
        self,
        member: str,
        first: int,
        last: int,
        now_ms: int,
        *,
        error_class: str = REJECTED,
        error_message: str = "",
        traceback: str = "",
    ) -> DeliveryOutcome:
        """Rejects records: they are not retried."""
        held = self._require_held(member, first, last, now_ms)
        outcome = DeliveryOutcome()
        for lease in held:
            for offset in range(lease.first, lease.last + 1):
                failure = self._failure(
                    offset, lease.delivery_count, now_ms, 0, error_class, error_message
                )
                self._archive(outcome, offset, failure, traceback)
        self._watch_rest(last)
        return outcome

    def renew(
        self, member: str, first: int, last: int, now_ms: int, lock_ms: int | None = None
    ) -> DeliveryOutcome:
        """Renews the lease; `lock_ms` 0 ends it without a verdict."""
        held = self._require_held(member, first, last, now_ms)
        lock_ms = self.policy.lock_ms if lock_ms is None else lock_ms
        deadline_ms = now_ms + lock_ms
        outcome = DeliveryOutcome()
        self._keep(outcome.ops, Renewed(first, last, deadline_ms, max(lock_ms, 1)))
        for lease in held:
            heapq.heappush(self._deadlines, (deadline_ms, lease.first))
        self._watch_rest(last)
        return outcome

    def give_back(self, member: str, first: int, last: int, now_ms: int) -> DeliveryOutcome:
        """Returns records that never reached the member: ready at once, delivery not counted."""
        held = self._require_held(member, first, last, now_ms)
        outcome = DeliveryOutcome()
        self._keep(outcome.ops, Returned(first, last))
        for lease in held:
            for offset in range(lease.first, lease.last + 1):
                if offset in self._stale:
                    self._expire(outcome, offset, now_ms, lease.delivery_count - 1)
                elif self._has_arrived(offset):
                    self._make_ready_in_turn(offset, self._priorities.get(offset, 0))
        self._watch_rest(last)
        return outcome

    def release_member(self, member: str, now_ms: int) -> DeliveryOutcome:
        """Releases all records of a member that is gone; they count as delivered."""
        outcome = DeliveryOutcome()
        for lease in [held for held in self.kept.leases.values() if held.member == member]:
            self._fail(outcome, lease, now_ms, 0, False, "", "")
        return outcome

    def check_held(self, member: str, runs: Iterable[tuple[int, int]], now_ms: int) -> None:
        """Refuses unless the member holds leases on all runs: a request with several is atomic."""
        for first, last in runs:
            self._require_held(member, first, last, now_ms)

    def _require_held(self, member: str, first: int, last: int, now_ms: int) -> list[LeaseState]:
        """Leases of a run, cut to it; refuses unless the member holds all of it now."""
        held = []
        expected = first
        for lease in self.kept.leases_within(first, last):
            if lease.member != member or lease.deadline_ms <= now_ms or lease.first > expected:
                break
            expected = lease.last + 1
            held.append(
                LeaseState(
                    max(first, lease.first),
                    min(last, lease.last),
                    member,
                    lease.deadline_ms,
                    lease.delivery_count,
                )
            )
        if first > last or expected <= last:
            is_settled = first <= last and self.kept.is_settled(first)
            why = ANSWERED_BEFORE if is_settled else "the lease has expired"
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE,
                f"{member} holds no lease on offsets {first} to {last}: {why}",
            )
        return held

    def _watch_rest(self, last: int) -> None:
        """Tracks the rest of a lease that was cut after `last`: it has another first offset."""
        rest = self.kept.leases.get(last + 1)
        if rest is not None:
            heapq.heappush(self._deadlines, (rest.deadline_ms, rest.first))

    def _fail(
        self,
        outcome: DeliveryOutcome,
        lease: LeaseState,
        now_ms: int,
        delay_ms: int | None,
        is_patient: bool,
        error_class: str,
        error_message: str,
        traceback: str = "",
    ) -> None:
        """Handles a failed delivery: another retry, or archiving."""
        count = lease.delivery_count
        for offset in range(lease.first, lease.last + 1):
            if delay_ms is None:
                policy = self.policy
                due_ms = policy.retry_at_ms(offset, count, now_ms, is_patient=is_patient)
            else:
                due_ms = now_ms + delay_ms
            failure = self._failure(offset, count, now_ms, due_ms, error_class, error_message)
            if offset in self._stale:
                self._expire(outcome, offset, now_ms, count)
                continue
            if count >= self.policy.deliveries_max:
                self._archive(outcome, offset, failure, traceback)
                continue
            self._keep(outcome.ops, Released(offset, offset, failure))
            priority = self._priorities.get(offset, 0)
            if not self._has_arrived(offset):
                continue
            if due_ms > now_ms:
                self._await_retry(offset, priority)
            else:
                self._make_ready_in_turn(offset, priority)

    def _failure(
        self,
        offset: int,
        count: int,
        now_ms: int,
        not_before_ms: int,
        error_class: str,
        error_message: str,
    ) -> DeliveryFailure:
        before = self.kept.failures.get(offset)
        return DeliveryFailure(
            count,
            not_before_ms,
            before.first_ms if before is not None else now_ms,
            now_ms,
            error_class[:ERROR_TEXT_MAX],
            error_message[:ERROR_TEXT_MAX],
        )

    def _archive(
        self,
        outcome: DeliveryOutcome,
        offset: int,
        failure: DeliveryFailure,
        traceback: str = "",
    ) -> None:
        policy = self.policy
        if policy.dead_letters and (policy.dead_letter_expired or failure.error_class != EXPIRED):
            traceback = traceback[:TRACEBACK_MAX]
            if traceback and self.kept.traceback_chars + len(traceback) <= TRACEBACKS_MAX:
                failure = msgspec.structs.replace(failure, traceback=traceback)
            self._keep(outcome.ops, ArchivedRecord(offset, failure))
            outcome.dead_letters.append(DeadLetter(offset, failure))
        else:
            self._keep(outcome.ops, Finished(offset, offset))
        self._gone(offset, offset)

    # -- time -------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> DeliveryOutcome:
        """Handles what is due: retries and delays, expired leases, expired records."""
        outcome = DeliveryOutcome()
        for offset, _ in self._expiries.due(now_ms):
            self._is_over(outcome, offset, now_ms)
        for offset, priority in self._delays.due(now_ms):
            self._wake(offset, priority, now_ms)
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            deadline_ms, first = heapq.heappop(deadlines)
            # A lease may have been cut since: all due parts are near its first offset.
            for lease in list(self.kept.leases_within(first, first)):
                if lease.deadline_ms == deadline_ms:
                    self._run_out(outcome, lease, now_ms)
        return outcome

    def _run_out(self, outcome: DeliveryOutcome, lease: LeaseState, now_ms: int) -> None:
        self._fail(outcome, lease, now_ms, None, False, LEASE_RAN_OUT, "")

    def _wake(self, offset: int, priority: int, now_ms: int) -> None:
        kept = self.kept
        if kept.is_settled(offset):
            return
        failure = kept.failures.get(offset)
        if failure is None:
            self._holding.came_due(offset, now_ms)
            self._enter(offset, priority)
        elif failure.not_before_ms <= now_ms and not any(kept.leases_within(offset, offset)):
            self._retries.discard(offset)
            self._make_ready_in_turn(offset, priority)

    def _is_over(self, outcome: DeliveryOutcome, offset: int, now_ms: int) -> None:
        """Expires a record: now, or when its lease ends."""
        kept = self.kept
        if kept.is_settled(offset):
            return
        if any(kept.leases_within(offset, offset)):
            self._stale.add(offset)
            return
        for ready in self._ready:
            if ready.remove(offset, offset):
                break
        failure = kept.failures.get(offset)
        self._expire(outcome, offset, now_ms, failure.delivery_count if failure else 0)

    def _expire(self, outcome: DeliveryOutcome, offset: int, now_ms: int, count: int) -> None:
        self._archive(outcome, offset, self._failure(offset, count, now_ms, 0, EXPIRED, ""))

    # -- dead-lettered messages -------------------------------------------------------------

    def plan_dead_letters(self, batch: DeadLetterBatch) -> list[Op]:
        """Records the content of the next batch of copies, before it is written."""
        assert all(offset in self.kept.archived for offset in batch.offsets)
        ops: list[Op] = []
        self._keep(ops, DeadLettersPlanned(batch))
        return ops

    def finish_dead_letters(self) -> list[Op]:
        """Records that the planned batch is written."""
        ops: list[Op] = []
        self._keep(ops, DeadLettersWritten())
        return ops

    # -- administration ---------------------------------------------------------------------

    def resolve(self, first: int, last: int) -> DeliveryOutcome:
        """Finishes records on behalf of an administrator, even leased ones."""
        outcome = DeliveryOutcome()
        first = max(first, self.kept.start)
        for low, high in list(self.kept.finished.missing(first, last)):
            for ready in self._ready:
                ready.remove(low, high)
            self._keep(outcome.ops, Finished(low, high))
            self._gone(max(low, self._keys_start) if self.is_ordered else low, high)
            self._watch_rest(high)
        return outcome

    def move_start(self, start: int) -> list[Op]:
        """Finishes everything below `start`, which the log no longer has."""
        ops: list[Op] = []
        if start > self.kept.start:
            first = self.kept.start
            for ready in self._ready:
                ready.remove(first, start - 1)
            self._keep(ops, Moved(start))
            self._delays.forget_below(start)
            self._expiries.forget_below(start)
            if self.end < start:
                self.end = start
            elif self.is_ordered:
                self._gone(max(first, self._keys_start), start - 1)
        return ops


def _next_count(failures: dict[int, DeliveryFailure], offset: int) -> int:
    failure = failures.get(offset)
    return 1 if failure is None else failure.delivery_count + 1


__all__ = ["Arrival", "DeadLetter", "Delivery", "DeliveryOutcome", "delivery_state"]
