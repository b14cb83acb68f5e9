"""`penstock.log.search`: end of a fetch, and offsets by timestamp."""

import pytest

from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.wire.records import Codec
from tests.unit.log.building import (
    NOW_MS,
    append,
    batch,
    disk_of,
    fill,
    make_disk,
    offsets,
    open_log,
    read_from,
    unreadable,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")

LARGE = b"v" * 100_000
TIMES = [10, 20, 20, 15, 40, 30, 31, 32, 90, 50, 95, 95, 96] * 4


def size_of(log: Log, offset: int, bytes_max: int, limit: int | None = None) -> int:
    span = log.locate(offset, bytes_max, log.end_offset if limit is None else limit)
    assert span is not None
    return span.size


@pytest.mark.parametrize("in_tail", [True, False])
def test_fetch_does_not_begin_a_large_batch_that_it_cannot_end(in_tail: bool) -> None:
    log = open_log(make_disk(), LogConfig())
    fill(log, 6, value=LARGE)
    if not in_tail:
        log.segments.active.drop_tail()
    one, three = size_of(log, 0, 1), log.segments.active.size // 2
    assert 100_000 < one < 101_000
    assert size_of(log, 0, one + 60_000) == one
    assert size_of(log, 0, three) == size_of(log, 0, three + 60_000) == three
    assert size_of(log, 3, 10 * three) == three, "up to the end of the segment"
    if in_tail:
        assert size_of(log, 0, 10 * three, limit=3) == three, "up to what may be read"
        assert size_of(log, 0, three + 60_000, limit=5) == three
    assert offsets(read_from(log, 0, three + 60_000)) == list(range(6))


def test_fetch_of_small_batches_is_as_large_as_was_asked_for() -> None:
    log = open_log(make_disk(), LogConfig())
    fill(log, 200)
    for bytes_max in (1_000, 5_000, 20_000):
        assert size_of(log, 0, bytes_max) == bytes_max


def timed_log(codec: int = 0) -> Log:
    """Batches of two records, a millisecond apart, at times that go up and down."""
    log = open_log(make_disk())
    for round_, time in enumerate(TIMES):
        made = batch([b"x" * 60] * 2, timestamp=time * 10 + round_ // 13 * 1000, codec=codec)
        append(log, made, epoch=1 + round_ // 20)
    return log


def expected_for(log: Log, timestamp: int) -> tuple[int, int, int] | None:
    for round_, time in enumerate(TIMES):
        for at in range(2):
            record = time * 10 + round_ // 13 * 1000 + at
            if record >= timestamp and 2 * round_ + at >= log.start_offset:
                return 2 * round_ + at, record, 1 + round_ // 20
    return None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("start_offset", [0, 7, 31])
def test_first_record_not_older_is_found(codec: int, start_offset: int) -> None:
    log = timed_log(codec)
    assert len(log.segments) > 3
    log.delete_before(start_offset)
    for timestamp in range(0, 4200, 3):
        assert log.offset_for_time(timestamp) == expected_for(log, timestamp)


def test_time_is_found_without_the_index_being_loaded_by_the_reader() -> None:
    log = timed_log()
    again = open_log(disk_of(log), clean=log.close())
    assert again.offset_for_time(2055) == expected_for(log, 2055)
    assert again.segments.active.index is None, "only the thread that appends loads it"


def test_newest_record_is_found() -> None:
    log = timed_log()
    assert log.max_timestamp() == expected_for(log, 3961)
    log.delete_before(log.end_offset)
    assert log.max_timestamp() is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batch_that_cannot_be_opened_is_found_as_a_whole(codec: int) -> None:
    log = open_log(make_disk())
    append(log, batch([b"x"], timestamp=NOW_MS - 5))
    append(log, unreadable(codec))
    assert log.offset_for_time(NOW_MS - 4) == log.max_timestamp() == (1, NOW_MS, 1)
    log.delete_before(2)
    assert log.offset_for_time(0) == (2, NOW_MS, 1)


def test_empty_log_has_no_times() -> None:
    log = open_log(make_disk())
    assert log.offset_for_time(0) is None
    assert log.max_timestamp() is None


def test_append_time_counts_when_it_is_the_records_time() -> None:
    log = timed_log()
    append(log, batch([b"x"], timestamp=NOW_MS), epoch=3)
    assert log.offset_for_time(NOW_MS) == (len(TIMES) * 2, NOW_MS, 3)
