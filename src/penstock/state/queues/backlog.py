"""Undelivered records of one queue partition, and their order.

A record is delayed (by a delay or a retry), or waits behind others of its key, or is ready. Ready
records are kept by priority as runs of offsets, so a backlog of millions costs nothing. Records
that were settled or leased before are known from `kept`: they arrive without becoming ready.

Owns everything that can be rebuilt from the log; persisted state is in `delivery_state`. Leases,
acknowledgements and time are handled by `delivery`, which is built on this.

Order by key: one record of each key at a time, the others wait in a FIFO queue behind it. A
member that wants several records of a key at a time gets the head and its followers at once.

The queue of a key is a single number while only its head is there, and an array from the second
offset on: most keys never have more. Keys are 64-bit hashes; two keys with the same hash wait for
each other, which costs time and never order.

Owns the queues, and nothing of what happens to a head: its owner calls `leave` when the record is
settled, and gets the next head.

Delayed offsets, ordered by due time: millions of them, in a few bytes each. Distant offsets are
in buckets of `SPAN_MS`, as plain arrays: about twenty bytes an offset. A bucket whose time is
near is spread over buckets of `BUCKET_MS`, and the nearest of those is a heap, which orders them
to the millisecond. So little is moved at a time, however many are due in one hour, and few
buckets are needed, however far the last one is. Cancelling is left to the owner of the offsets:
it ignores due times that no longer apply.

`tag` is a small number stored with an offset (0-15), so that its owner needs no table.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.state.queues.delivery_state import DedupMarker, Finished, Moved, Op, QueueState
from penstock.state.queues.intervals import IntervalSet
from penstock.state.queues.policy import PRIORITY_MAX, Order, QueuePolicy

BUCKET_MS = 1_000
SPAN_MS = 16 * BUCKET_MS
TAG_BITS = 4
TAG_MAX = (1 << TAG_BITS) - 1
_PLACE_BITS = 64 + TAG_BITS
_PLACE_MASK = (1 << _PLACE_BITS) - 1


class Delays:
    __slots__ = ("_buckets", "_count", "_near", "_near_until", "_spans")

    def __init__(self) -> None:
        self._near: list[int] = []  # A heap of what is due before `_near_until`, see `_near_one`.
        self._near_until = 0
        self._buckets = _Buckets(BUCKET_MS)
        self._spans = _Buckets(SPAN_MS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, offset: int, tag: int = 0) -> None:
        assert 0 <= tag <= TAG_MAX
        self._count += 1
        place = offset << TAG_BITS | tag
        if due_ms >= self._spans.open_from_ms:
            self._spans.add(due_ms, place)
        else:
            self._place(due_ms, place)

    def add_run(self, first: int, times: "array[int]") -> None:
        """Adds consecutive offsets from `first` on with their due times: `add` for very many."""
        open_from_ms, far = self._spans.open_from_ms, self._spans.add
        for offset, due_ms in enumerate(times, first):
            if due_ms >= open_from_ms:
                far(due_ms, offset << TAG_BITS)
            else:
                self._place(due_ms, offset << TAG_BITS)
        self._count += len(times)

    def next_ms(self) -> int | None:
        """Earliest time at which `due` may return something; never later than that."""
        if self._near:
            return self._near[0] >> _PLACE_BITS
        times = [time for time in (self._buckets.next_ms(), self._spans.next_ms()) if time >= 0]
        return min(times, default=None)

    def first_offset(self) -> int | None:
        """Lowest offset; scans all of them."""
        places = [one & _PLACE_MASK for one in self._near]
        lowest = [min(places, default=-1), self._buckets.first_place(), self._spans.first_place()]
        return min((place >> TAG_BITS for place in lowest if place >= 0), default=None)

    def forget_below(self, offset: int) -> None:
        """Drops offsets that the log no longer has."""
        first = offset << TAG_BITS
        self._near = [one for one in self._near if one & _PLACE_MASK >= first]
        heapq.heapify(self._near)
        kept = self._buckets.forget_below(first) + self._spans.forget_below(first)
        self._count = len(self._near) + kept

    def due(self, now_ms: int) -> list[tuple[int, int]]:
        """Removes and returns what is due at `now_ms`: offsets and tags, earliest first."""
        while (span := self._spans.pop(now_ms)) is not None:
            for at in range(0, len(span), 2):
                self._place(span[at], span[at + 1])
        while (bucket := self._buckets.pop(now_ms)) is not None:
            self._bring_near(bucket)
            self._near_until = max(self._near_until, self._buckets.open_from_ms)
        found = []
        near, limit = self._near, (now_ms + 1) << _PLACE_BITS
        while near and near[0] < limit:
            place = heapq.heappop(near) & _PLACE_MASK
            found.append((place >> TAG_BITS, place & TAG_MAX))
        self._count -= len(found)
        return found

    def _place(self, due_ms: int, place: int) -> None:
        if due_ms >= self._near_until:
            self._buckets.add(due_ms, place)
        else:
            heapq.heappush(self._near, _near_one(due_ms, place))

    def _bring_near(self, bucket: "array[int]") -> None:
        found = map(_near_one, bucket[::2], bucket[1::2])
        if self._near:
            for one in found:
                heapq.heappush(self._near, one)
        else:
            self._near = list(found)
            heapq.heapify(self._near)


def _near_one(due_ms: int, place: int) -> int:
    """Packs due time and place into one int: a third of a tuple's size, and fast to compare."""
    return due_ms << _PLACE_BITS | place


