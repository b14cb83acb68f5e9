"""Reads leased records from the log: as batches to send, or one by one.

A batch is sent whole, even if some of its records are not leased; the client takes its leased ones
and skips the rest. For a batch with few leased records among many, as delays and retries leave
them, a batch of those few is built: else every record would bring its neighbors along, each time.
Batches without leased records are left out.

Bounds: `bytes_max`, though never less than one batch. Leases that did not fit are returned too, so
that they can be released. For callers that decode records, batches are decompressed by a worker,
and the limit is on their decompressed bytes: a small batch may hold a thousand times as much.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from penstock.base.ports import Workers
from penstock.cluster.replication.partition import Partition
from penstock.state.queues.delivery_state import LeaseState
from penstock.wire.records import (
    ALL,
    APPEND_TIME,
    BatchHeader,
    Record,
    batches,
    decode,
    encode,
    is_compressed,
    is_control,
    unpacked,
)

CHUNK_BYTES_MIN = 16 * 1024
CHUNK_BYTES_MAX = 4 << 20
RECORD_BYTES = 256
"""Assumed size of a record, for a first guess at how much to read."""
THIN = 4
"""A leased record among at least this many is sent without the rest of its batch."""


@dataclass(slots=True)
class LeasedBatches:
    """Batches of leases, and how far they reach."""

    parts: list[memoryview] = field(default_factory=list)
    size: int = 0
    leases: list[LeaseState] = field(default_factory=list)
    """Leases that are in `parts`, by offset."""
    left: list[LeaseState] = field(default_factory=list)
    """Leases that did not fit, or whose records are gone."""


async def read_leased(
    partition: Partition,
    workers: Workers,
    leases: Iterable[LeaseState],
    bytes_max: int,
    *,
    unpacks: bool = False,
) -> LeasedBatches:
    """Raises Corrupt, Refused or OSError if the log cannot be read."""
    wanted = _Wanted(sorted(leases, key=lambda lease: lease.first))
    found = LeasedBatches()
    files, limit = partition.log, partition.high_watermark
    while wanted.is_open and (not found.parts or found.size < bytes_max):
        offset = max(wanted.first, files.start_offset)
        remaining = max(bytes_max - found.size, 1)
        guess = min(max(wanted.count * RECORD_BYTES, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX, remaining)
        span = files.locate(offset, guess, limit)
        if span is None:
            break
        data = span.read_cached()
        if data is None:
            data = await workers.run(span.read)
        view = memoryview(data)
        if unpacks and is_compressed(view):
            has_more = await workers.run(_gather, view, wanted, found, bytes_max, unpacked)
        else:
            has_more = _gather(view, wanted, found, bytes_max)
        if not has_more:
            break
    found.leases, found.left = wanted.divided()
    return found


def _as_it_is(batch: memoryview) -> memoryview:
    return batch


def _gather(
    view: memoryview,
    wanted: "_Wanted",
    found: LeasedBatches,
    bytes_max: int,
    form: Callable[[memoryview], memoryview] = _as_it_is,
) -> bool:
    """Adds the wanted batches in `view`; False if reading on is useless."""
    has_moved = False
    for position, header in batches(view):
        wanted.reach(header.base_offset)
        if not wanted.is_open:
            return False
        if wanted.first > header.last_offset:
            if has_moved and wanted.first - header.last_offset > header.last_offset_delta + 1:
                return True  # Far ahead: skips what is in between.
            has_moved = True
            continue
        part = _part_of(form(view[position : position + header.size_bytes]), header, wanted)
        if found.parts and found.size + len(part) > bytes_max:
            return False
        if not is_control(header.attributes):
            found.parts.append(part)
            found.size += len(part)
        wanted.cover(header)
        has_moved = True
    return has_moved


def _part_of(batch: memoryview, header: BatchHeader, wanted: "_Wanted") -> memoryview:
    """Returns the batch, or a batch of its wanted records if those are few."""
    runs = wanted.within(header.last_offset)
    if header.count < THIN * sum(last - first + 1 for first, last in runs):
        return batch
    columns = decode(batch, columns=ALL)
    offsets = columns.offsets
    records = [
        columns.record(at)
        for first, last in runs
        for at in range(bisect_left(offsets, first), bisect_right(offsets, last))
    ]
    return memoryview(
        encode(
            records,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            attributes=header.attributes & APPEND_TIME,
            keep_offsets=True,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
        )
    )


class _Wanted:
    """Leases by offset, and how far they are covered."""

    def __init__(self, leases: list[LeaseState]) -> None:
        self._leases = leases
        self._at = 0
        self._from = leases[0].first if leases else 0
        self._covered: list[LeaseState] = []
        self._missing: list[LeaseState] = []

    @property
    def is_open(self) -> bool:
        return self._at < len(self._leases)

    @property
    def first(self) -> int:
        """Next wanted offset."""
        return self._from

    @property
    def count(self) -> int:
        """Number of wanted records in a row from there on."""
        return self._leases[self._at].last - self._from + 1

    def within(self, last: int) -> list[tuple[int, int]]:
        """Returns the wanted runs up to an offset."""
        runs = []
        first = self._from
        for lease in islice(self._leases, self._at, None):
            if lease.first > last:
                break
            runs.append((max(lease.first, first), min(lease.last, last)))
        return runs

    def reach(self, offset: int) -> None:
        """Skips records below `offset`, which are gone."""
        self._advance(offset - 1, self._missing)

    def cover(self, header: BatchHeader) -> None:
        self._advance(header.last_offset, self._covered)

    def _advance(self, last: int, into: list[LeaseState]) -> None:
        while self.is_open and self._from <= last:
            lease = self._leases[self._at]
            until = min(lease.last, last)
            into.append(_part(lease, self._from, until))
            if until < lease.last:
                self._from = until + 1
                return
            self._at += 1
            if self.is_open:
                self._from = self._leases[self._at].first

    def divided(self) -> tuple[list[LeaseState], list[LeaseState]]:
        """Returns covered and uncovered leases."""
        left = self._missing
        if self.is_open:
            left.append(_part(self._leases[self._at], self._from, self._leases[self._at].last))
            left += self._leases[self._at + 1 :]
        return _merged(self._covered), left


def _part(lease: LeaseState, first: int, last: int) -> LeaseState:
    if first == lease.first and last == lease.last:
        return lease
    return LeaseState(first, last, lease.member, lease.deadline_ms, lease.delivery_count)


def _merged(leases: list[LeaseState]) -> list[LeaseState]:
    """Merges adjacent leases that were split at the ends of batches."""
    merged: list[LeaseState] = []
    for lease in leases:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.last + 1 == lease.first
            and last.delivery_count == lease.delivery_count
        ):
            merged[-1] = LeaseState(
                last.first, lease.last, last.member, last.deadline_ms, last.delivery_count
            )
        else:
            merged.append(lease)
    return merged


def records_of(leased: LeasedBatches) -> Iterator[tuple[Record, int]]:
    """Yields leased records, each with its delivery count, by offset."""
    for record, lease in leased_records(leased):
        yield record, lease.delivery_count


def leased_records(leased: LeasedBatches) -> Iterator[tuple[Record, LeaseState]]:
    """Yields leased records, each with its lease, by offset.

    If one record of a batch is leased, only that one is decoded.
    """
    leases = iter(leased.leases)
    lease = next(leases, None)
    for part in leased.parts:
        columns = decode(part, columns=ALL)
        offsets = columns.offsets
        at = 0
        while lease is not None and at < len(offsets):
            at = bisect_left(offsets, lease.first, at)
            while at < len(offsets) and offsets[at] <= lease.last:
                yield columns.record(at), lease
                at += 1
            if lease.last > columns.header.last_offset:
                break  # The rest of it is in the next batch.
            lease = next(leases, None)
