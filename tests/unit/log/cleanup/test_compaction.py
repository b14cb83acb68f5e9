"""`penstock.log.cleanup.compaction` and `penstock.log.cleanup.compaction_filter`."""

import dataclasses
import errno
import random
from itertools import pairwise

import pytest

from penstock.base.errors import Corrupt
from penstock.log import files as store
from penstock.log.cleanup import compaction
from penstock.log.cleanup.retention import purge
from penstock.log.config import LogConfig
from penstock.log.expected_batches import write_gaps
from penstock.log.flusher import sync
from penstock.log.log import Log
from penstock.wire.records import DELETE_HORIZON, Codec, batches
from simulation.disk import Fault, SimDisk
from tests.unit.log.building import (
    NOW_MS,
    Mode,
    append,
    batch,
    disk_of,
    flush,
    make_disk,
    marker,
    offsets,
    open_log,
    read_all,
    read_from,
    swap_in,
    unreadable,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")

DAY_MS = 24 * 3600 * 1000
COMPACT = LogConfig(
    segment_bytes=1000,
    index_interval_bytes=200,
    cleanup_compact=True,
    cleanup_delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DAY_MS,
)


def put(log: Log, key: bytes, value: bytes | None, epoch: int = 1) -> None:
    append(log, batch([value], key=key), epoch=epoch)


def compact(log: Log, now_ms: int = NOW_MS, bound: int | None = None, keys_max: int = 0) -> int:
    """Compacts until there is nothing to do; returns the number of rounds."""
    rounds = 0
    while True:
        flush(log)
        plan = compaction.plan(log, now_ms, log.end_offset if bound is None else bound)
        if plan is None:
            return rounds
        plan.keys_max = keys_max or plan.keys_max
        removals = swap_in(log, compaction.execute(plan), now_ms)
        purge(log.disk, removals, 2**62)
        rounds += 1


def contents(log: Log) -> dict[bytes | None, bytes | None]:
    """Latest values by key of a consumer that reads the whole log."""
    found: dict[bytes | None, bytes | None] = {}
    for record in read_all(log):
        found[record.key] = record.value
        if record.value is None:
            del found[record.key]
    return found


def churn(log: Log, count: int, keys: int, seed: int = 0) -> dict[bytes | None, bytes | None]:
    rng = random.Random(seed)
    expected: dict[bytes | None, bytes | None] = {}
    for at in range(count):
        key = b"key-%d" % rng.randrange(keys)
        value = None if rng.random() < 0.1 else b"value-%d" % at + b"x" * 40
        put(log, key, value)
        expected[key] = value
        if value is None:
            del expected[key]
    return expected


def test_newest_record_of_each_key_stays_at_its_offset() -> None:
    log = open_log(make_disk(), COMPACT)
    for at in range(40):
        put(log, b"k%d" % (at % 3), b"%d" % at * 20)
    before = {record.offset: record for record in read_all(log)}
    active = log.segments.active.base_offset
    assert compact(log) == 1
    after = read_all(log)
    assert all(before[record.offset] == record for record in after)
    sealed = [record for record in after if record.offset < active]
    assert len(sealed) == 3
    assert len({record.key for record in sealed}) == 3
    assert log.end_offset == 40
    assert log.cleaned_offset == active


def test_reader_finds_every_offset_of_a_compacted_log() -> None:
    log = open_log(make_disk(), COMPACT)
    churn(log, 100, 5)
    compact(log)
    everything = offsets(read_all(log))
    for offset in range(log.end_offset):
        for bytes_max in (1, 300):
            expected = [one for one in everything if one >= offset]
            assert offsets(read_from(log, offset, bytes_max)) == expected


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_batches_are_thinned_out_and_keep_their_codec_and_their_offsets(codec: int) -> None:
    log = open_log(make_disk(), COMPACT)
    append(log, batch([b"1" * 100, b"2" * 100, b"3"], keys=[b"a", b"b", b"c"], codec=codec))
    append(log, batch([b"4" * 100], keys=[b"b"], codec=codec))
    log.roll()
    compact(log)
    span = log.locate(0, 10_000, log.end_offset)
    assert span is not None
    headers = [header for _, header in batches(memoryview(span.read()))]
    assert [(h.base_offset, h.last_offset, h.count) for h in headers] == [(0, 2, 2), (3, 3, 1)]
    assert {h.attributes & 7 for h in headers} == {codec}
    assert [(r.offset, r.key) for r in read_all(log)] == [(0, b"a"), (2, b"c"), (3, b"b")]


def test_records_without_a_key_go() -> None:
    log = open_log(make_disk(), COMPACT)
    append(log, batch([b"1"]))
    put(log, b"a", b"1")
    log.roll()
    compact(log)
    assert offsets(read_all(log)) == [1]


def test_tombstone_is_removed_after_its_retention() -> None:
    log = open_log(make_disk(), COMPACT)
    put(log, b"a", b"1")
    put(log, b"a", None)
    put(log, b"b", b"2")
    log.roll()
    assert compact(log, NOW_MS) == 1
    assert offsets(read_all(log)) == [1, 2]
    span = log.locate(1, 1, log.end_offset)
    assert span is not None
    ((_, header),) = batches(memoryview(span.read()))
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert read_all(log)[0].timestamp == NOW_MS, "the horizon does not change a record's time"
    for now_ms, expected in ((NOW_MS + DAY_MS - 1, [1, 2]), (NOW_MS + DAY_MS, [2])):
        put(log, b"c", b"3")
        log.roll()
        assert compact(log, now_ms) == 1
        assert offsets(read_all(log))[: len(expected)] == expected


def test_records_above_the_bound_are_not_compacted() -> None:
    log = open_log(make_disk(), COMPACT)
    for _ in range(30):
        put(log, b"a", b"1" * 80)
    second = log.segments[1].base_offset
    assert compact(log, bound=second - 1) == 0
    assert compact(log, bound=second) == 1
    assert log.cleaned_offset == second
    assert offsets(read_all(log)) == [second - 1, *range(second, 30)]


def test_young_segments_wait_for_the_minimum_lag() -> None:
    config = dataclasses.replace(COMPACT, min_compaction_lag_ms=1000)
    log = open_log(make_disk(), config)
    churn(log, 40, 3)
    assert compact(log, NOW_MS + 999) == 0
    assert compact(log, NOW_MS + 1000) == 1


def test_log_waits_until_enough_of_it_is_dirty() -> None:
    config = dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=0.5)
    log = open_log(make_disk(), config)
    for at in range(200):
        put(log, b"key-%d" % at, b"x" * 40)
    assert compact(log) == 1
    for at in range(20):
        put(log, b"key-%d" % at, b"y" * 40)
    assert compact(log) == 0
    log.config = dataclasses.replace(config, max_compaction_lag_ms=DAY_MS)
    assert compact(log, NOW_MS + DAY_MS) == 0
    assert compact(log, NOW_MS + DAY_MS + 1) == 1