class _Buckets:
    """Pairs of due time and place in arrays, one for each time interval."""

    __slots__ = ("_order", "_table", "_width_ms", "open_from_ms")

    def __init__(self, width_ms: int) -> None:
        self._width_ms = width_ms
        self._table: dict[int, array[int]] = {}
        self._order: list[int] = []  # A heap of the buckets' numbers.
        self.open_from_ms = 0
        """End of the last bucket that was popped: earlier due times belong elsewhere."""

    def add(self, due_ms: int, place: int) -> None:
        number = due_ms // self._width_ms
        bucket = self._table.get(number)
        if bucket is None:
            bucket = self._table[number] = array("q")
            heapq.heappush(self._order, number)
        bucket.append(due_ms)
        bucket.append(place)

    def next_ms(self) -> int:
        """Start of the first bucket; below 0: there is none."""
        return self._order[0] * self._width_ms if self._order else -1

    def first_place(self) -> int:
        """Place with the lowest offset; below 0: there is none."""
        return min((min(bucket[1::2]) for bucket in self._table.values() if bucket), default=-1)

    def forget_below(self, first: int) -> int:
        """Forgets offsets below `first`; returns the number that are left."""
        left = 0
        for number, bucket in self._table.items():
            if bucket and min(bucket[1::2]) < first:
                pairs = zip(bucket[::2], bucket[1::2], strict=True)
                flat = [part for pair in pairs if pair[1] >= first for part in pair]
                bucket = self._table[number] = array("q", flat)
            left += len(bucket) // 2
        return left

    def pop(self, now_ms: int) -> "array[int] | None":
        """Removes and returns the first bucket, if its time has come."""
        if not self._order or self._order[0] * self._width_ms > now_ms:
            return None
        number = heapq.heappop(self._order)
        self.open_from_ms = max(self.open_from_ms, (number + 1) * self._width_ms)
        return self._table.pop(number)


class KeyQueues:
    __slots__ = ("_count", "_queues")

    def __init__(self) -> None:
        self._queues: dict[int, int | array[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Number of queued offsets, heads included."""
        return self._count

    def join(self, key: int, offset: int) -> bool:
        """Adds an offset to its key's queue; True if it is the head."""
        queue = self._queues.get(key)
        self._count += 1
        if queue is None:
            self._queues[key] = offset
            return True
        if isinstance(queue, int):
            queue = self._queues[key] = array("q", (queue,))
        # Usually the highest offset; only delayed records come later than their offset says.
        queue.append(offset)
        return False

    def is_head(self, key: int, offset: int) -> bool:
        queue = self._queues.get(key)
        return queue is not None and (queue if isinstance(queue, int) else queue[0]) == offset

    def followers(self, key: int, count: int) -> "array[int]":
        """Offsets behind the head of a key, at most `count`."""
        queue = self._queues.get(key)
        return array("q") if queue is None or isinstance(queue, int) else queue[1 : count + 1]

    def leave(self, key: int, offset: int) -> int | None:
        """Removes an offset; returns the new head of its key, if it changed."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        if isinstance(queue, int):
            if queue == offset:
                del self._queues[key]
                self._count -= 1
            return None
        try:
            at = queue.index(offset)
        except ValueError:
            return None
        del queue[at]
        self._count -= 1
        head = queue[0]
        if len(queue) == 1:
            self._queues[key] = head
        return head if at == 0 else None


ONE_LINE = 0
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
        self._keys.append(arrival.key if self.policy.order is Order.KEY else ONE_LINE)

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
