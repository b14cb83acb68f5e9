"""Persisted delivery state of a queue: finished records, leases, failures.

Every change is an operation, a small value that `QueueState.apply` applies to the state, live and
in replay alike; a snapshot is the whole state in one value. What the log contains (priorities,
delays, keys) is not persisted.

Invariants: finished offsets, leases, and archived ones are disjoint and not below `start`; `start`
is the first offset that is not finished; leases do not overlap.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from penstock.base.append_times import AppendTimes
from penstock.state.queues.intervals import IntervalSet

V = TypeVar("V")

ERROR_TEXT_MAX = 512
"""Maximum characters of an error's name and of its message."""
TRACEBACK_MAX = 4_096
"""Maximum characters of a failure's traceback."""
TRACEBACKS_MAX = 256 * 1024
"""Maximum characters of all tracebacks of a queue; beyond it, dead letters have none."""

LOCK_MS_MAX = 12 * 3_600_000
"""Maximum lease that a gateway grants."""


class LeaseState(msgspec.Struct, array_like=True, frozen=True):
    first: int
    last: int
    member: str
    deadline_ms: int
    delivery_count: int
    lock_ms: int = 0
    """Length of the lease when it was granted or renewed; 0: written by an older version."""


class DeliveryFailure(msgspec.Struct, array_like=True, frozen=True):
    """Failure of a record's deliveries."""

    delivery_count: int
    not_before_ms: int
    first_ms: int
    last_ms: int
    error_class: str = ""
    error_message: str = ""
    traceback: str = ""
    """Only while the record is archived; older versions ignore it."""


class DeadLetterBatch(msgspec.Struct, array_like=True, frozen=True):
    """Destination of the copies of dead-lettered records, and the batch being written.

    The batch is written by an idempotent producer, with a sequence that is persisted before it is
    written: writing it again, after any crash, leaves one copy of it.
    """

    producer_id: int
    topic_id: bytes
    partition: int
    sequence: int
    """Sequence of the first record of the batch, or of the next one."""
    offsets: tuple[int, ...] = ()
    """Offsets in the batch, in order; empty: no batch is being written."""
    at_ms: int = 0


class _Op(msgspec.Struct, array_like=True, frozen=True):
    pass


class LeasedRange(_Op, frozen=True, tag="l"):
    leases: tuple[LeaseState, ...]


class Renewed(_Op, frozen=True, tag="n"):
    first: int
    last: int
    deadline_ms: int
    lock_ms: int = 0


class Finished(_Op, frozen=True, tag="f"):
    first: int
    last: int


class Released(_Op, frozen=True, tag="r"):
    """Leased records become available again, no sooner than their failure allows."""

    first: int
    last: int
    failure: DeliveryFailure


class ArchivedRecord(_Op, frozen=True, tag="a"):
    """A record is archived: it is copied to the dead-letter topic, then finished."""

    offset: int
    failure: DeliveryFailure


class Returned(_Op, frozen=True, tag="t"):
    """Leased records never reached their member: as if they had not been leased."""

    first: int
    last: int


class DeadLettersPlanned(_Op, frozen=True, tag="p"):
    """The next batch of copies to the dead-letter topic, before it is written."""

    dead_letter_batch: DeadLetterBatch


class DeadLettersWritten(_Op, frozen=True, tag="b"):
    """The planned batch is written: its records are finished."""


class DedupMarker(_Op, frozen=True, tag="i"):
    """Some record has a deduplication id: a reader that starts later must load earlier ids."""


class Moved(_Op, frozen=True, tag="s"):
    """Everything below `start` is finished, by an administrator or because the log lost it.

    With `appended` it is a note that leaves the start where it is: nothing from that offset on was
    appended before `appended_ms`, by the leader's clock. Older versions ignore both.
    """

    start: int
    appended: int = -1
    appended_ms: int = 0


class Reset(_Op, frozen=True, tag="z"):
    """Restart at `start`: drops everything but records on their way to the dead-letter topic."""

    start: int


