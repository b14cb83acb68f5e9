"""`penstock.log.follower_append`: the follower's side."""

import random

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.wire.records import batches, read_header, stamp
from simulation.disk import SimDisk
from tests.unit.log.building import (
    NOW_MS,
    SMALL,
    append,
    batch,
    disk_of,
    fill,
    flush,
    make_disk,
    marker,
    offsets,
    open_log,
    read_all,
    read_from,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")


def everything(log: Log) -> bytes:
    """The log as a fetch by a follower gets it."""
    return b"".join(
        segment.reveal(segment.file.read(0, segment.size), 0) for segment in log.segments
    )


def leader_log() -> Log:
    log = open_log(make_disk())
    for epoch in (1, 2, 4):
        for at in range(6):
            append(log, batch([b"%d" % at] * 2, producer=(9, epoch, 2 * at)), epoch=epoch)
    append(log, batch([b"t"], producer=(3, 0, 0), transactional=True), epoch=4)
    append(log, marker(3, 0, committed=False), epoch=4)
    return log


def test_follower_keeps_offsets_epochs_producers_and_bytes() -> None:
    leader = leader_log()
    follower = open_log(make_disk(), LogConfig(segment_bytes=700))
    data = everything(leader)
    assert follower.append_replica(memoryview(data), NOW_MS) == len(data)
    assert everything(follower) == data
    assert follower.end_offset == leader.end_offset
    assert follower.epochs.encode() == leader.epochs.encode()
    assert follower.producers.encode() == leader.producers.encode()
    assert follower.aborted(0, 100) == leader.aborted(0, 100)


def test_partial_batch_at_the_end_is_left_out() -> None:
    leader = leader_log()
    data = everything(leader)
    follower = open_log(make_disk())
    taken = follower.append_replica(memoryview(data[:-1]), NOW_MS)
    assert follower.end_offset == leader.end_offset - 1
    assert follower.append_replica(memoryview(data[taken:]), NOW_MS) == len(data) - taken
    assert follower.end_offset == leader.end_offset


def test_damage_in_transit_is_refused_and_earlier_batches_stay() -> None:
    data = bytearray(everything(leader_log()))
    data[500] ^= 1
    follower = open_log(make_disk())
    with pytest.raises(Refused) as refused:
        follower.append_replica(memoryview(data), NOW_MS)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert 0 < follower.end_offset < 37
    assert offsets(read_all(follower)) == list(range(follower.end_offset))


def test_batches_that_go_back_are_refused() -> None:
    data = everything(leader_log())
    follower = open_log(make_disk())
    follower.append_replica(memoryview(data), NOW_MS)
    with pytest.raises(Refused) as refused:
        follower.append_replica(memoryview(data), NOW_MS)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_gaps_of_a_compacted_leader_are_copied_and_can_be_read_across() -> None:
    follower = open_log(make_disk())
    for base_offset in (0, 10, 11, 30):
        made = batch([b"x" * 400])
        stamp(made, base_offset, 1)
        follower.append_as_is(made, read_header(made), NOW_MS)
    assert follower.end_offset == 31
    for forget in (False, True):
        for offset in range(31):
            if forget:
                follower.segments.active.drop_tail()
            expected = [one for one in (0, 10, 11, 30) if one >= offset]
            assert offsets(read_from(follower, offset)) == expected


@pytest.mark.parametrize("cut", [*range(1, 38, 4), 37])
def test_cut_takes_everything_that_came_after(cut: int) -> None:
    leader = leader_log()
    log = open_log(make_disk())
    log.append_replica(memoryview(everything(leader)), NOW_MS)
    flush(log)
    log.truncate_to(cut, NOW_MS)
    # A cut inside a batch takes the whole batch.
    assert log.end_offset == (cut if cut >= 36 else cut - cut % 2)
    assert log.durable_offset == log.end_offset
    assert offsets(read_all(log)) == list(range(log.end_offset))
    assert all(start < log.end_offset for start in log.epochs.starts)
    fresh = open_log(make_disk())
    for record_end in range(log.end_offset):
        assert log.epochs.of(record_end) == leader.epochs.of(record_end)
    fresh.append_replica(memoryview(everything(leader)[: len(everything(log))]), NOW_MS)
    assert log.producers.encode() == fresh.producers.encode()
    assert log.aborted(0, 100) == fresh.aborted(0, 100)
    again = open_log(disk_of(log))
    assert (again.offline, again.end_offset) == (None, log.end_offset)
    assert again.producers.encode() == log.producers.encode()


def test_log_goes_on_after_a_cut() -> None:
    log = open_log(make_disk())
    fill(log, 30)
    flush(log)
    log.truncate_to(11, NOW_MS)
    append(log, batch([b"new"]), epoch=2)
    flush(log)
    assert log.epoch_end(1) == (1, 11)
    assert read_all(log)[-1].value == b"new"
    again = open_log(disk_of(log))
    assert read_all(again) == read_all(log)


def test_index_written_before_a_cut_is_not_believed_after_it() -> None:
    config = LogConfig(index_interval_bytes=0)
    log = open_log(make_disk(), config)
    fill(log, 20)
    log.checkpoint_due = True
    flush(log)
    log.truncate_to(3, NOW_MS)
    fill(log, 30, value=b"w" * 33)
    again = open_log(disk_of(log), config)
    for offset in range(33):
        again.segments.active.drop_tail()
        assert offsets(read_from(again, offset)) == list(range(offset, 33))


def test_snapshot_taken_before_a_cut_is_not_believed_after_it() -> None:
    log = open_log(make_disk(), LogConfig())
    for at in range(10):
        append(log, batch(producer=(1, 0, at)))
    log.checkpoint_due = True
    flush(log)
    log.truncate_to(3, NOW_MS)
    for at in range(7):
        append(log, batch(producer=(2, 0, at)))
    expected = log.producers.encode()
    for clean in (None, log.close()):
        again = open_log(disk_of(log), LogConfig(), clean)
        assert again.producers.encode() == expected


def test_cut_above_the_end_does_nothing() -> None:
    log = open_log(make_disk())
    fill(log, 3)
    log.truncate_to(3, NOW_MS)
    log.truncate_to(9, NOW_MS)
    assert log.end_offset == 3


def test_cut_at_the_start_empties_the_log() -> None:
    for offset in (0, 5):
        log = open_log(make_disk())
        log.start_over(5)
        for _ in range(3):
            fill(log, 10)
        flush(log)
        log.truncate_to(offset, NOW_MS)
        assert (log.start_offset, log.end_offset, log.size_bytes) == (offset, offset, 0)
        assert log.epochs.epochs == []
        again = open_log(disk_of(log))
        assert (again.start_offset, again.end_offset) == (offset, offset)


@pytest.mark.parametrize("offset", [0, 10, 1000])
def test_follower_that_was_left_behind_starts_over_anywhere(offset: int) -> None:
    log = open_log(make_disk())
    fill(log, 30)
    flush(log)
    log.start_over(offset)
    assert (log.start_offset, log.end_offset, log.durable_offset) == (offset, offset, offset)
    fill(log, 3)
    flush(log)
    again = open_log(disk_of(log))
    assert offsets(read_all(again)) == [offset, offset + 1, offset + 2]


def test_reader_of_truncated_records_gets_nothing() -> None:
    log = open_log(make_disk())
    fill(log, 30)
    flush(log)
    spans = [log.locate(offset, 300, 30) for offset in (0, 12, 29)]
    log.truncate_to(1, NOW_MS)
    fill(log, 30)
    assert [span.read() for span in spans if span is not None] == [b"", b"", b""]


def test_log_is_not_cut_while_it_is_flushed() -> None:
    log = open_log(make_disk())
    fill(log, 3)
    log.begin_flush()
    with pytest.raises(AssertionError):
        log.truncate_to(1, NOW_MS)


@pytest.mark.parametrize(
    "how", ["truncate_to 13", "truncate_to 0", "start_over 100", "start_over 7"]
)
def test_power_cut_at_any_operation_of_a_cut_leaves_the_old_log_or_the_new(how: str) -> None:
    name, _, number = how.partition(" ")
    log = open_log(make_disk())
    for epoch in (1, 2, 3):
        for at in range(10):
            append(log, batch([b"x" * 90], producer=(1, epoch, at)), epoch=epoch)
    flush(log)
    disk = disk_of(log)
    rng = random.Random(3)
    cuts: list[SimDisk] = []
    disk.on_operation = lambda: cuts.extend(disk.crashed(rng) for _ in range(6))
    if name == "truncate_to":
        log.truncate_to(int(number), NOW_MS)
    else:
        log.start_over(int(number))
    disk.on_operation = None
    assert len(cuts) > 30
    for cut in cuts:
        again = open_log(cut, SMALL)
        assert again.offline is None
        if name == "truncate_to":
            assert int(number) <= again.end_offset <= 30
        assert offsets(read_all(again)) == list(range(again.start_offset, again.end_offset))
        if again.end_offset > again.start_offset:
            assert again.producers.by_id[1].batches[-1][3] == again.end_offset - 1
        fill(again, 2)
        flush(again)
        assert open_log(cut).end_offset == again.end_offset
    last = open_log(disk)
    assert last.end_offset == int(number)


@pytest.mark.parametrize("segment_bytes", [300, 700, 5_000, 1 << 20])
@pytest.mark.parametrize("cut", [1, 3, 1_000])
def test_batches_that_are_written_together_are_found_one_by_one(
    segment_bytes: int, cut: int
) -> None:
    leader = open_log(make_disk())
    for at in range(200):
        append(leader, batch([b"%d" % at] * (1 + at % 3), producer=(9, 1, 0)), epoch=1)
        leader.producers.by_id.clear()
    data = everything(leader)
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200)
    together, alone = open_log(make_disk(), config), open_log(make_disk(), config)
    sizes = [header.size_bytes for _, header in batches(memoryview(data))]
    for log, share in ((together, cut), (alone, 1)):
        position = 0
        for first in range(0, len(sizes), share):
            size = sum(sizes[first : first + share])
            view = memoryview(data)[position : position + size]
            assert log.append_replica(view, NOW_MS) == size
            position += size
    assert everything(together) == everything(alone) == data
    for one, other in zip(together.segments, alone.segments, strict=True):
        assert (one.base_offset, one.size) == (other.base_offset, other.size)
        assert list(one.load().keys) == list(other.load().keys)
        assert one.summary() == other.summary()
    assert together.producers.encode() == alone.producers.encode()
    for offset in range(0, together.end_offset, 37):
        assert read_from(together, offset) == read_from(alone, offset)


