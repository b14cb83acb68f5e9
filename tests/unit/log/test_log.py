"""`penstock.log.log`: appending, rolling, locating, and what disk errors do."""

import errno

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.log.config import LogConfig
from penstock.wire.records import batches, read_header
from simulation.disk import Fault
from tests.unit.log.building import (
    NOW_MS,
    PATH,
    SMALL,
    append,
    batch,
    fill,
    flush,
    make_disk,
    offsets,
    open_log,
    read_all,
    read_from,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")


def test_offsets_and_the_leader_epoch_are_stamped_into_the_batch() -> None:
    log = open_log(make_disk())
    append(log, batch([b"a", b"b", b"c"]), epoch=7)
    made = batch([b"d", b"e"])
    assert append(log, made, epoch=7)[:3] == (3, 4, False)
    assert read_header(made).base_offset == 3
    assert read_header(made).leader_epoch == 7
    assert log.end_offset == 5
    assert [record.value for record in read_all(log)] == [b"a", b"b", b"c", b"d", b"e"]


def test_every_offset_can_be_fetched_at_any_size_and_index_state() -> None:
    log = open_log(make_disk())
    for size in (1, 3, 2, 5):
        for _ in range(5):
            append(log, batch([b"x" * 30] * size))
    assert len(log.segments) > 2
    for forget in (False, True):
        if forget:
            for segment in log.segments:
                segment.drop_tail()
                segment.forget()
        for offset in range(log.end_offset):
            for bytes_max in (0, 100, 10_000):
                expected = list(range(offset, log.end_offset))
                assert offsets(read_from(log, offset, bytes_max)) == expected


def test_fetch_has_a_whole_batch_however_small_it_is_asked_to_be() -> None:
    log = open_log(make_disk())
    append(log, batch([b"x" * 300]))
    append(log, batch([b"y" * 300]))
    for _ in range(2):
        span = log.locate(0, 1, log.end_offset)
        assert span is not None
        data = span.read()
        assert [header.base_offset for _, header in batches(memoryview(data))] == [0]
        log.segments.active.drop_tail()


def test_read_stops_at_the_limit() -> None:
    log = open_log(make_disk(), LogConfig(index_interval_bytes=200))
    fill(log, 20)
    for forget in (False, True):
        if forget:
            log.segments.active.drop_tail()
        for limit in range(21):
            found = read_from(log, 0, 10_000, limit) if limit else []
            assert offsets(found) == list(range(limit))
            assert log.locate(limit, 10_000, limit) is None


def test_offset_outside_the_log_is_refused() -> None:
    log = open_log(make_disk())
    fill(log, 3)
    assert log.locate(3, 100, 3) is None
    for offset in (-1, 4):
        with pytest.raises(Refused) as refused:
            log.locate(offset, 100, 3)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_log_rolls_by_size() -> None:
    log = open_log(make_disk(), LogConfig(segment_bytes=1000))
    fill(log, 20)
    assert len(log.segments) > 2
    assert all(segment.size <= 1000 for segment in log.segments)


def test_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_log(make_disk(), LogConfig(segment_bytes=500))
    fill(log, 1)
    append(log, batch([b"x" * 2000]))
    fill(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert offsets(read_all(log)) == [0, 1, 2]


def test_log_rolls_by_the_age_of_its_records() -> None:
    log = open_log(make_disk(), LogConfig(segment_ms=1000))
    for timestamp in (5000, 6000, 6001, 7001, 7002):
        append(log, batch(timestamp=timestamp), now_ms=0)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_log_rolls_by_the_clock_when_records_have_no_time() -> None:
    log = open_log(make_disk(), LogConfig(segment_ms=1000))
    for now_ms in (5000, 6000, 6001):
        append(log, batch(timestamp=-1), now_ms=now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_log_rolls_when_the_index_is_full() -> None:
    log = open_log(make_disk(), LogConfig(index_interval_bytes=0, segment_index_bytes=24))
    fill(log, 10)
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]


def test_log_rolls_before_a_relative_offset_overflows() -> None:
    log = open_log(make_disk(), LogConfig())
    fill(log, 1)
    made = batch([b"late"])
    header = read_header(made)._replace(base_offset=2**31, leader_epoch=1)
    log.append_as_is(made, header, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.append_as_is(made, header._replace(base_offset=2**31 + 5), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2**31 + 1]


def test_new_config_counts_from_the_next_append_on() -> None:
    log = open_log(make_disk(), LogConfig())
    fill(log, 3)
    log.config = LogConfig(segment_bytes=400)
    fill(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_rolling_an_empty_log_does_nothing() -> None:
    log = open_log(make_disk())
    log.roll()
    assert len(log.segments) == 1


def test_appended_batch_is_durable_only_after_a_flush() -> None:
    log = open_log(make_disk())
    told: list[int] = []
    log.on_durable = lambda: told.append(log.durable_offset)
    fill(log, 3)
    assert (log.durable_offset, log.is_dirty) == (0, True)
    flush(log)
    assert (log.durable_offset, log.is_dirty, told) == (3, False, [3])


def test_page_cache_means_durable_at_once() -> None:
    log = open_log(make_disk(), LogConfig(page_cache=True))
    fill(log, 3)
    assert (log.durable_offset, log.is_dirty) == (3, False)


def test_page_cache_log_is_synced_when_it_rolls() -> None:
    log = open_log(make_disk(), LogConfig(page_cache=True, segment_bytes=300))
    fill(log, 3)
    assert log.is_dirty
    flush(log)
    assert (log.synced_offset, log.is_dirty) == (log.segments.active.base_offset, False)


def test_full_disk_refuses_the_batch_and_the_log_goes_on() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 2)
    disk.inject(Fault("append", errno.ENOSPC))
    with pytest.raises(OSError, match="space"):
        fill(log, 1)
    assert (log.end_offset, log.offline) == (2, None)
    fill(log, 1)
    assert offsets(read_all(log)) == [0, 1, 2]


def test_disk_too_full_for_a_new_segment_refuses_the_batch_and_the_log_goes_on() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 5)
    disk.inject(Fault("open", errno.ENOSPC, path=".log"))
    with pytest.raises(OSError, match="space"):
        fill(log, 5)
    end_offset = log.end_offset
    fill(log, 5)
    assert offsets(read_all(log)) == list(range(end_offset + 5))


def test_input_output_error_takes_the_log_offline() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 2)
    disk.inject(Fault("append", errno.EIO))
    with pytest.raises(OSError, match="error"):
        fill(log, 1)
    for act in (lambda: fill(log, 1), lambda: read_all(log), lambda: log.epoch_end(1)):
        with pytest.raises(Refused) as refused:
            act()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.close() is None


def test_epoch_is_on_disk_before_the_first_batch_of_it() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 1)
    disk.inject(Fault("rename", errno.EIO, path="leader-epochs"))
    with pytest.raises(OSError, match="error"):
        append(log, batch(), epoch=2)
    assert disk.size(f"{PATH}/{0:020d}.log") == log.segments.active.size
    assert log.end_offset == 1
    assert log.offline is not None


def test_older_leader_epoch_is_fenced() -> None:
    log = open_log(make_disk())
    append(log, batch(), epoch=5)
    with pytest.raises(Refused) as refused:
        append(log, batch(), epoch=4)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_epochs_end_where_the_next_one_began() -> None:
    log = open_log(make_disk())
    for epoch in (1, 1, 3, 3, 3, 4):
        append(log, batch(), epoch=epoch)
    assert [log.epoch_end(epoch) for epoch in (1, 2, 3, 4, 5)] == [
        (1, 2),
        (1, 2),
        (3, 5),
        (4, 6),
        (-1, -1),
    ]


def test_recently_used_closed_segments_keep_their_index() -> None:
    log = open_log(make_disk())
    fill(log, 80)
    flush(log)
    assert len(log.segments) > 10
    for offset in range(80):
        read_from(log, offset, 100, offset + 1)
    assert sum(segment.index is not None for segment in log.segments) <= 5


def test_idle_log_holds_no_file_content_and_no_index() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 20)
    again = open_log(disk, SMALL, log.close())
    assert all(segment.index is None for segment in again.segments)
    assert offsets(read_all(again)) == list(range(20))