def test_small_segments_are_merged() -> None:
    log = open_log(make_disk(), COMPACT)
    for at in range(120):
        put(log, b"k%d" % (at % 2), b"x" * 80)
    assert len(log.segments) > 10
    rounds = compact(log)
    for _ in range(3):
        put(log, b"k0", b"x" * 80)
        log.roll()
        rounds += compact(log)
    assert len(log.segments) <= 3
    assert all(segment.size <= COMPACT.segment_bytes for segment in log.segments)


def test_map_that_is_too_small_needs_more_rounds() -> None:
    log = open_log(make_disk(), COMPACT)
    expected = churn(log, 200, 50)
    assert compact(log, keys_max=10) > 3
    assert contents(log) == expected


def test_long_keys_are_distinguished() -> None:
    log = open_log(make_disk(), COMPACT)
    keys = [b"k" * 100 + b"%d" % at for at in range(5)] + [b"k" * 15, b"k" * 16]
    for _ in range(2):
        for key in keys:
            put(log, key, b"1")
    log.roll()
    compact(log)
    assert sorted(contents(log)) == sorted(keys)  # type: ignore[type-var]
    assert len(read_all(log)) == len(keys)


def test_producers_last_batch_stays_even_without_records() -> None:
    disk = make_disk()
    log = open_log(disk, COMPACT)
    append(log, batch([b"1"], key=b"a", producer=(5, 0, 0)))
    append(log, batch([b"2"], key=b"a", producer=(5, 0, 1)))
    put(log, b"a", b"3")
    put(log, b"b", b"3")
    log.roll()
    compact(log)
    assert offsets(read_all(log)) == [2, 3]
    for path in disk.files():
        if path.endswith((store.SNAPSHOT, store.INDEX)):
            disk.unlink(path)
    again = open_log(disk, COMPACT)
    assert append(again, batch([b"2"], key=b"a", producer=(5, 0, 1))).duplicate
    assert append(again, batch([b"3"], key=b"a", producer=(5, 0, 2))).base_offset == 4