def test_batches_of_a_new_epoch_are_left_for_a_worker() -> None:
    leader = leader_log()
    data = memoryview(everything(leader))
    follower = open_log(make_disk())
    position, waits = 0, 0
    while position < len(data):
        taken = follower.append_replica(data[position:], NOW_MS, waits=False)
        position += taken
        if not taken:
            waits += 1
            follower.expect(read_header(data[position:]))
    assert waits == 3, "once for each epoch"
    assert everything(follower) == everything(leader)
    assert follower.epochs.encode() == leader.epochs.encode()


def test_batches_before_a_damaged_one_stay() -> None:
    leader = leader_log()
    data = bytearray(everything(leader))
    data[-1] ^= 1
    follower = open_log(make_disk())
    with pytest.raises(Refused):
        follower.append_replica(memoryview(data), NOW_MS)
    assert follower.end_offset == leader.end_offset - 1
    assert everything(follower) == bytes(data[: len(everything(follower))])


def test_epoch_without_a_batch_goes_with_the_next_cut() -> None:
    log = open_log(make_disk())
    append(log, batch([b"a"]), epoch=1)
    log.begin_epoch(7)
    log.sync()
    log.truncate_to(log.end_offset, NOW_MS)
    assert log.epochs.epochs == [1]
    other = open_log(make_disk())
    append(other, batch([b"a"]), epoch=1)
    append(other, batch([b"b"]), epoch=2)
    log.append_replica(memoryview(everything(other))[len(everything(log)) :], NOW_MS)
    assert everything(log) == everything(other)
