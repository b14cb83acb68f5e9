"""Looks into queues that are led here, and puts them right: for tools, metrics and retention.

Looking has no effect: a queue that is not open stays closed, and its state is read. Finishing
records goes through the open machine like an answer to a lease, and is kept before it is answered.
Offering records again is done to the state of a closed queue; it opens anew with them.

The letters of a topic of dead letters are seen to by a share group of their own, `DEAD_LETTERS`,
that nobody has to join: a letter that was redriven or purged is finished there. Where nothing is
kept of it yet, no letter is.

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
    """The first record that is not finished; -1: nothing is kept of the queue."""
    is_open: bool = False
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    given_up: int = 0
    unfinished: int = 0
    oldest_ms: int = NO_TIME
    """When the first unfinished record was written; -1: there is none."""
    runs: Sequence[Run] = ()
    next_offset: int = NO_OFFSET
    """Where to go on, if not all runs are here."""
    ready_by_priority: Sequence[int] = ()
    """Of an open queue."""


async def inspect(
    queues: QueueCoordinator, key: QueueKey, from_offset: int = 0, runs_max: int = 0
) -> Inspection:
    """How a queue stands, whether it is open or not."""
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
    """What is kept, as far as the log still has it: a queue that is closed has not noticed."""
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
    """Finishes records, leased or not; answers how many were not before."""
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
        raise Refused(ErrorCode.INVALID_REQUEST, f"more than {RUNS_MAX} runs")
    for first, last in runs:
        if not 0 <= first <= last:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{first} to {last} is no run of offsets")
        if last >= partition.high_watermark:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {last} is not below the end, {partition.high_watermark}",
            )


async def offer_again(
    queues: QueueCoordinator, key: QueueKey, runs: Sequence[tuple[int, int]]
) -> int:
    """Finished records become available again, as if new; answers how many were finished.

    Records that the log no longer has stay finished; those that are held stay held.
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
