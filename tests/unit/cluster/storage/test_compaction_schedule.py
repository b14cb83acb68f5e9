"""`cluster.storage.compaction_schedule`: order of compactions, that they delay no request, and that
no other task works on the same segments meanwhile.
"""

import asyncio
import dataclasses
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.compaction_schedule import COMPACTIONS_MAX, RETRY_SECONDS_MAX
from penstock.log.cleanup.compaction_filter import KEYS_MAX
from penstock.log.log import Log
from simulation.disk import Fault
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.cluster.storage.test_housekeeping import (
    COMPACT,
    MINUTE,
    PATH,
    Bench,
    Kept,
    names,
    on_kept,
)
from tests.unit.log.building import read_all

BOTH = dataclasses.replace(COMPACT, cleanup_delete=True, retention_ms=-1, retention_bytes=1500)
LONG_S = (1000.0, 1000.0)


def on_bench(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    SimLoop(1).run(main())


def make_dirty(bench: Bench, *shares: float) -> None:
    """Lets every log look as if all but this share of it had been compacted."""
    for partition, share in zip(bench.partitions, shares, strict=True):
        partition.log.cleaned_offset = int(partition.log.end_offset * (1 - share))


def compacting(bench: Bench) -> list[int]:
    return [partition.index for partition in bench.partitions if partition.is_compacting]


def keys_in(log: Log) -> list[bytes]:
    """Of all records from the start of the log on."""
    return [record.key or b"" for record in read_all(log)]


def meanwhile(bench: Bench, what: Callable[[], Any]) -> list[int]:
    """Does it as soon as the worker of a compaction has touched the disk three times; the list
    grows with each time that it does so after that."""
    after: list[int] = []
    count = 0

    def note() -> None:
        nonlocal count
        if bench.cleaning_workers.is_working:
            count += 1
            if count == 3:
                what()
            elif count > 3:
                after.append(bench.disk.operations)

    bench.disk.on_operation = note
    return after


@run_with(on_bench)
async def test_compaction_never_touches_the_disk_on_the_event_loop() -> None:
    bench = Bench(COMPACT)
    await bench.fill(40)
    before = bench.log.size_bytes
    bench.watch()
    assert await bench.compact()
    await bench.flusher.drain()
    assert bench.on_loop == []
    assert bench.log.size_bytes < before / 2
    assert bench.log.offline is None
    assert not bench.log.held
    again = Log.open(bench.disk, PATH, COMPACT, bench.clock.now_ms())
    assert (again.offline, again.end_offset) == (None, 40)


@run_with(on_bench)
async def test_append_during_a_swap_is_acknowledged_after_it() -> None:
    bench = Bench(COMPACT)
    await bench.fill(40)
    await bench.compactor.run_round()
    while not bench.log.held:
        await asyncio.sleep(0.00005)
    bench.put(b"meanwhile")
    await bench.settle()
    await bench.flusher.drain()
    assert bench.compactor.compactions == 1
    assert bench.partition.high_watermark == bench.log.end_offset == 41


# -- which, and how many ----------------------------------------------------------------------


@run_with(on_bench)
async def test_dirtiest_log_is_compacted_first() -> None:
    bench = Bench(COMPACT, count=3, cleaning_s=LONG_S)
    await bench.fill(40)
    make_dirty(bench, 0.3, 0.9, 0.6)
    running = asyncio.ensure_future(bench.compactor.run())
    seen = []
    for _ in range(3):
        await asyncio.sleep(100)
        seen.append(compacting(bench))
        assert bench.compactor.waiting == 3 - len(seen)
        assert bench.compactor.longest_s > 50
        await asyncio.sleep(910)
    assert seen == [[1], [2], [0]]
    assert (bench.compactor.compactions, bench.compactor.running) == (3, 0)
    assert bench.compactor.longest_s == 0
    assert 0 < bench.compactor.last_ms <= bench.clock.now_ms()
    running.cancel()


@run_with(on_bench)
async def test_log_under_constant_writes_does_not_starve_another(
    *, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always_due(self: Partition) -> None:
        await asyncio.get_running_loop().create_future()

    bench = Bench(COMPACT, count=2)
    await bench.fill(40)
    monkeypatch.setattr(Partition, "flushed", always_due)
    running = asyncio.ensure_future(bench.compactor.run())
    await asyncio.sleep(100)
    assert (bench.compactor.compactions, bench.compactor.running) == (2, 0)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize(("threads", "at_once"), [("0", 0), ("2", 2), ("4", 4), ("100", 8)])
@run_with(on_bench)
async def test_concurrent_compactions_are_limited_by_the_config(
    *, threads: str, at_once: int
) -> None:
    assert COMPACTIONS_MAX == 8

    bench = Bench(COMPACT, count=10, cleaning_s=LONG_S, log_cleaner_threads=threads)
    await bench.fill(10)
    await bench.compactor.run_round()
    await bench.compactor.run_round()
    assert bench.compactor.running == len(compacting(bench)) == at_once
    assert bench.compactor.waiting == 10 - at_once
    await asyncio.sleep(1)
    assert len(bench.cleaning_workers.given) == at_once
    assert sum(plan.keys_max for plan in bench.cleaning_workers.given) <= KEYS_MAX


@run_with(on_bench)
async def test_failed_compaction_delays_no_other_log_and_is_retried_later() -> None:
    bench = Bench(COMPACT, count=3)
    await bench.fill(40)
    make_dirty(bench, 1.0, 0.9, 0.8)
    full = Fault("open", errno.ENOSPC, path="topic-0/", times=1_000_000)
    bench.disk.inject(full)
    running = asyncio.ensure_future(bench.compactor.run())
    await asyncio.sleep(1)
    assert [one.log.cleaned_offset == 40 for one in bench.partitions] == [False, True, True]
    await asyncio.sleep(3600)
    # After 15 seconds, then twice as late each time, in the end every ten minutes.
    assert 8 <= bench.compactor.failures <= 12
    assert bench.log.offline is None
    assert not bench.partition.is_compacting
    bench.disk.heal()
    await asyncio.sleep(RETRY_SECONDS_MAX + 20)
    assert bench.log.cleaned_offset == 40
    assert bench.compactor.compactions == 3
    running.cancel()


@run_with(on_bench)
async def test_bug_in_a_compaction_ends_the_compactor_task() -> None:
    bench = Bench(COMPACT)
    await bench.fill(40)

    def oops() -> None:
        raise AssertionError("a bug")

    meanwhile(bench, oops)
    with pytest.raises(AssertionError, match="a bug"):
        async with asyncio.timeout(MINUTE):
            await bench.compactor.run()


# -- compaction delays no request ----------------------------------------------------------------


async def compacted(kept: Kept) -> None:
    configs = {"min_cleanable_dirty_ratio": "0.01", "cleanup_policy": "compact"}
    await kept.node.create("c", 1, **configs)


@run_with(on_kept, log_retention_ms="1000")
async def test_retention_continues_during_a_long_compaction(kept: Kept) -> None:
    kept.cleaning_workers.delay_s = (5 * 3600.0, 5 * 3600.0)
    await compacted(kept)
    await kept.fill([b"v%d" % n for n in range(8)], "c", key=b"k")
    await asyncio.sleep(MINUTE)
    assert kept.get("c").is_compacting
    await kept.fill([b"a", b"b"])
    await asyncio.sleep(10 * MINUTE)
    assert kept.get("c").is_compacting
    assert kept.get().log.start_offset == 2
    assert not kept.files(".deleted")
    assert kept.housekeeping.last_ms > 0


@run_with(on_kept)
async def test_dirty_log_is_compacted(kept: Kept) -> None:
    await compacted(kept)
    await kept.fill([b"v%d" % n for n in range(8)], "c", key=b"k")
    await asyncio.sleep(5 * MINUTE)
    assert kept.compactor.compactions >= 1
    log = kept.get("c").log
    assert log.cleaned_offset > 0
    assert log.end_offset == 8
    assert len(log.segments) < 9


@run_with(on_kept, log_cleaner_enable="false")
async def test_disabled_cleaner_does_nothing(kept: Kept) -> None:
    await compacted(kept)
    await kept.fill([b"v%d" % n for n in range(8)], "c", key=b"k")
    await asyncio.sleep(5 * MINUTE)
    assert kept.compactor.compactions == 0


@run_with(on_kept)
async def test_damage_found_by_compaction_takes_the_log_offline(kept: Kept) -> None:
    await compacted(kept)
    await kept.fill([b"v%d" % n for n in range(8)], "c", key=b"k")
    first = next(p for p in sorted(kept.files("/c.")) if p.endswith(".log"))
    kept.node.disk.flip_bit(first, 8 * 65)
    await asyncio.sleep(5 * MINUTE)
    offline = kept.get("c").log.offline
    assert offline is not None
    assert kept.compactor.compactions == 0
    assert kept.compactor.failures == 1


# -- exclusive access to segments ---------------------------------------------------------------


@run_with(on_bench)
async def test_retention_waits_for_a_compaction_and_runs_right_after() -> None:
    bench = Bench(BOTH, cleaning_s=LONG_S)
    await bench.fill(40)
    segments = list(bench.log.segments)
    await bench.compactor.run_round()
    bench.housekeeping.retain(bench.partition, bench.clock.now_ms())
    assert list(bench.log.segments) == segments
    # Most of the log does not fit: without the wait nothing of this would be put in place.
    bench.log.config = dataclasses.replace(BOTH, retention_bytes=0)
    await bench.settle()
    assert bench.compactor.compactions == 1
    assert bench.log.start_offset == 40
    assert len(bench.log.segments) == 1


@run_with(on_bench)
async def test_retention_during_a_swap_keeps_the_segments_being_replaced() -> None:
    bench = Bench(dataclasses.replace(BOTH, retention_bytes=-1))
    for at in range(20):
        bench.put(b"key-%d" % at)
        bench.log.roll()
    bench.partition.flush()
    await bench.flusher.drain()
    await bench.compactor.run_round()
    while not bench.log.held:
        await asyncio.sleep(0.00005)
    # The first segment may go, and the second may not: they are becoming one.
    bench.log.delete_before(bench.log.segments[1].base_offset)
    bench.partition.is_compacting = False
    bench.housekeeping.retain(bench.partition, bench.clock.now_ms())
    await bench.settle()
    for _ in range(3):
        await bench.flusher.drain()
        await bench.housekeeping._purge()
    keys = keys_in(bench.log)
    assert keys == [b"key-%d" % at for at in range(1, 20)]
    again = Log.open(bench.disk, PATH, COMPACT, bench.clock.now_ms())
    assert (again.offline, again.end_offset) == (None, 20)
    assert keys_in(again) == keys


@run_with(on_bench)
async def test_records_deleted_during_a_compaction_stay_deleted() -> None:
    bench = Bench(COMPACT, cleaning_s=LONG_S)
    await bench.fill(40)
    await bench.compactor.run_round()
    await bench.partition.delete_before(39)
    await bench.settle()
    assert bench.compactor.compactions == 1
    for _ in range(3):
        await bench.flusher.drain()
        bench.housekeeping.retain(bench.partition, bench.clock.now_ms())
        await bench.housekeeping._purge()
    assert bench.log.start_offset == 39
    assert len(keys_in(bench.log)) == 1
    again = Log.open(bench.disk, PATH, COMPACT, bench.clock.now_ms())
    assert (again.offline, again.start_offset, again.end_offset) == (None, 39, 40)


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("end_offset", [0, 7, 20])
@run_with(on_bench)
async def test_log_truncated_during_a_compaction_stays_truncated(
    *, end_offset: int, is_rewritten: bool
) -> None:
    """`is_rewritten`: just when the new segments were about to be put in place."""

    bench = Bench(COMPACT, cleaning_s=LONG_S)
    await bench.fill(40)
    await bench.compactor.run_round()
    async with bench.partition.hold():
        await asyncio.sleep(2 * LONG_S[1] if is_rewritten else 0)
        bench.partition.is_under_repair = True
        bench.log.truncate_to(end_offset, bench.clock.now_ms())
        bench.partition.is_under_repair = False
    left = keys_in(bench.log)
    await bench.settle()
    found = bench.compactor
    assert (found.compactions, found.abandoned, found.failures) == (0, 1, 0)
    assert (bench.log.offline, bench.log.end_offset) == (None, end_offset)
    assert keys_in(bench.log) == left
    assert names(bench, ".cleaned") == []


@run_with(on_bench)
async def test_truncation_during_a_compaction_is_not_damage() -> None:
    bench = Bench(COMPACT)
    await bench.fill(40)
    meanwhile(bench, lambda: bench.log.truncate_to(3, bench.clock.now_ms()))
    await bench.compactor.run_round()
    await bench.settle()
    assert bench.compactor.abandoned == 1
    assert bench.compactor.failures == 0
    assert (bench.log.offline, bench.log.end_offset) == (None, 3)
    assert names(bench, ".cleaned") == []


@run_with(on_bench)
async def test_directory_is_compacted_by_one_task_at_a_time() -> None:
    bench = Bench(COMPACT, cleaning_s=LONG_S, log_cleaner_threads="4")
    await bench.fill(40)
    await bench.compactor.run_round()
    bench.partition.is_compacting = False
    await bench.compactor.run_round()
    assert bench.compactor.running == 1


# -- giving up --------------------------------------------------------------------------------


@run_with(on_bench)
async def test_compaction_of_a_deleted_topic_stops_between_two_batches() -> None:
    bench = Bench(COMPACT)
    await bench.fill(400)
    after = meanwhile(bench, lambda: bench.log.fail("the topic was deleted"))
    await bench.compactor.run_round()
    await bench.settle()
    assert len(after) < 6
    assert (bench.compactor.abandoned, bench.compactor.failures) == (1, 0)
    assert names(bench, ".cleaned") == []


@run_with(on_bench)
async def test_stop_waits_for_a_batch_and_not_for_the_whole_log() -> None:
    bench = Bench(COMPACT)
    await bench.fill(400)

    def stop() -> None:
        bench.compactor._is_stopping = True  # The first step of `stop`, on the event loop's thread.

    after = meanwhile(bench, stop)
    running = asyncio.ensure_future(bench.compactor.run())
    while not bench.compactor.running:
        await asyncio.sleep(0.0001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.compactor.running == 0, "the logs may be closed now"
    assert len(after) < 6
    assert (bench.compactor.abandoned, bench.compactor.compactions) == (1, 0)
    assert names(bench, ".cleaned") == []
    bench.disk.on_operation = lambda: None
    clean = bench.log.close()
    assert clean is not None
    again = Log.open(bench.disk, PATH, COMPACT, bench.clock.now_ms(), clean)
    assert (again.changed, again.end_offset) == (False, 400)


@run_with(on_bench)
async def test_stop_waits_for_the_end_of_a_swap() -> None:
    bench = Bench(COMPACT)
    await bench.fill(40)
    running = asyncio.ensure_future(bench.compactor.run())
    while not bench.log.held:
        await asyncio.sleep(0.00005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.compactor.compactions == 1
    await bench.flusher.drain()
    clean = bench.log.close()
    again = Log.open(bench.disk, PATH, COMPACT, bench.clock.now_ms(), clean)
    assert not again.changed, "the files are those that the log knew"
    assert again.end_offset == 40


@run_with(on_kept)
async def test_topic_deleted_during_its_compaction_is_abandoned(kept: Kept) -> None:
    kept.cleaning_workers.delay_s = (20.0, 20.0)
    await compacted(kept)
    await kept.fill([b"v%d" % n for n in range(8)], "c", key=b"k")
    await asyncio.sleep(16)
    assert kept.get("c").is_compacting
    await kept.node.delete("c")
    await asyncio.sleep(MINUTE)
    assert kept.compactor.abandoned == 1
    assert not kept.files("/c.")


@run_with(on_bench)
async def test_full_worker_pool_is_retried() -> None:
    bench = Bench(COMPACT)
    await bench.fill(40)
    bench.cleaning_workers.refusals = 1
    running = asyncio.ensure_future(bench.compactor.run())
    await asyncio.sleep(20)
    assert (bench.compactor.failures, bench.compactor.compactions) == (1, 1)
    running.cancel()
