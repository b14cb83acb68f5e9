"""`penstock.log.recovery`: committed records are never truncated, a lost log is not new."""

import logging
import struct
from dataclasses import replace

import pytest

from penstock.log import doubtful_tail
from penstock.log.log import Log
from simulation.disk import SimDisk
from tests.unit.log.building import (
    NOW_MS,
    PATH,
    SMALL,
    Mode,
    fill,
    make_disk,
    offsets,
    open_log,
    read_all,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")


def reopen(disk: SimDisk, known_end: int) -> Log:
    config = SMALL
    if Mode.keyring is not None:
        config = replace(SMALL, encrypted=True)
    return Log.open(disk, PATH, config, NOW_MS, None, Mode.keyring, known_end)


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {path: disk.open(path).read(0, 1 << 20) for path in disk.files()}


def written(count: int = 30) -> SimDisk:
    disk = make_disk()
    log = open_log(disk)
    fill(log, count)
    log.sync()  # And no checkpoint.
    return disk


def last_segment(disk: SimDisk) -> str:
    return max(path for path in disk.files() if path.endswith(".log"))


@pytest.mark.parametrize("known_end", [0, 30])
def test_known_log_without_its_directory_is_lost_and_stays_lost(known_end: int) -> None:
    disk = written()
    disk.remove_path(PATH)
    for _ in range(2):
        log = reopen(disk, known_end)
        assert log.is_lost
        assert log.offline is not None
        assert str(known_end) in log.offline
        assert not disk.exists(PATH), "nothing is made in its place"
        assert log.close() is None


def test_known_log_without_its_segments_is_lost() -> None:
    disk = written()
    for path in disk.files():
        if path.endswith((".log", "checkpoint")):
            disk.unlink(path)
    assert reopen(disk, 30).is_lost
    assert not any(path.endswith(".log") for path in disk.files())


def test_unknown_log_without_its_directory_is_new() -> None:
    log = reopen(make_disk(), -1)
    assert (log.offline, log.is_lost, log.end_offset) == (None, False, 0)


@pytest.mark.parametrize("byte", [70, 200, 400])
def test_flipped_bit_below_the_known_end_cuts_nothing(byte: int) -> None:
    disk = written()
    disk.flip_bit(last_segment(disk), byte * 8)
    before = contents(disk)
    for _ in range(2):
        log = reopen(disk, 30)
        assert log.is_lost
        assert log.offline is not None
        assert "30" in log.offline
        assert contents(disk) == before, "the files are kept as they are"


def test_segment_that_is_short_below_the_known_end_cuts_nothing() -> None:
    disk = written()
    disk.shorten(last_segment(disk), 150)
    before = contents(disk)
    assert reopen(disk, 30).is_lost
    assert contents(disk) == before


def test_missing_last_segment_is_a_loss_if_its_records_were_committed() -> None:
    disk = written()
    disk.unlink(last_segment(disk))
    assert reopen(disk, 30).is_lost
    assert not open_log(disk).is_lost


def test_torn_tail_above_the_known_end_is_cut_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = written()
    path = last_segment(disk)
    size = disk.size(path)
    disk.shorten(path, size - 5)
    with caplog.at_level(logging.WARNING, "penstock.log"):
        log = reopen(disk, 29)
    assert (log.offline, log.end_offset) == (None, 29)
    assert offsets(read_all(log)) == list(range(29))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "truncated at offset 29" in said
    assert path.lstrip("/") in said


def test_whole_log_logs_no_torn_tail(caplog: pytest.LogCaptureFixture) -> None:
    disk = written()
    with caplog.at_level(logging.WARNING, "penstock.log"):
        assert reopen(disk, 30).end_offset == 30
    assert not caplog.records


@pytest.mark.parametrize(
    "byte",
    [3, 8, 10, 11, 14, 16, 18, 65],
    ids=["offset", "length", "length", "length", "epoch", "magic", "crc", "body"],
)
def test_bad_batch_before_intact_ones_makes_the_end_doubtful(
    byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = written()
    disk.flip_bit(last_segment(disk), byte * 8)
    with caplog.at_level(logging.ERROR, "penstock.log"):
        log = reopen(disk, 0)
    assert (log.offline, log.is_doubtful) == (None, True)
    assert log.end_offset < 30
    assert "unless the machine lost power" in caplog.text
    assert reopen(disk, 0).is_doubtful, "until the replica has left the ISR"
    doubtful_tail.settle(disk, [PATH])
    assert not reopen(disk, 0).is_doubtful


def test_whole_bad_batch_at_the_end_makes_it_doubtful() -> None:
    disk = written()
    path = last_segment(disk)
    disk.flip_bit(path, disk.size(path) * 8 - 1)
    log = reopen(disk, 0)
    assert (log.end_offset, log.is_doubtful) == (29, True)


def test_bad_batch_before_a_segment_makes_the_end_doubtful() -> None:
    disk = written()
    paths = sorted(path for path in disk.files() if path.endswith(".log"))
    assert len(paths) > 1
    disk.shorten(paths[0], disk.size(paths[0]) - 5)
    assert reopen(disk, 0).is_doubtful


@pytest.mark.parametrize("bytes_left", [5, 61, 70])
def test_write_that_was_cut_off_leaves_no_doubt(bytes_left: int) -> None:
    disk = written(29)
    path = last_segment(disk)
    size = disk.size(path)
    other = written(30)
    assert last_segment(other) == path
    file = disk.open(path)
    file.append((other.open(path).read(size, bytes_left),))
    log = reopen(disk, 0)
    assert (log.end_offset, log.is_doubtful) == (29, False)


def test_tail_of_zeros_leaves_no_doubt() -> None:
    disk = written()
    disk.open(last_segment(disk)).append((bytes(5_000),))
    log = reopen(disk, 0)
    assert (log.end_offset, log.is_doubtful) == (30, False)


@pytest.mark.parametrize(
    ("count", "is_doubtful"),
    [(doubtful_tail.CANDIDATES_MAX, False), (doubtful_tail.CANDIDATES_MAX + 1, True)],
)
def test_torn_tail_with_imitated_headers_is_checked_up_to_a_limit(
    count: int, is_doubtful: bool
) -> None:
    disk = written()
    path = last_segment(disk)
    # A batch that claims more than the file holds, of payloads that look like headers.
    header = struct.pack(">qiiB", 30, 1 << 20, 0, 2).ljust(64, b"\x01")
    imitation = struct.pack(">qiiB", 0, 60, 0, 2).ljust(64, b"\x01")
    tail = header + imitation * (count - 1)
    disk.open(path).append((tail,))
    assert tail.count(struct.pack(">iB", 0, 2)) == count
    assert reopen(disk, 0).is_doubtful is is_doubtful