def test_aborted_records_go_and_their_marker_follows_later() -> None:
    log = open_log(make_disk(), COMPACT)
    append(log, batch([b"1"], key=b"a", producer=(5, 0, 0), transactional=True))
    append(log, marker(5, 0, committed=False))
    append(log, batch([b"2"], key=b"b", producer=(6, 0, 0), transactional=True))
    append(log, marker(6, 0, committed=True))
    put(log, b"z", b"z")
    log.roll()
    # Two more transactions, so that these are not the producers' last batches.
    append(log, batch([b"3"], key=b"c", producer=(5, 0, 1), transactional=True))
    append(log, marker(5, 0, committed=True))
    log.roll()
    assert compact(log, NOW_MS) == 1
    assert offsets(read_all(log)) == [1, 2, 3, 4, 5, 6], "the records of the aborted one are gone"
    assert [txn[:3] for txn in log.aborted(0, log.end_offset)] == [(5, 0, 1)]
    for days in range(1, 4):
        put(log, b"y", b"y")
        log.roll()
        compact(log, NOW_MS + days * DAY_MS + days)
    assert 1 not in offsets(read_all(log)), "nothing is left that needs the abort marker"
    assert 3 in offsets(read_all(log)), "the committed record is still there"
    assert log.aborted(0, log.end_offset) == []


def test_log_that_was_cut_meanwhile_keeps_its_segments() -> None:
    log = open_log(make_disk(), COMPACT)
    churn(log, 60, 3)
    flush(log)
    plan = compaction.plan(log, NOW_MS, log.end_offset)
    assert plan is not None
    done = compaction.execute(plan)
    log.truncate_to(5, NOW_MS)
    removals = swap_in(log, done, NOW_MS)
    purge(log.disk, removals, NOW_MS)
    assert offsets(read_all(log)) == list(range(5))
    assert not [path for path in log.disk.listdir(log.path) if path.endswith(store.CLEANED)]


def test_readers_that_found_the_old_segments_can_still_read_them() -> None:
    log = open_log(make_disk(), COMPACT)
    for _ in range(30):
        put(log, b"a", b"1" * 80)
    log.segments[0].forget()
    span = log.locate(0, 500, log.end_offset)
    assert span is not None
    assert span.position < 0, "the search is still to be made"
    compact(log)
    flush(log)
    assert next(batches(memoryview(span.read())))[1].base_offset == 0


def test_damage_stops_a_compaction_and_leaves_nothing_behind() -> None:
    disk = make_disk()
    log = open_log(disk, COMPACT)
    churn(log, 60, 3)
    flush(log)
    files = disk.files()
    disk.flip_bit(log.segments[2].path + store.LOG, 8 * 300)
    plan = compaction.plan(log, NOW_MS, log.end_offset)
    assert plan is not None
    with pytest.raises(Corrupt):
        compaction.execute(plan)
    assert disk.files() == files


@pytest.mark.parametrize("batches_wanted", [0, 1, 30, 70, 90])
def test_cancelled_compaction_ends_at_the_next_batch(
    batches_wanted: int,
) -> None:
    disk = make_disk()
    log = open_log(disk, COMPACT)
    expected = churn(log, 60, 40)
    flush(log)
    files = disk.files()
    plan = compaction.plan(log, NOW_MS, log.end_offset)
    assert plan is not None
    asked = 0

    def is_over() -> bool:
        nonlocal asked
        asked += 1
        return asked > batches_wanted

    with pytest.raises(compaction.Abandoned):
        compaction.execute(plan, is_over)
    assert asked == batches_wanted + 1, "it is not asked again"
    assert disk.files() == files
    assert contents(log) == expected


def test_segments_that_were_cut_are_not_taken_for_damaged_ones() -> None:
    log = open_log(make_disk(), COMPACT)
    churn(log, 60, 3)
    flush(log)
    plan = compaction.plan(log, NOW_MS, log.end_offset)
    assert plan is not None
    assert compaction.is_valid(log, plan)
    log.truncate_to(30, NOW_MS)
    assert not compaction.is_valid(log, plan)
    with pytest.raises(compaction.Abandoned):
        compaction.execute(plan)


def test_dirtiness_of_a_log_is_the_share_that_was_not_compacted() -> None:
    log = open_log(make_disk(), COMPACT)
    assert compaction.dirtiness(log, NOW_MS, log.end_offset) is None
    churn(log, 60, 3)
    flush(log)
    assert compaction.dirtiness(log, NOW_MS, log.end_offset) == 1
    compact(log)
    assert compaction.dirtiness(log, NOW_MS, log.end_offset) is None
    for _ in range(10):
        put(log, b"k", b"x" * 80)
    flush(log)
    ratio = compaction.dirtiness(log, NOW_MS, log.end_offset)
    assert ratio is not None
    assert 0 < ratio < 1


