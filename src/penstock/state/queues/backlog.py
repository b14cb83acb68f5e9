"""Undelivered records of one queue partition, and their order.

A record is delayed (by a delay or a retry), or waits behind others of its key, or is ready. Ready
records are kept by priority as runs of offsets, so a backlog of millions costs nothing. Records
that were settled or leased before are known from `kept`: they arrive without becoming ready.

Owns everything that can be rebuilt from the log; persisted state is in `delivery_state`. Leases,
acknowledgements and time are handled by `delivery`, which is built on this.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.state.queues.delayed_offsets import Delays
from penstock.state.queues.delivery_state import DedupMarker, Finished, Moved, Op, QueueState
from penstock.state.queues.intervals import IntervalSet
from penstock.state.queues.key_order import KeyQueues
from penstock.state.queues.policy import PRIORITY_MAX, Order, QueuePolicy

WHOLE_PARTITION = 0
"""Key of every record if the whole partition is ordered."""


class Arrival(NamedTuple):
    """A record with a relevant header or key."""

    offset: int
    priority: int = 0
    due_ms: int = 0
    expires_ms: int = 0
    key: int = 0
    """Hash of the key; only used with order by key."""


class Backlog:
    """Create it from the persisted state, then let records arrive from `kept.start` on."""

    def __init__(self, policy: QueuePolicy, kept: QueueState) -> None:
        self.policy = policy
        self.kept = kept
        self.end = kept.start
        """Next offset to arrive."""
        self._ready = [IntervalSet() for _ in range(PRIORITY_MAX + 1)]
        self._delays = Delays()  # Tagged with the priority.
        self._expiries = Delays()
        self._stale: set[int] = set()
        """Records that expired while leased: archived when their lease ends."""
        self._key_queues = KeyQueues()
        self._keys: array[int] = array("q")  # By offset from `_keys_start` on.
        self._keys_start = kept.start
        self._retries: set[int] = set()
        """Offsets that wait for their retry time, if there is an order."""
        self._priorities: dict[int, int] = {}
        """Non-zero priorities of records that are not ready; most are leased and may return."""

    # -- queries ----------------------------------------------------------------------------

    @property
    def ready_count(self) -> int:
        return sum(map(len, self._ready))

    @property
    def ready_by_priority(self) -> list[int]:
        return [len(ready) for ready in self._ready]

    @property
    def delayed_count(self) -> int:
        return len(self._delays)

    @property
    def is_full(self) -> bool:
        """True while no more records may arrive."""
        held = (
            self.kept.entries
            + len(self._delays)
            + len(self._expiries)
            + len(self._key_queues)
            + len(self._priorities)
            + sum(ready.runs for ready in self._ready)
        )
        return held >= self.policy.entries_max

    @property
    def is_ordered(self) -> bool:
        return self.policy.order is not Order.NONE

    # -- arrivals ---------------------------------------------------------------------------

    def arrive_run(self, first: int, last: int) -> None:
        """Adds records without relevant headers, if there is no order."""
        for low, high in self._admit_run(first, last):
            self._ready[0].add(low, high)

    def arrive_timed(self, first: int, times: "array[int]") -> None:
        """Adds records with their due times, if there is no order; below 1: due at once."""
        is_all = min(times, default=0) > 0
        for low, high in self._admit_run(first, first + len(times) - 1):
            some = times[low - first : high - first + 1]
            if is_all:
                self._delays.add_run(low, some)
                continue
            for offset, due_ms in enumerate(some, low):
                if due_ms > 0:
                    self._delays.add(due_ms, offset)
                else:
                    self._ready[0].add(offset, offset)

    def _admit_run(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Lets a run arrive; returns the parts of it that have no state yet."""
        assert not self.is_ordered
        assert first >= self.end
        self.end = last + 1
        kept = self.kept
        first = max(first, kept.start)  # It may have moved since records began to arrive.
        if first > last or not kept.entries:
            return iter([(first, last)] if first <= last else ())
        busy = IntervalSet()
        for lease in kept.leases_within(first, last):
            busy.add(lease.first, lease.last)
        failed = sorted(offset for offset in kept.failures if first <= offset <= last)
        for offset in failed:
            busy.add(offset, offset)
            self._await_retry(offset, 0)
        for offset in sorted(offset for offset in kept.archived if first <= offset <= last):
            busy.add(offset, offset)
        free = kept.finished.missing(first, last)
        return (part for run in free for part in busy.missing(*run)) if busy else free

    def arrive(self, arrivals: Iterable[Arrival]) -> None:
        """Adds records one by one, in log order."""
        is_ordered = self.is_ordered
        for arrival in arrivals:
            assert arrival.offset >= self.end
            if is_ordered:
                self._note_key(arrival)
            self.end = arrival.offset + 1
            self._admit(arrival)

    def pass_over(self, last: int) -> list[Op]:
        """Finishes everything up to `last` unseen: markers, aborted or duplicate records."""
        first, self.end = self.end, last + 1
        ops: list[Op] = []
        if last >= self.kept.start:
            for low, high in list(self.kept.finished.missing(max(first, self.kept.start), last)):
                self._keep(ops, Finished(low, high))
        return ops

    def note_ids(self) -> list[Op]:
        """Records once that some record has a deduplication id."""
        ops: list[Op] = []
        if not self.kept.has_ids:
            self._keep(ops, DedupMarker())
        return ops

    def note_append(self, offset: int, since_ms: int) -> list[Op]:
        """Records that nothing from `offset` on was appended before `since_ms`, unless a note
        less than a step older says so: the next leader has only the records' timestamps."""
        ops: list[Op] = []
        if self.kept.append_times.is_news(offset, since_ms):
            self._keep(ops, Moved(self.kept.start, offset, since_ms))
        return ops

    def _note_key(self, arrival: Arrival) -> None:
        if not self._keys:
            self._keys_start = arrival.offset
        gap = arrival.offset - self._keys_start - len(self._keys)
        if gap:
            self._keys.extend([0] * gap)
        self._keys.append(arrival.key if self.policy.order is Order.KEY else WHOLE_PARTITION)

    def _admit(self, arrival: Arrival) -> None:
        kept, offset = self.kept, arrival.offset
        if kept.is_settled(offset):
            return
        if arrival.priority:
            self._priorities[offset] = arrival.priority
        if arrival.expires_ms:
            self._expiries.add(arrival.expires_ms, offset)
        if kept.leases and any(kept.leases_within(offset, offset)):
            self._join_key_queue(offset)  # Delivered before: it is the head of its key.
        elif offset in kept.failures:
            self._join_key_queue(offset)
            self._await_retry(offset, arrival.priority)
        elif arrival.due_ms > 0:
            self._delays.add(arrival.due_ms, offset, arrival.priority)
        else:
            self._enter(offset, arrival.priority)

    def _enter(self, offset: int, priority: int) -> None:
        """Makes a due record ready, unless others of its key are before it."""
        if not self.is_ordered or self._join_key_queue(offset):
            self._make_ready(offset, priority)

    def _make_ready(self, offset: int, priority: int) -> None:
        self._priorities.pop(offset, None)
        self._ready[priority].add(offset, offset)

    def _make_ready_in_turn(self, offset: int, priority: int) -> None:
        """Makes a formerly leased record ready, unless others of its key are before it."""
        if not self.is_ordered or self._key_queues.is_head(self._key_of(offset), offset):
            self._make_ready(offset, priority)
        elif priority:
            self._priorities[offset] = priority

    def _join_key_queue(self, offset: int) -> bool:
        return self.is_ordered and self._key_queues.join(self._key_of(offset), offset)

    def _key_of(self, offset: int) -> int:
        return self._keys[offset - self._keys_start]

    def _await_retry(self, offset: int, priority: int) -> None:
        if priority:
            self._priorities[offset] = priority
        if self.is_ordered:
            self._retries.add(offset)
        self._delays.add(self.kept.failures[offset].not_before_ms, offset, priority)

    # -- removals ---------------------------------------------------------------------------

    def _gone(self, first: int, last: int) -> None:
        """Removes records for good; the next records of their keys become ready."""
        if self._priorities or self._stale or self._retries:
            for offset in range(first, last + 1):
                self._priorities.pop(offset, None)
                self._stale.discard(offset)
                self._retries.discard(offset)
        if not self.is_ordered:
            return
        for offset in range(first, min(last + 1, self._keys_start + len(self._keys))):
            following = self._key_queues.leave(self._key_of(offset), offset)
            if following is not None and self._is_waiting(following):
                self._make_ready(following, self._priorities.get(following, 0))
        self._trim_keys()

    def _is_waiting(self, offset: int) -> bool:
        """True if the record could be delivered if it were the head of its key."""
        kept = self.kept
        return not (
            kept.is_settled(offset)
            or offset in self._retries
            or any(kept.leases_within(offset, offset))
        )

    def _trim_keys(self) -> None:
        unused = min(self.kept.start, self.end) - self._keys_start
        if unused > 4096 and unused * 2 > len(self._keys):  # In chunks, to move it rarely.
            del self._keys[:unused]
            self._keys_start += unused

    def _keep(self, ops: list[Op], op: Op) -> None:
        self.kept.apply(op)
        ops.append(op)