Op: TypeAlias = (
    LeasedRange
    | Renewed
    | Finished
    | Released
    | ArchivedRecord
    | Returned
    | DeadLettersPlanned
    | DeadLettersWritten
    | DedupMarker
    | Moved
    | Reset
)


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    start: int
    finished: bytes = b""
    """Packed runs of offsets: there may be very many."""
    leases: tuple[LeaseState, ...] = ()
    failures: tuple[tuple[int, DeliveryFailure], ...] = ()
    archived: tuple[tuple[int, DeliveryFailure], ...] = ()
    dead_letter_batch: DeadLetterBatch | None = None
    has_ids: bool = False
    appended: tuple[tuple[int, int], ...] = ()
    """Append times by offset; see `Moved`."""


_encoder = msgspec.msgpack.Encoder()
_ops = msgspec.msgpack.Decoder(tuple[Op, ...])
_snapshots = msgspec.msgpack.Decoder(Snapshot)


def encode_ops(ops: Sequence[Op]) -> bytes:
    return _encoder.encode(ops)


def decode_ops(data: bytes) -> tuple[Op, ...]:
    return _ops.decode(data)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return _encoder.encode(snapshot)


def decode_snapshot(data: bytes) -> Snapshot:
    return _snapshots.decode(data)


def restarted(snapshot: Snapshot, start: int) -> Snapshot:
    """Snapshot of the same queue restarted at `start`: archived records stay archived."""
    return Snapshot(
        start,
        archived=snapshot.archived,
        dead_letter_batch=snapshot.dead_letter_batch,
        has_ids=snapshot.has_ids,
        appended=snapshot.appended,
    )