def test_undecodable_records_are_kept_and_do_not_stop_compaction() -> None:
    """Batches are not decoded on arrival: one without valid records must not cost the partition."""
    log = open_log(make_disk(), COMPACT)
    put(log, b"k", b"old")
    append(log, unreadable(Codec.NONE))
    for _ in range(30):
        put(log, b"k", b"new")
    assert compact(log) > 0
    flush(log)
    span = log.locate(0, 1 << 20, log.end_offset)
    assert span is not None
    kept = [header.base_offset for _, header in batches(memoryview(span.read()))]
    assert kept[0] == 1, "the nonsense is where it was, and what was before it is gone"


@pytest.mark.parametrize("operation", ["append", "sync", "open"])
def test_full_disk_stops_a_compaction_and_leaves_nothing_behind(operation: str) -> None:
    disk = make_disk()
    log = open_log(disk, COMPACT)
    expected = churn(log, 60, 40)
    flush(log)
    files = disk.files()
    plan = compaction.plan(log, NOW_MS, log.end_offset)
    assert plan is not None
    disk.inject(Fault(operation, errno.ENOSPC, path=store.CLEANED, skip=1))
    with pytest.raises(OSError, match="space"):
        compaction.execute(plan)
    assert disk.files() == files
    assert contents(log) == expected


def test_segments_that_a_flush_is_busy_with_are_not_compacted() -> None:
    log = open_log(make_disk(), COMPACT)
    churn(log, 60, 3)
    started = log.begin_flush()
    assert compaction.plan(log, NOW_MS, log.end_offset) is None
    sync(log.disk, [started])
    log.mark_durable(started)
    put(log, b"a", b"1")
    log.begin_flush()
    assert compaction.plan(log, NOW_MS, log.end_offset) is not None


def test_cleaned_offset_is_persisted() -> None:
    disk = make_disk()
    log = open_log(disk, COMPACT)
    churn(log, 60, 3)
    compact(log)
    flush(log)
    cleaned = log.cleaned_offset
    assert cleaned > 0
    assert open_log(disk, COMPACT).cleaned_offset == cleaned
    assert open_log(disk, COMPACT, log.close()).cleaned_offset == cleaned


def check_whole(log: Log, expected: dict[bytes | None, bytes | None]) -> None:
    assert log.offline is None
    assert log.end_offset == 120
    assert contents(log) == expected
    for segment, after in pairwise(log.segments):
        *_, (_, last) = segment.headers()
        assert last.next_offset == after.base_offset, "segments overlap, or leave a hole"
    names = disk_of(log).files()
    assert not [name for name in names if name.endswith((store.SWAP, store.CLEANED))]


@pytest.mark.parametrize("seed", range(4))
def test_power_cut_at_any_operation_of_a_compaction_loses_no_key(seed: int) -> None:
    if Mode.keyring is not None and seed:
        return  # Once is enough for what changes nothing but the bytes.
    disk = make_disk(seed)
    log = open_log(disk, COMPACT)
    churn(log, 60, 8, seed)
    compact(log)  # Leaves small segments, for the next round to merge.
    churn(log, 60, 8, seed + 100)
    expected = contents(log)
    flush(log)
    before = len(log.segments)
    cuts: list[SimDisk] = []
    rng = random.Random(seed)
    disk.on_operation = lambda: cuts.extend(disk.crashed(rng) for _ in range(4))
    compact(log)
    disk.on_operation = None
    assert len(log.segments) < before
    assert len(cuts) > 60
    for cut in cuts:
        check_whole(open_log(cut, COMPACT), expected)


def test_swap_that_is_cut_off_again_while_it_is_finished_loses_no_key() -> None:
    rng = random.Random(1)
    disk = make_disk()
    log = open_log(disk, COMPACT)
    churn(log, 60, 8)
    compact(log)
    churn(log, 60, 8, 1)
    flush(log)
    expected = contents(log)
    plan = compaction.plan(log, NOW_MS, log.end_offset)
    assert plan is not None
    done = compaction.execute(plan)
    assert any(len(one.old) > 2 for one in done.replacements)
    write_gaps(disk, log.path, done.end_offset)
    for one in done.replacements:
        name = one.new.path + store.LOG
        disk.rename(name + store.CLEANED, name + store.SWAP)
    disk.sync_dir(log.path)
    cuts: list[SimDisk] = []
    disk.on_operation = lambda: cuts.extend(disk.crashed(rng) for _ in range(10))
    open_log(disk, COMPACT)
    assert len(cuts) > 50
    for cut in cuts:
        check_whole(open_log(cut, COMPACT), expected)
