"""`penstock.log.flusher`: group commit."""

import asyncio
import errno
import random

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.log import files
from penstock.log.config import LogConfig
from penstock.log.flusher import SYNC_ALL_FILES, SYNC_JOBS, Flusher, shares_of
from penstock.log.log import Log
from simulation.disk import Fault, SimDisk
from simulation.workers import SimWorkers
from tests.run_with import in_new_loop, run_with
from tests.unit.log.building import NOW_MS, PATH, fill, make_disk, open_log


def logs_on(disk: SimDisk, count: int, config: LogConfig | None = None) -> list[Log]:
    return [
        Log.open(disk, f"/data/topic-{at}", config or LogConfig(), NOW_MS) for at in range(count)
    ]


def flusher_on(disk: SimDisk) -> tuple[Flusher, list[OSError]]:
    failures: list[OSError] = []
    return Flusher(disk, SimWorkers(), failures.append), failures


@run_with(in_new_loop)
async def test_flush_covers_earlier_appends_and_the_next_one_the_rest() -> None:
    disk = make_disk()
    (log,) = logs_on(disk, 1)
    flusher, _ = flusher_on(disk)
    durable: list[int] = []
    log.on_durable = lambda: durable.append(log.durable_offset)
    for _ in range(3):
        fill(log, 1)
        flusher.mark(log)
    await asyncio.sleep(0)
    assert log.flushing
    fill(log, 2)
    flusher.mark(log)
    await flusher.drain()
    assert durable == [3, 5]
    assert flusher.flushes == 2
    assert flusher.is_idle


@run_with(in_new_loop)
async def test_flush_without_dirty_logs_does_nothing() -> None:
    disk = make_disk()
    (log,) = logs_on(disk, 1)
    flusher, _ = flusher_on(disk)
    flusher.mark(log)
    assert flusher.is_idle


@pytest.mark.parametrize("count", [3, SYNC_ALL_FILES + 1])
@run_with(in_new_loop)
async def test_durable_batches_survive_a_power_cut(*, count: int) -> None:
    disk = make_disk()
    logs = logs_on(disk, count)
    flusher, _ = flusher_on(disk)
    for log in logs:
        fill(log, 2)
        flusher.mark(log)
    before = disk.operations
    await flusher.drain()
    if count > SYNC_ALL_FILES:
        assert disk.operations - before == 1, "many files are synced as one"
    for seed in range(10):
        after = logs_on(disk.crashed(random.Random(seed)), count)
        assert [log.end_offset for log in after] == [2] * count


@pytest.mark.parametrize("count", [1, SYNC_JOBS, SYNC_ALL_FILES, SYNC_ALL_FILES + 1])
def test_files_are_synced_side_by_side_each_of_them_once(count: int) -> None:
    logs = logs_on(make_disk(), count)
    for log in logs:
        fill(log, 1)
    flushes = [log.begin_flush() for log in logs]
    shares = shares_of(flushes)
    assert len(shares) == (1 if count > SYNC_ALL_FILES else min(count, SYNC_JOBS))
    assert sorted(flushes.index(flush) for share in shares for flush in share) == list(range(count))


@run_with(in_new_loop)
async def test_failure_is_reported_when_the_whole_flush_has_ended() -> None:
    disk = make_disk()
    logs = logs_on(disk, SYNC_JOBS)
    for log in logs:
        fill(log, 1)
    before = disk.operations
    synced: list[int] = []
    flusher = Flusher(disk, SimWorkers(), lambda _: synced.append(disk.operations - before))
    disk.inject(Fault("sync", errno.EIO, path=logs[0].path))
    for log in logs:
        flusher.mark(log)
    await flusher.drain()
    assert synced == [disk.operations - before], "the other syncs are over"
    assert [log.offline is None for log in logs] == [False] * SYNC_JOBS