class QueueState:
    """Durable state of one queue partition."""

    __slots__ = (
        "_firsts",
        "append_times",
        "archived",
        "dead_letter_batch",
        "failures",
        "finished",
        "has_ids",
        "leased",
        "leases",
        "start",
        "traceback_chars",
    )

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._begin(snapshot if snapshot is not None else Snapshot(0))

    def _begin(self, snapshot: Snapshot) -> None:
        self.start = snapshot.start
        self.finished = IntervalSet.unpacked(snapshot.finished)
        self.leases: dict[int, LeaseState] = {lease.first: lease for lease in snapshot.leases}
        self._firsts: list[int] = sorted(self.leases)
        self.leased = sum(lease.last - lease.first + 1 for lease in snapshot.leases)
        """Number of records in flight."""
        self.failures: dict[int, DeliveryFailure] = dict(snapshot.failures)
        self.archived: dict[int, DeliveryFailure] = dict(snapshot.archived)
        self.traceback_chars = sum(len(one.traceback) for one in self.archived.values())
        """Characters of all tracebacks."""
        self.dead_letter_batch = snapshot.dead_letter_batch
        self.has_ids = snapshot.has_ids
        self.append_times = AppendTimes(snapshot.appended)
        """Of records whose publisher's clock is behind, where relative times count from them."""

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.start,
            self.finished.packed(),
            tuple(self.leases[first] for first in self._firsts),
            tuple(sorted(self.failures.items())),
            tuple(sorted(self.archived.items())),
            self.dead_letter_batch,
            self.has_ids,
            self.append_times.entries(),
        )

    @property
    def entries(self) -> int:
        """Number of entries in memory."""
        return self.finished.runs + len(self.leases) + len(self.failures) + len(self.archived)

    def leases_within(self, first: int, last: int) -> Iterator[LeaseState]:
        """Leases that overlap a run, lowest first."""
        firsts = self._firsts
        at = max(bisect_right(firsts, first) - 1, 0)
        while at < len(firsts) and firsts[at] <= last:
            lease = self.leases[firsts[at]]
            if lease.last >= first:
                yield lease
            at += 1

    def is_settled(self, offset: int) -> bool:
        """True if the record is finished or archived: it will not be redelivered."""
        return (
            offset < self.start
            or (bool(self.finished) and offset in self.finished)
            or offset in self.archived
        )

    # Changes.

    def bound(self, now_ms: int) -> None:
        """Limits deadlines to what they would be from now on: the clock that set them may have been
        ahead of this leader's, or was set back since. Not persisted: each leader repeats it."""
        for first, lease in self.leases.items():
            latest_ms = now_ms + (lease.lock_ms or LOCK_MS_MAX)
            if lease.deadline_ms > latest_ms:
                self.leases[first] = msgspec.structs.replace(lease, deadline_ms=latest_ms)
        for offset, failure in self.failures.items():
            latest_ms = now_ms + max(failure.not_before_ms - failure.last_ms, 0)
            if failure.not_before_ms > latest_ms:
                self.failures[offset] = msgspec.structs.replace(failure, not_before_ms=latest_ms)

    def apply(self, op: Op) -> None:
        match op:
            case LeasedRange():
                for lease in op.leases:
                    self._put(lease)
            case Renewed():
                for lease in self._cut(op.first, op.last):
                    self._put(
                        LeaseState(
                            lease.first,
                            lease.last,
                            lease.member,
                            op.deadline_ms,
                            lease.delivery_count,
                            op.lock_ms,
                        )
                    )
            case Finished():
                self._cut(op.first, op.last)
                self._finish(op.first, op.last)
            case Released():
                self._cut(op.first, op.last)
                for offset in range(op.first, op.last + 1):
                    self.failures[offset] = op.failure
            case ArchivedRecord():
                self._cut(op.offset, op.offset)
                self.failures.pop(op.offset, None)
                self.archived[op.offset] = op.failure
                self.traceback_chars += len(op.failure.traceback)
            case Returned():
                self._cut(op.first, op.last)
            case DeadLettersPlanned():
                self.dead_letter_batch = op.dead_letter_batch
            case DeadLettersWritten():
                self._finish_batch()
            case DedupMarker():
                self.has_ids = True
            case Moved():
                self._move(op.start)
                if op.appended >= 0:
                    self.append_times.forget_below(self.start)
                    self.append_times.note(op.appended, op.appended_ms)
            case Reset():
                self._begin(restarted(self.snapshot(), op.start))

    def _put(self, lease: LeaseState) -> None:
        self.leases[lease.first] = lease
        if self._firsts and lease.first < self._firsts[-1]:
            insort(self._firsts, lease.first)
        else:
            self._firsts.append(lease.first)
        self.leased += lease.last - lease.first + 1
        # While a record is leased, its lease holds the delivery count.

    def _cut(self, first: int, last: int) -> list[LeaseState]:
        """Removes a run from the leases; returns the parts that were leased."""
        parts = []
        for lease in list(self.leases_within(first, last)):
            del self.leases[lease.first]
            del self._firsts[bisect_left(self._firsts, lease.first)]
            self.leased -= lease.last - lease.first + 1
            if lease.first < first:
                self._put(_part(lease, lease.first, first - 1))
            if lease.last > last:
                self._put(_part(lease, last + 1, lease.last))
            parts.append(_part(lease, max(first, lease.first), min(last, lease.last)))
        return parts

    def _finish_batch(self) -> None:
        batch = self.dead_letter_batch
        assert batch is not None
        for offset in batch.offsets:
            if offset in self.archived:
                self._finish(offset, offset)
        sequence = batch.sequence + len(batch.offsets)
        self.dead_letter_batch = DeadLetterBatch(
            batch.producer_id, batch.topic_id, batch.partition, sequence
        )

    def _finish(self, first: int, last: int) -> None:
        if self.failures:
            _forget(self.failures, first, last)
        if self.archived:
            gone = _forget(self.archived, first, last)
            self.traceback_chars -= sum(len(one.traceback) for one in gone)
        if last < self.start:
            return
        self.finished.add(max(first, self.start), last)
        if self.finished.first == self.start:
            run = self.finished.run_at(self.start)
            assert run is not None
            self.finished.remove(*run)
            self.start = run[1] + 1

    def _move(self, start: int) -> None:
        if start <= self.start:
            return
        self._cut(self.start, start - 1)
        self._finish(self.start, start - 1)


def _part(lease: LeaseState, first: int, last: int) -> LeaseState:
    return LeaseState(
        first, last, lease.member, lease.deadline_ms, lease.delivery_count, lease.lock_ms
    )


def _forget(table: dict[int, V], first: int, last: int) -> list[V]:
    """Drops and returns a run's entries, iterating over the shorter of the two."""
    offsets: Iterable[int] = range(first, last + 1)
    if last - first < len(table):
        offsets = [offset for offset in offsets if offset in table]
    else:
        offsets = [offset for offset in table if first <= offset <= last]
    return [table.pop(offset) for offset in offsets]
