"""`cluster.storage.compaction_schedule`: what is compacted when, that nobody waits for it, and that
nobody else works on the same segments meanwhile."""

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
    House,
    Kept,
    names,
    on_kept,
)
from tests.unit.log.building import read_all

BOTH = dataclasses.replace(COMPACT, cleanup_delete=True, retention_ms=-1, retention_bytes=1500)
LONG_S = (1000.0, 1000.0)


def on_house(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    SimLoop(1).run(main())


def make_dirty(house: House, *shares: float) -> None:
    """Lets every log look as if all but this share of it had been compacted."""
    for partition, share in zip(house.partitions, shares, strict=True):
        partition.log.cleaned_offset = int(partition.log.end_offset * (1 - share))


def compacting(house: House) -> list[int]:
    return [partition.index for partition in house.partitions if partition.is_compacting]


def keys_in(log: Log) -> list[bytes]:
    """Of all records from the start of the log on."""
    return [record.key or b"" for record in read_all(log)]


def meanwhile(house: House, what: Callable[[], Any]) -> list[int]:
    """Does it as soon as the worker of a compaction has touched the disk three times; the list
    grows with each time that it does so after that."""
    after: list[int] = []
    count = 0

    def note() -> None:
        nonlocal count
        if house.lane.is_working:
            count += 1
            if count == 3:
                what()
            elif count > 3:
                after.append(house.disk.operations)

    house.disk.on_operation = note
    return after


@run_with(on_house)
async def test_compaction_never_touches_the_disk_on_the_loop() -> None:
    house = House(COMPACT)
    await house.fill(40)
    before = house.log.size_bytes
    house.watch()
    assert await house.compact()
    await house.flusher.drain()
    assert house.on_loop == []
    assert house.log.size_bytes < before / 2
    assert house.log.offline is None
    assert not house.log.held
    again = Log.open(house.disk, PATH, COMPACT, house.clock.now_ms())
    assert (again.offline, again.end_offset) == (None, 40)


@run_with(on_house)
async def test_what_is_appended_during_a_swap_is_acknowledged_after_it() -> None:
    house = House(COMPACT)
    await house.fill(40)
    await house.compactor.run_round()
    while not house.log.held:
        await asyncio.sleep(0.00005)
    house.put(b"meanwhile")
    await house.settle()
    await house.flusher.drain()
    assert house.compactor.compactions == 1
    assert house.partition.high_watermark == house.log.end_offset == 41


# -- which, and how many ----------------------------------------------------------------------


@run_with(on_house)
async def test_the_dirtiest_log_goes_first_and_the_others_wait() -> None:
    house = House(COMPACT, count=3, cleaning_s=LONG_S)
    await house.fill(40)
    make_dirty(house, 0.3, 0.9, 0.6)
    running = asyncio.ensure_future(house.compactor.run())
    seen = []
    for _ in range(3):
        await asyncio.sleep(100)
        seen.append(compacting(house))
        assert house.compactor.waiting == 3 - len(seen)
        assert house.compactor.longest_s > 50
        await asyncio.sleep(910)
    assert seen == [[1], [2], [0]]
    assert (house.compactor.compactions, house.compactor.running) == (3, 0)
    assert house.compactor.longest_s == 0
    assert 0 < house.compactor.last_ms <= house.clock.now_ms()
    running.cancel()


def test_a_log_that_is_written_to_all_the_time_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def always_due(self: Partition) -> None:
        await asyncio.get_running_loop().create_future()

    async def story() -> None:
        house = House(COMPACT, count=2)
        await house.fill(40)
        monkeypatch.setattr(Partition, "flushed", always_due)
        running = asyncio.ensure_future(house.compactor.run())
        await asyncio.sleep(100)
        assert (house.compactor.compactions, house.compactor.running) == (2, 0)
        running.cancel()
        await asyncio.wait([running])

    on_house(story)


@pytest.mark.parametrize(("threads", "at_once"), [("0", 0), ("2", 2), ("4", 4), ("100", 8)])
def test_as_many_logs_are_compacted_at_once_as_the_config_says(threads: str, at_once: int) -> None:
    async def story() -> None:
        house = House(COMPACT, count=10, cleaning_s=LONG_S, log_cleaner_threads=threads)
        await house.fill(10)
        await house.compactor.run_round()
        await house.compactor.run_round()
        assert house.compactor.running == len(compacting(house)) == at_once
        assert house.compactor.waiting == 10 - at_once
        await asyncio.sleep(1)
        assert len(house.lane.given) == at_once
        assert sum(plan.keys_max for plan in house.lane.given) <= KEYS_MAX

    assert COMPACTIONS_MAX == 8
    on_house(story)


@run_with(on_house)
async def test_a_log_whose_compaction_fails_is_in_nobodys_way_and_has_its_next_turn_later() -> None:
    house = House(COMPACT, count=3)
    await house.fill(40)
    make_dirty(house, 1.0, 0.9, 0.8)
    full = Fault("open", errno.ENOSPC, path="topic-0/", times=1_000_000)
    house.disk.inject(full)
    running = asyncio.ensure_future(house.compactor.run())
    await asyncio.sleep(1)
    assert [one.log.cleaned_offset == 40 for one in house.partitions] == [False, True, True]
    await asyncio.sleep(3600)
    # After 15 seconds, then twice as late each time, in the end every ten minutes.
    assert 8 <= house.compactor.failures <= 12
    assert house.log.offline is None
    assert not house.partition.is_compacting
    house.disk.heal()
    await asyncio.sleep(RETRY_SECONDS_MAX + 20)
    assert house.log.cleaned_offset == 40
    assert house.compactor.compactions == 3
    running.cancel()


@run_with(on_house)
async def test_a_bug_in_a_compaction_ends_the_loop_that_the_node_watches() -> None:
    house = House(COMPACT)
    await house.fill(40)

    def oops() -> None:
        raise AssertionError("a bug")

    meanwhile(house, oops)
    with pytest.raises(AssertionError, match="a bug"):
        async with asyncio.timeout(MINUTE):
            await house.compactor.run()


# -- nobody waits for it ----------------------------------------------------------------------


async def compacted(kept: Kept) -> None:
    configs = {"min_cleanable_dirty_ratio": "0.01", "cleanup_policy": "compact"}
    await kept.node.create("c", 1, **configs)


@run_with(on_kept, log_retention_ms="1000")
async def test_retention_goes_on_while_a_log_is_compacted_for_hours(kept: Kept) -> None:
    kept.lane.delay_s = (5 * 3600.0, 5 * 3600.0)
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
async def test_a_dirty_log_is_compacted(kept: Kept) -> None:
    await compacted(kept)
    await kept.fill([b"v%d" % n for n in range(8)], "c", key=b"k")
    await asyncio.sleep(5 * MINUTE)
    assert kept.compactor.compactions >= 1
    log = kept.get("c").log
    assert log.cleaned_offset > 0
    assert log.end_offset == 8
    assert len(log.segments) < 9


@run_with(on_kept, log_cleaner_enable="false")
async def test_a_disabled_cleaner_does_nothing(kept: Kept) -> None:
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


# -- nobody else works on the same segments -----------------------------------------------------


@run_with(on_house)
async def test_retention_waits_for_the_end_of_a_compaction_and_comes_right_then() -> None:
    house = House(BOTH, cleaning_s=LONG_S)
    await house.fill(40)
    segments = list(house.log.segments)
    await house.compactor.run_round()
    house.housekeeping.retain(house.partition, house.clock.now_ms())
    assert list(house.log.segments) == segments
    # Most of the log does not fit: without the wait nothing of this would be put in place.
    house.log.config = dataclasses.replace(BOTH, retention_bytes=0)
    await house.settle()
    assert house.compactor.compactions == 1
    assert house.log.start_offset == 40
    assert len(house.log.segments) == 1


@run_with(on_house)
async def test_retention_during_a_swap_takes_nothing_that_is_being_replaced() -> None:
    house = House(dataclasses.replace(BOTH, retention_bytes=-1))
    for at in range(20):
        house.put(b"key-%d" % at)
        house.log.roll()
    house.partition.flush()
    await house.flusher.drain()
    await house.compactor.run_round()
    while not house.log.held:
        await asyncio.sleep(0.00005)
    # The first segment may go, and the second may not: they are becoming one.
    house.log.delete_before(house.log.segments[1].base_offset)
    house.partition.is_compacting = False
    house.housekeeping.retain(house.partition, house.clock.now_ms())
    await house.settle()
    for _ in range(3):
        await house.flusher.drain()
        await house.housekeeping._purge()
    keys = keys_in(house.log)
    assert keys == [b"key-%d" % at for at in range(1, 20)]
    again = Log.open(house.disk, PATH, COMPACT, house.clock.now_ms())
    assert (again.offline, again.end_offset) == (None, 20)
    assert keys_in(again) == keys


@run_with(on_house)
async def test_records_deleted_during_a_compaction_stay_deleted() -> None:
    house = House(COMPACT, cleaning_s=LONG_S)
    await house.fill(40)
    await house.compactor.run_round()
    await house.partition.delete_before(39)
    await house.settle()
    assert house.compactor.compactions == 1
    for _ in range(3):
        await house.flusher.drain()
        house.housekeeping.retain(house.partition, house.clock.now_ms())
        await house.housekeeping._purge()
    assert house.log.start_offset == 39
    assert len(keys_in(house.log)) == 1
    again = Log.open(house.disk, PATH, COMPACT, house.clock.now_ms())
    assert (again.offline, again.start_offset, again.end_offset) == (None, 39, 40)


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("end_offset", [0, 7, 20])
@run_with(on_house)
async def test_a_log_that_is_cut_during_a_compaction_is_as_it_was_cut(
    *, end_offset: int, is_rewritten: bool
) -> None:
    """`is_rewritten`: just when the new segments were about to be put in place."""

    house = House(COMPACT, cleaning_s=LONG_S)
    await house.fill(40)
    await house.compactor.run_round()
    async with house.partition.hold():
        await asyncio.sleep(2 * LONG_S[1] if is_rewritten else 0)
        house.partition.is_under_repair = True
        house.log.truncate_to(end_offset, house.clock.now_ms())
        house.partition.is_under_repair = False
    left = keys_in(house.log)
    await house.settle()
    found = house.compactor
    assert (found.compactions, found.abandoned, found.failures) == (0, 1, 0)
    assert (house.log.offline, house.log.end_offset) == (None, end_offset)
    assert keys_in(house.log) == left
    assert names(house, ".cleaned") == []


@run_with(on_house)
async def test_a_cut_in_the_middle_of_a_compaction_is_no_damage() -> None:
    house = House(COMPACT)
    await house.fill(40)
    meanwhile(house, lambda: house.log.truncate_to(3, house.clock.now_ms()))
    await house.compactor.run_round()
    await house.settle()
    assert house.compactor.abandoned == 1
    assert house.compactor.failures == 0
    assert (house.log.offline, house.log.end_offset) == (None, 3)
    assert names(house, ".cleaned") == []


@run_with(on_house)
async def test_a_directory_is_compacted_by_one_at_a_time() -> None:
    house = House(COMPACT, cleaning_s=LONG_S, log_cleaner_threads="4")
    await house.fill(40)
    await house.compactor.run_round()
    house.partition.is_compacting = False
    await house.compactor.run_round()
    assert house.compactor.running == 1


# -- giving up --------------------------------------------------------------------------------


@run_with(on_house)
async def test_a_deleted_topic_is_given_up_between_two_batches() -> None:
    house = House(COMPACT)
    await house.fill(400)
    after = meanwhile(house, lambda: house.log.fail("the topic was deleted"))
    await house.compactor.run_round()
    await house.settle()
    assert len(after) < 6
    assert (house.compactor.abandoned, house.compactor.failures) == (1, 0)
    assert names(house, ".cleaned") == []


@run_with(on_house)
async def test_a_stop_waits_for_a_batch_and_not_for_the_log() -> None:
    house = House(COMPACT)
    await house.fill(400)

    def stop() -> None:
        house.compactor._is_stopping = True  # What `stop` does first, on the loop's thread.

    after = meanwhile(house, stop)
    running = asyncio.ensure_future(house.compactor.run())
    while not house.compactor.running:
        await asyncio.sleep(0.0001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert house.compactor.running == 0, "the logs may be closed now"
    assert len(after) < 6
    assert (house.compactor.abandoned, house.compactor.compactions) == (1, 0)
    assert names(house, ".cleaned") == []
    house.disk.on_operation = lambda: None
    clean = house.log.close()
    assert clean is not None
    again = Log.open(house.disk, PATH, COMPACT, house.clock.now_ms(), clean)
    assert (again.changed, again.end_offset) == (False, 400)


@run_with(on_house)
async def test_a_stop_in_the_middle_of_a_swap_waits_for_its_end() -> None:
    house = House(COMPACT)
    await house.fill(40)
    running = asyncio.ensure_future(house.compactor.run())
    while not house.log.held:
        await asyncio.sleep(0.00005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert house.compactor.compactions == 1
    await house.flusher.drain()
    clean = house.log.close()
    again = Log.open(house.disk, PATH, COMPACT, house.clock.now_ms(), clean)
    assert not again.changed, "the files are those that the log knew"
    assert again.end_offset == 40


@run_with(on_kept)
async def test_a_topic_deleted_while_it_is_compacted_disturbs_nobody(kept: Kept) -> None:
    kept.lane.delay_s = (20.0, 20.0)
    await compacted(kept)
    await kept.fill([b"v%d" % n for n in range(8)], "c", key=b"k")
    await asyncio.sleep(16)
    assert kept.get("c").is_compacting
    await kept.node.delete("c")
    await asyncio.sleep(MINUTE)
    assert kept.compactor.abandoned == 1
    assert not kept.files("/c.")


@run_with(on_house)
async def test_workers_that_take_no_more_are_asked_again() -> None:
    house = House(COMPACT)
    await house.fill(40)
    house.lane.refusals = 1
    running = asyncio.ensure_future(house.compactor.run())
    await asyncio.sleep(20)
    assert (house.compactor.failures, house.compactor.compactions) == (1, 1)
    running.cancel()
