"""Inspection of a queue partition, and redelivery of finished records by an administrator.

`unfinished_runs` returns the records that are not finished, neighbours in one state as one run.
`reoffered` reverses acknowledgements: finished records become as if never delivered.

Pure functions on the persisted state (`delivery_state`). Delays are not persisted, so a delayed
record shows as waiting.
"""

from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

import msgspec

from penstock.state.queues.delivery_state import QueueState, Snapshot
from penstock.state.queues.intervals import IntervalSet


class RunState(IntEnum):
    WAITING = 0
    LEASED = 1
    FAILED = 2
    """Delivery failed; a retry is due, or will be."""
    GIVEN_UP = 3
    """Its copy is being written to the dead-letter topic."""


class Run(NamedTuple):
    first: int
    last: int
    state: RunState
    delivery_count: int = 0
    until_ms: int = -1
    member: str = ""


def unfinished_count(kept: QueueState, end: int) -> int:
    """Number of unfinished records below `end`; no record above it may be finished."""
    return max(max(end, kept.start) - kept.start - len(kept.finished), 0)


def unfinished_runs(
    kept: QueueState, start: int, end: int, runs_max: int
) -> tuple[list[Run], int | None]:
    """Runs from `start` up to `end`, exclusive; and the offset to continue at if there are more."""
    found = list(islice(_runs(kept, max(start, kept.start), end), runs_max + 1))
    if len(found) <= runs_max:
        return found, None
    return found[:runs_max], found[runs_max].first


def _runs(kept: QueueState, start: int, end: int) -> Iterator[Run]:
    marked = _marked(kept, start, end)
    at = 0
    for first, last in kept.finished.missing(start, end - 1):
        special = [
            Run(
                max(lease.first, first),
                min(lease.last, last),
                RunState.LEASED,
                lease.delivery_count,
                lease.deadline_ms,
                lease.member,
            )
            for lease in kept.leases_within(first, last)
        ]
        held = IntervalSet()
        for run in special:
            held.add(run.first, run.last)
        while at < len(marked) and marked[at].first <= last:
            # While a record is leased, the lease has newer information than the failure.
            if marked[at].first >= first and marked[at].first not in held:
                special.append(marked[at])
            at += 1
        position = first
        for run in sorted(special):
            if run.first > position:
                yield Run(position, run.first - 1, RunState.WAITING)
            yield run
            position = run.last + 1
        if position <= last:
            yield Run(position, last, RunState.WAITING)


def _marked(kept: QueueState, start: int, end: int) -> list[Run]:
    """Records that failed or are being dead-lettered, lowest first."""
    marked = []
    for state, table in ((RunState.FAILED, kept.failures), (RunState.GIVEN_UP, kept.archived)):
        for offset, failure in table.items():
            if start <= offset < end:
                due_ms = failure.not_before_ms if state is RunState.FAILED else -1
                marked.append(Run(offset, offset, state, failure.delivery_count, due_ms))
    return sorted(marked)


def reoffered(snapshot: Snapshot, first: int, last: int) -> tuple[Snapshot, int]:
    """Snapshot with these records not finished, and the number that were finished before."""
    finished = IntervalSet.unpacked(snapshot.finished)
    start = snapshot.start
    if first < start:
        finished.add(first, start - 1)
        start = first
    changed = finished.remove(first, last)
    if finished and finished.first == start:
        run = finished.run_at(start)
        assert run is not None
        finished.remove(*run)
        start = run[1] + 1
    return msgspec.structs.replace(snapshot, start=start, finished=finished.packed()), changed
