"""`log.expected_batches`: a wrong bit in an offset or a leader epoch, which no CRC covers."""

import dataclasses

import pytest

from penstock.base.errors import Corrupt, Refused
from penstock.log import files
from penstock.log.cleanup import compaction
from penstock.log.expected_batches import EVERYWHERE, ExpectedBatches, read_gaps, write_gaps
from penstock.log.leader_epochs import Epochs
from penstock.log.log import CleanState, Log
from penstock.wire.records import BatchHeader, batches, check_stored, stamp
from simulation.disk import SimDisk
from tests.unit.log.building import (
    NOW_MS,
    PATH,
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
    swap_in,
)

UNCOVERED = (*range(8), *range(12, 16))
COMPACT = dataclasses.replace(SMALL, cleanup_compact=True, min_cleanable_dirty_ratio=0.0)


def closed_log() -> tuple[SimDisk, CleanState, bytes]:
    """Two epochs in three segments, all below the recovery point; what it serves."""
    log = open_log(make_disk())
    fill(log, 6)
    append(log, batch([b"x" * 100]), epoch=2)
    fill(log, 9)
    flush(log)
    disk = disk_of(log)
    clean = log.close()
    assert clean is not None
    return disk, clean, b"".join(served_by(open_log(disk, clean=clean), 0))


def served_by(log: Log, offset: int) -> list[bytes]:
    """Offsets that a consumer gets batch by batch; raises as the log does."""
    found = []
    while offset < log.end_offset:
        span = log.locate(offset, 1, log.end_offset)
        assert span is not None
        data = span.read_cached()
        data = span.read() if data is None else data
        [(_, header)] = batches(memoryview(data))
        assert header.base_offset <= offset < header.next_offset, "offsets were skipped"
        found.append(bytes(data))
        offset = header.next_offset
    return found


@pytest.mark.parametrize("is_clean", [True, False])
def test_any_bit_outside_the_crc_is_noticed_from_wherever_one_reads(is_clean: bool) -> None:
    disk, clean, intact = closed_log()
    assert len(clean.segments) >= 3
    starts = [header.base_offset for _, header in batches(memoryview(intact))]
    flipped = 0
    for state in clean.segments:
        path = f"{PATH}/{files.file_name(state.base_offset, files.LOG)}"
        data = memoryview(disk.open(path).read(0, state.size))
        for position, header in list(batches(data)):
            for bit in range(0, 8 * len(UNCOVERED), 7):
                at = 8 * (position + UNCOVERED[bit // 8]) + bit % 8
                disk.flip_bit(path, at)
                for start in (0, starts[len(starts) // 2], header.base_offset):
                    check_damaged(disk, clean if is_clean else None, start, intact, header)
                disk.flip_bit(path, at)
                flipped += 1
    assert flipped > 200
    assert b"".join(served_by(open_log(disk, clean=clean), 0)) == intact


def check_damaged(
    disk: SimDisk, clean: CleanState | None, start: int, intact: bytes, header: BatchHeader
) -> None:
    """Either the log is offline, or reading up to the damage raises, and nothing else is served."""
    log = open_log(disk, clean=clean)
    try:
        for data in served_by(log, start):
            assert data in intact, "served changed"
    except Corrupt:
        return
    except Refused:
        assert log.offline is not None
        return
    assert start > header.base_offset, "the damaged batch was served, or skipped"


def test_wrong_offset_in_the_tail_is_a_torn_tail() -> None:
    log = open_log(make_disk())
    fill(log, 3)
    flush(log)
    log.close()
    log = open_log(disk_of(log))
    position = log.segments.active.size
    fill(log, 2)
    disk = disk_of(log)
    disk.flip_bit(log.segments.active.path + files.LOG, 8 * (position + 6))
    again = open_log(disk)
    assert (again.offline, again.end_offset) == (None, 3)
    assert offsets(read_all(again)) == [0, 1, 2]


def test_compacted_log_with_gaps_opens() -> None:
    log = open_log(make_disk(), COMPACT)
    for at in range(30):
        append(log, batch([b"v" * 100], key=b"key-%d" % (at % 3)))
    log.roll()
    flush(log)
    plan = compaction.plan(log, NOW_MS, log.end_offset)
    assert plan is not None
    swap_in(log, compaction.execute(plan), NOW_MS)
    flush(log)
    assert read_gaps(log.disk, log.path) == log.gaps_end == 30
    fill(log, 5)
    flush(log)
    kept = offsets(read_all(log))
    assert len(kept) < 15
    disk = disk_of(log)
    assert offsets(read_all(open_log(disk, COMPACT))) == kept
    again = open_log(disk, COMPACT)
    assert [segment.expected and segment.expected.is_dense for segment in again.segments][-1]
    assert not (again.segments[0].expected and again.segments[0].expected.is_dense)


def test_replica_of_a_compacted_log_with_gaps_opens() -> None:
    log = open_log(make_disk())
    for offset in (0, 5, 6):
        made = batch([b"x"])
        stamp(made, offset, 1)
        log.append_replica(made, NOW_MS)
    flush(log)
    assert read_gaps(log.disk, log.path) == EVERYWHERE
    for clean in (None, log.close()):
        assert offsets(read_all(open_log(disk_of(log), clean=clean))) == [0, 5, 6]


def test_damaged_file_of_gaps_allows_them_everywhere() -> None:
    disk = make_disk()
    disk.mkdir(PATH)
    assert read_gaps(disk, PATH) == 0
    write_gaps(disk, PATH, 7)
    assert read_gaps(disk, PATH) == 7
    disk.flip_bit(f"{PATH}/{files.GAPS}", 70)
    assert read_gaps(disk, PATH) == EVERYWHERE


def header_at(offset: int, epoch: int) -> BatchHeader:
    made = batch([b"x", b"y"])
    stamp(made, offset, epoch)
    return check_stored(made)


def test_place_is_exact_where_there_are_no_gaps_and_bounded_where_there_are() -> None:
    epochs = Epochs()
    epochs.begin(3, 10)
    epochs.begin(4, 20)
    dense, sparse = ExpectedBatches(True, epochs, 30), ExpectedBatches(False, epochs, 30)
    assert dense.admits(header_at(12, 3), 12)
    assert not dense.admits(header_at(13, 3), 12)
    assert sparse.admits(header_at(13, 3), 12)
    for expected in (dense, sparse):
        assert not expected.admits(header_at(11, 3), 12)
        assert not expected.admits(header_at(29, 4), 29), "it would reach beyond the end"
        assert not expected.admits(header_at(12, 4), 12)
        assert not expected.admits(header_at(20, 3), 20)
        assert expected.admits(header_at(4, 9), 4), "older than the epochs that are known"
