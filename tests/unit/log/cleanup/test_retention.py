"""`penstock.log.cleanup.retention`."""

import dataclasses
import errno
import random

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.log.cleanup.retention import purge
from penstock.log.config import LogConfig
from penstock.log.log import Log
from simulation.disk import Fault, SimDisk
from tests.unit.log.building import (
    NOW_MS,
    SMALL,
    append,
    batch,
    disk_of,
    fill,
    flush,
    make_disk,
    offsets,
    open_log,
    read_all,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")

HOUR_MS = 3600 * 1000
BY_TIME = dataclasses.replace(SMALL, retention_ms=HOUR_MS)
BY_SIZE = dataclasses.replace(SMALL, retention_ms=-1, retention_bytes=2500)


def aged_log(config: LogConfig = BY_TIME) -> Log:
    """Ten segments, a minute apart, all flushed."""
    log = open_log(make_disk(), config)
    for at in range(10):
        for _ in range(4):
            append(log, batch([b"x" * 100], timestamp=NOW_MS + at * 60_000))
        log.roll()
    flush(log)
    return log


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    log = aged_log()
    assert log.retain(NOW_MS + HOUR_MS, log.end_offset) == []
    removals = log.retain(NOW_MS + HOUR_MS + 60_001, log.end_offset)
    assert [len(removal.segments) for removal in removals] == [2]
    assert log.start_offset == 8
    assert offsets(read_all(log)) == list(range(8, 40))


def test_expired_active_segment_is_rolled_first_and_the_end_offset_stays() -> None:
    log = aged_log()
    fill(log, 3)
    flush(log)
    log.retain(NOW_MS + 100 * HOUR_MS, log.end_offset)
    assert (log.start_offset, log.end_offset) == (40, 43)
    assert log.retain(NOW_MS + 100 * HOUR_MS, log.end_offset) == []
    flush(log)
    log.retain(NOW_MS + 100 * HOUR_MS, log.end_offset)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (43, 43, 0)
    flush(log)
    for clean in (None, log.close()):
        again = open_log(disk_of(log), BY_TIME, clean)
        assert (again.start_offset, again.end_offset) == (43, 43)
    fill(again, 1)
    assert offsets(read_all(again)) == [43]


def test_segments_above_the_bound_are_kept() -> None:
    log = aged_log()
    log.retain(NOW_MS + 100 * HOUR_MS, 10)
    assert log.start_offset == 8


def test_unsynced_segments_are_kept() -> None:
    log = open_log(make_disk(), BY_TIME)
    fill(log, 20)
    assert log.retain(NOW_MS + 100 * HOUR_MS, log.end_offset) == []


def test_log_is_kept_at_its_size() -> None:
    log = aged_log(BY_SIZE)
    size = log.segments[0].size
    log.retain(NOW_MS, log.end_offset)
    assert 2500 <= log.size_bytes < 2500 + size


def test_all_segments_are_kept_without_a_limit() -> None:
    log = aged_log(dataclasses.replace(SMALL, retention_ms=-1))
    assert log.retain(2**62, log.end_offset) == []


def test_compacted_topic_is_not_deleted_by_age_but_by_its_start_offset() -> None:
    log = aged_log(dataclasses.replace(BY_TIME, cleanup_delete=False, cleanup_compact=True))
    assert log.retain(2**62, log.end_offset) == []
    log.delete_before(10)
    log.retain(2**62, log.end_offset)
    assert log.segments[0].base_offset == 8


def test_records_before_the_start_offset_are_out_of_range() -> None:
    log = aged_log()
    log.delete_before(6)
    assert offsets(read_all(log)) == list(range(6, 40))
    for offset in (0, 5):
        with pytest.raises(Refused) as refused:
            log.locate(offset, 100, log.end_offset)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_before(3)
    assert log.start_offset == 6, "a start offset never goes back"
    with pytest.raises(Refused) as above:
        log.delete_before(41)
    assert above.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleting_everything_leaves_an_empty_log_that_goes_on() -> None:
    log = aged_log()
    log.delete_before(40)
    log.retain(NOW_MS, log.end_offset)
    flush(log)
    again = open_log(disk_of(log), BY_TIME)
    assert (again.start_offset, again.end_offset, again.size_bytes) == (40, 40, 0)


def test_active_segment_below_the_start_offset_is_rolled_under_any_policy() -> None:
    log = aged_log(dataclasses.replace(BY_TIME, retention_ms=-1))
    fill(log, 3)
    flush(log)
    log.delete_before(43)
    log.retain(NOW_MS, 42, by_policy=False)
    assert log.segments.active.base_offset == 40, "some of it is above the bound"
    for _ in range(2):
        log.retain(NOW_MS, log.end_offset, by_policy=False)
        flush(log)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (43, 43, 0)
    again = open_log(disk_of(log), BY_TIME)
    assert (again.start_offset, again.end_offset) == (43, 43)


def test_files_are_unlinked_when_they_are_due_and_can_be_read_until_then() -> None:
    log = aged_log()
    span = log.locate(0, 100, log.end_offset)
    assert span is not None
    removals = log.retain(NOW_MS + HOUR_MS + 60_001, log.end_offset)
    due_ms = removals[0].due_ms
    assert due_ms == NOW_MS + HOUR_MS + 60_001 + BY_TIME.file_delete_delay_ms
    names = log.disk.listdir(log.path)
    assert purge(log.disk, removals, due_ms) == removals
    assert log.disk.listdir(log.path) == names, "the new start offset is not durable yet"
    flush(log)
    assert purge(log.disk, removals, due_ms - 1) == removals
    assert [name for name in log.disk.listdir(log.path) if name.endswith(".log.deleted")]
    assert len(span.read()) > 100
    assert purge(log.disk, removals, due_ms) == []
    assert not [name for name in log.disk.listdir(log.path) if name.endswith(".deleted")]


def test_retired_files_that_were_left_over_are_removed_at_the_next_start() -> None:
    for renamed in (True, False):
        log = aged_log()
        removals = log.retain(NOW_MS + HOUR_MS + 60_001, log.end_offset)
        flush(log)
        if renamed:
            purge(log.disk, removals, 0)
        again = open_log(disk_of(log), BY_TIME)
        assert (again.start_offset, again.segments[0].base_offset) == (8, 8)
        names = log.disk.listdir(log.path)
        assert not [name for name in names if name.endswith(".deleted")]
        assert min(name for name in names if name.endswith(".log")) == "00000000000000000008.log"


def test_clean_start_is_not_disturbed_by_files_that_retention_has_yet_to_rename() -> None:
    log = aged_log()
    log.retain(NOW_MS + HOUR_MS + 60_001, log.end_offset)
    clean = log.close()
    again = open_log(disk_of(log), BY_TIME, clean)
    assert not again.changed, "it was scanned"
    assert offsets(read_all(again)) == list(range(8, 40))


def test_epochs_are_cut_with_the_start_of_the_log() -> None:
    log = open_log(make_disk(), BY_TIME)
    for epoch in range(1, 6):
        append(log, batch([b"x" * 900]), epoch=epoch)
    flush(log)
    log.delete_before(3)
    assert log.epochs.epochs == [1, 2, 3, 4, 5], "the records may come back"
    flush(log)
    assert (log.epochs.epochs, log.epochs.starts) == ([4, 5], [3, 4])


def test_epochs_of_records_that_may_come_back_are_not_forgotten_by_a_new_epoch() -> None:
    log = open_log(make_disk(), BY_TIME)
    fill(log, 5)
    flush(log)
    log.delete_before(5)
    append(log, batch([b"x"]), epoch=7)
    rng = random.Random(1)
    ends = []
    for _ in range(20):
        again = open_log(disk_of(log).crashed(rng), BY_TIME)
        assert offsets(read_all(again)) == list(range(again.end_offset))
        assert again.epochs.of(4) == 1
        ends.append(again.end_offset)
    assert sorted(set(ends)) == [5, 6]


@pytest.mark.parametrize("flush_first", [True, False])
def test_power_cut_during_retention_never_loses_the_end_offset(flush_first: bool) -> None:
    log = aged_log()
    fill(log, 2)
    flush(log)
    rng = random.Random(1)
    disk = disk_of(log)
    cuts: list[SimDisk] = []
    disk.on_operation = lambda: cuts.extend(disk.crashed(rng) for _ in range(5))
    for _ in range(2):
        removals = log.retain(NOW_MS + 100 * HOUR_MS, log.end_offset)
        if flush_first:
            flush(log)
        purge(disk, removals, 2**62)
        flush(log)
    assert log.size_bytes == 0
    assert len(cuts) > 50
    for cut in cuts:
        again = open_log(cut, BY_TIME)
        assert (again.offline, again.end_offset) == (None, 42)
        assert offsets(read_all(again)) == list(range(again.start_offset, 42))


def test_retention_that_fails_leaves_a_log_that_can_be_opened() -> None:
    log = aged_log()
    removals = log.retain(NOW_MS + 100 * HOUR_MS, log.end_offset)
    flush(log)
    disk_of(log).inject(Fault("rename", errno.EIO, skip=3))
    with pytest.raises(OSError, match="error"):
        purge(log.disk, removals, 2**62)
    again = open_log(disk_of(log), BY_TIME)
    assert (again.offline, again.end_offset) == (None, 40)
