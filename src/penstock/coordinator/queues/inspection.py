"""Inspection and repair of queues that are led here: for tools, metrics and retention.

Inspection has no effect: a closed queue stays closed, and its state is read. Finishing records goes
through the open machine like an acknowledgement, and is persisted before it is answered. Offering
records again changes the state of a closed queue; it then opens with them.

The dead letters of a dead-letter topic are processed by a share group of their own, `DEAD_LETTERS`,
which has no members: a dead letter that was redriven or purged is finished there. Without a state
of that group, none is finished.

Bounds: `RUNS_MAX` runs in an answer and in a request.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Workers
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.coordinator.queues.policy import DEAD_LETTERS
from penstock.state.queues import delivery_state
from penstock.state.queues.delivery import Delivery, DeliveryOutcome
from penstock.state.queues.delivery_state import QueueState, Snapshot
from penstock.state.queues.inspection import Run, reoffered, unfinished_count, unfinished_runs
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.records import read_header

RUNS_MAX = 10_000
NO_OFFSET = -1
NO_TIME = -1


@dataclass(frozen=True, slots=True)
class Inspection:
    """One queue partition at one moment."""

    log_start: int
    high_watermark: int
    start: int = NO_OFFSET
    """First unfinished record; -1: the queue has no state."""
    is_open: bool = False
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    given_up: int = 0
    unfinished: int = 0
    oldest_ms: int = NO_TIME
    """Timestamp of the first unfinished record; -1: there is none."""
    runs: Sequence[Run] = ()
    next_offset: int = NO_OFFSET
    """Offset to continue from, if not all runs are included."""
    ready_by_priority: Sequence[int] = ()
    """Of an open queue."""


async def inspect(
    queues: QueueCoordinator, key: QueueKey, from_offset: int = 0, runs_max: int = 0
) -> Inspection:
    """Returns a queue's state, whether it is open or closed."""
    partition = queues.led_partition(key)
    queue = queues.find_quietly(key)
    if queue is not None:
        kept: QueueState | None = queue.machine.kept
    else:
        kept = await queues.look_up(key)
    files = partition.log
    end = partition.last_stable_offset if key.group == DEAD_LETTERS else partition.high_watermark
    if kept is None and key.group == DEAD_LETTERS:
        kept = QueueState(Snapshot(files.start_offset))
    if kept is None:
        return Inspection(files.start_offset, end)
    kept = _above(kept, files.start_offset)
    runs: list[Run] = []
    following: int | None = None
    if runs_max:
        runs, following = unfinished_runs(kept, from_offset, end, min(runs_max, RUNS_MAX))
    unfinished = unfinished_count(kept, end)
    in_flight = kept.leased + len(kept.archived)
    return Inspection(
        log_start=files.start_offset,
        high_watermark=end,
        start=kept.start,
        is_open=queue is not None,
        ready=queue.machine.ready_count if queue is not None else max(unfinished - in_flight, 0),
        leased=kept.leased,
        delayed=queue.machine.delayed_count if queue is not None else 0,
        given_up=len(kept.archived),
        unfinished=unfinished,
        oldest_ms=await written_ms(queues.around.workers, partition, kept.start)
        if unfinished
        else NO_TIME,
        runs=runs,
        next_offset=NO_OFFSET if following is None else following,
        ready_by_priority=queue.machine.ready_by_priority if queue is not None else (),
    )


def _above(kept: QueueState, log_start: int) -> QueueState:
    """Returns the stored state without records that the log has deleted: a closed queue has not
    seen that."""
    if kept.start >= log_start:
        return kept
    copy = QueueState(kept.snapshot())
    copy.apply(delivery_state.Moved(log_start))
    return copy


async def written_ms(workers: Workers, partition: Partition, offset: int) -> int:
    """The timestamp of the batch that holds a record."""
    files = partition.log
    if not files.start_offset <= offset < partition.high_watermark:
        return NO_TIME
    span = files.locate(offset, 1, partition.high_watermark)
    if span is None:
        return NO_TIME
    data = span.read_cached() or await workers.run(span.read)
    return read_header(data).base_timestamp if data else NO_TIME


# -- changing ---------------------------------------------------------------------------------


async def finish(queues: QueueCoordinator, key: QueueKey, runs: Sequence[tuple[int, int]]) -> int:
    """Finishes records, leased or not; returns how many were unfinished."""
    return await _resolve(queues, key, runs, lambda kept: True)


async def withdraw(queues: QueueCoordinator, key: QueueKey, runs: Sequence[tuple[int, int]]) -> int:
    """Finishes records if all of them still wait for their first delivery, else none of them."""

    def all_wait(kept: QueueState) -> bool:
        return all(_is_waiting(kept, first, last) for first, last in runs)

    return await _resolve(queues, key, runs, all_wait)


def _is_waiting(kept: QueueState, first: int, last: int) -> bool:
    touched = (offset for table in (kept.failures, kept.archived) for offset in table)
    return (
        first >= kept.start
        and list(kept.finished.missing(first, last)) == [(first, last)]
        and not any(kept.leases_within(first, last))
        and not any(first <= offset <= last for offset in touched)
    )


async def _resolve(
    queues: QueueCoordinator,
    key: QueueKey,
    runs: Sequence[tuple[int, int]],
    may: Callable[[QueueState], bool],
) -> int:
    _check_runs(queues.led_partition(key), runs)
    queue = queues.find(key) or await queues.open(key, creates=key.group == DEAD_LETTERS)
    before = _finished_before(queue.machine.kept)
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def decide(machine: Delivery, now_ms: int) -> DeliveryOutcome:
        outcome = DeliveryOutcome()
        for first, last in runs if may(machine.kept) else ():
            outcome.ops += machine.resolve(first, last).ops
        return outcome

    def kept(refused: Refused | None) -> None:
        if told.done():
            return
        if refused is None:
            told.set_result(None)
        else:
            told.set_exception(refused)

    queue.change(decide, kept)
    after = _finished_before(queue.machine.kept)
    await told
    return after - before


def _finished_before(kept: QueueState) -> int:
    return kept.start + len(kept.finished)


def _check_runs(partition: Partition, runs: Sequence[tuple[int, int]]) -> None:
    if len(runs) > RUNS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"too many offset ranges: send at most {RUNS_MAX} per request",
        )
    for first, last in runs:
        if not 0 <= first <= last:
            raise Refused(ErrorCode.INVALID_REQUEST, f"invalid offset range {first}..{last}")
        if last >= partition.high_watermark:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {last} is not committed: must be below {partition.high_watermark}",
            )


async def offer_again(
    queues: QueueCoordinator, key: QueueKey, runs: Sequence[tuple[int, int]]
) -> int:
    """Makes finished records available again, as if new; returns how many were finished.

    Records that the log has deleted stay finished; leased ones stay leased.
    """
    partition = queues.led_partition(key)
    _check_runs(partition, runs)
    changed = 0

    def reoffer(snapshot: Snapshot) -> Snapshot:
        nonlocal changed
        for first, last in runs:
            first = max(first, partition.log.start_offset)
            if first <= last:
                snapshot, count = reoffered(snapshot, first, last)
                changed += count
        return snapshot

    await queues.rewrite(key, reoffer)
    return changed