@pytest.mark.parametrize("count", [3, SYNC_ALL_FILES + 1])
@run_with(in_new_loop)
async def test_failed_sync_is_never_repeated_and_takes_its_logs_offline(*, count: int) -> None:
    disk = make_disk()
    *logs, other = logs_on(disk, count + 1)
    flusher, failures = flusher_on(disk)
    told: list[Log] = []
    for log in logs:
        log.on_durable = lambda log=log: told.append(log)
        fill(log, 1)
        flusher.mark(log)
    disk.inject(Fault("sync" if count <= SYNC_ALL_FILES else "sync_all", errno.EIO))
    await flusher.drain()
    assert [failure.errno for failure in failures] == [errno.EIO]
    assert told == logs, "the owners are told that nothing more will come"
    for log in logs:
        assert log.durable_offset == 0
        assert log.offline is not None
        with pytest.raises(Refused) as refused:
            fill(log, 1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        flusher.mark(log)
    fill(other, 1)
    flusher.mark(other)
    await flusher.drain()
    assert other.durable_offset == 1
    assert all(log.durable_offset == 0 for log in logs)


@run_with(in_new_loop)
async def test_new_segment_is_durable_only_with_its_directory() -> None:
    disk = make_disk()
    log = open_log(disk)
    flusher, failures = flusher_on(disk)
    fill(log, 1)
    disk.inject(Fault("sync_dir", errno.EIO, path=PATH))
    flusher.mark(log)
    await flusher.drain()
    assert failures
    assert log.durable_offset == 0


@run_with(in_new_loop)
async def test_disk_too_full_for_a_checkpoint_does_not_hold_back_the_data() -> None:
    disk = make_disk()
    log = open_log(disk)
    flusher, failures = flusher_on(disk)
    fill(log, 3)
    flusher.mark(log)
    await flusher.drain()
    fill(log, 17)
    assert len(log.segments) > 2
    disk.inject(Fault("append", errno.ENOSPC, path=files.TEMPORARY, times=99))
    flusher.mark(log)
    await flusher.drain()
    assert (failures, log.durable_offset, log.offline) == ([], 20, None)
    disk.heal()
    for seed in range(20):
        assert open_log(disk.crashed(random.Random(seed))).end_offset == 20


@run_with(in_new_loop)
async def test_settling_waits_for_one_log_only() -> None:
    disk = make_disk()
    quiet, busy = logs_on(disk, 2)
    flusher, _ = flusher_on(disk)

    def keep_busy() -> None:
        fill(busy, 1)
        flusher.mark(busy)

    busy.on_durable = keep_busy
    keep_busy()
    fill(quiet, 1)
    flusher.mark(quiet)
    await asyncio.wait_for(flusher.settle(quiet), 10)
    assert quiet.durable_offset == 1
    assert not flusher.is_idle
    busy.on_durable = None
    await flusher.drain()


@run_with(in_new_loop)
async def test_topic_deleted_during_a_flush_is_not_a_failure() -> None:
    disk = make_disk()
    log = open_log(disk)
    flusher, failures = flusher_on(disk)
    fill(log, 20)
    flusher.mark(log)
    await asyncio.sleep(0)
    log.fail("the topic was deleted")
    for name in disk.listdir(PATH):
        disk.unlink(f"{PATH}/{name}")
    disk.rmdir(PATH)
    await flusher.drain()
    assert failures == []


@run_with(in_new_loop)
async def test_moved_start_offset_is_durable_after_a_flush() -> None:
    disk = make_disk()
    log = open_log(disk)
    flusher, _ = flusher_on(disk)
    fill(log, 20)
    flusher.mark(log)
    await flusher.drain()
    log.delete_before(7)
    flusher.mark(log)
    await flusher.settle(log)
    for seed in range(10):
        assert open_log(disk.crashed(random.Random(seed))).start_offset == 7


@run_with(in_new_loop)
async def test_held_log_is_not_flushed_and_others_are() -> None:
    disk = make_disk()
    held, other = logs_on(disk, 2)
    flusher, _ = flusher_on(disk)
    fill(held, 1)
    flusher.mark(held)
    async with flusher.hold(held):
        assert not held.flushing
        before = held.durable_offset
        fill(held, 5)
        fill(other, 5)
        flusher.mark(held)
        flusher.mark(other)
        await flusher.settle(other)
        assert (held.durable_offset, other.durable_offset) == (before, 5)
        waiting = [
            asyncio.ensure_future(flusher.settle(held)),
            asyncio.ensure_future(flusher.drain()),
        ]
        await asyncio.sleep(0.01)
        assert not any(one.done() for one in waiting)
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert held.durable_offset == 6


@run_with(in_new_loop)
async def test_waiters_for_a_held_log_continue_without_a_flush() -> None:
    disk = make_disk()
    (log,) = logs_on(disk, 1)
    flusher, _ = flusher_on(disk)
    async with flusher.hold(log):
        waiting = asyncio.ensure_future(flusher.drain())
        await asyncio.sleep(0)
    await asyncio.wait_for(waiting, 10)


@run_with(in_new_loop)
async def test_log_is_held_by_one_after_the_other() -> None:
    disk = make_disk()
    (log,) = logs_on(disk, 1)
    flusher, _ = flusher_on(disk)
    inside: list[str] = []

    async def hold(name: str) -> None:
        async with flusher.hold(log):
            inside.append(name)
            await asyncio.sleep(0.01)
            inside.append(name)

    await asyncio.wait_for(asyncio.gather(*[hold(name) for name in "abc"]), 10)
    assert sorted(inside[::2]) == sorted(inside[1::2]) == ["a", "b", "c"]
    assert inside[::2] == inside[1::2], "never two at once"
    fill(log, 2)
    flusher.mark(log)
    await flusher.drain()
    assert log.durable_offset == 2
