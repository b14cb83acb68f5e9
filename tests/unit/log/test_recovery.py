"""`penstock.log.recovery`: clean stops, power cuts at every operation, and damage."""

import random

import pytest

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.log import files as store
from penstock.log import persistence
from penstock.log.config import LogConfig
from penstock.log.log import SNAPSHOTS_KEPT, Log
from penstock.wire.records import Record
from simulation.disk import SimDisk
from tests.unit.log.building import (
    NOW_MS,
    PATH,
    SMALL,
    append,
    batch,
    fill,
    flush,
    make_disk,
    marker,
    offsets,
    open_log,
    read_all,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")


def log_path(base_offset: int) -> str:
    return f"{PATH}/{base_offset:020d}.log"


def write_zeros(disk: SimDisk, base_offset: int, count: int) -> None:
    disk.open(log_path(base_offset)).append((bytes(count),))


# Clean stops.


def test_clean_stop_is_believed_without_reading_a_segment() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 30)
    append(log, batch(producer=(9, 0, 0)))
    clean = log.close()
    for segment in log.segments:
        disk.damage(segment.path + store.LOG, 0)
    again = open_log(disk, clean=clean)
    assert (again.offline, again.end_offset, again.durable_offset) == (None, 31, 31)
    assert append(again, batch(producer=(9, 0, 0))).duplicate


def test_log_that_was_not_changed_writes_nothing_when_it_closes() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 30)
    clean = log.close()
    before = disk.operations
    again = open_log(disk, clean=clean)
    assert offsets(read_all(again)) == list(range(30))
    assert again.close() == clean
    assert disk.operations == before


def test_clean_state_that_does_not_fit_the_files_is_not_believed() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 5)
    clean = log.close()
    again = open_log(disk, clean=clean)
    fill(again, 5)
    flush(again)
    after = open_log(disk, clean=clean)
    assert after.end_offset == 10
    assert offsets(read_all(after)) == list(range(10))


@pytest.mark.parametrize("suffix", [store.INDEX, store.TIME_INDEX])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_index_in_doubt_is_rebuilt(suffix: str, how: str) -> None:
    disk = make_disk()
    log = open_log(disk)
    for at in range(40):
        append(log, batch([b"x" * 100], timestamp=NOW_MS + 10 * at))
    clean = log.close()
    for segment in log.segments:
        if how == "missing":
            disk.unlink(segment.path + suffix)
        else:
            disk.flip_bit(segment.path + suffix, 8 * (disk.size(segment.path + suffix) - 1))
    again = open_log(disk, clean=clean)
    assert offsets(read_all(again)) == list(range(40))
    assert again.offset_for_time(NOW_MS + 255) == (26, NOW_MS + 260, 1)
    for one, other in zip(log.segments, again.segments, strict=True):
        one.load(), other.load()
        assert one.index is not None
        assert other.index is not None
        assert (one.index.keys, one.index.values) == (other.index.keys, other.index.values)


# Torn tails.


@pytest.mark.parametrize("cut", [1, 60, 61, 100])
def test_torn_tail_is_truncated(cut: int) -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 3)
    flush(log)
    last = log.segments.active.file
    last.truncate(last.size() - cut)
    again = open_log(disk)
    assert (again.offline, again.end_offset) == (None, 2)
    fill(again, 1)
    assert offsets(read_all(again)) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 61, 200, 5000])
def test_tail_of_zeros_is_truncated(count: int) -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 3)
    write_zeros(disk, 0, count)
    again = open_log(disk)
    assert again.end_offset == 3
    assert disk.size(log_path(0)) == again.segments.active.size


def test_log_is_truncated_at_the_first_bad_batch() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 20)
    assert len(log.segments) > 2
    disk.flip_bit(log_path(0), 8 * 250)
    again = open_log(disk)
    assert (again.offline, again.end_offset, len(again.segments)) == (None, 1, 1)
    assert [name for name in disk.files() if name.endswith(".log")] == [log_path(0)]


def test_offset_that_goes_back_is_a_torn_tail() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 2)
    active = log.segments.active
    active.file.append((active.file.read(0, active.size // 2),))
    again = open_log(disk)
    assert again.end_offset == 2


def test_older_batch_at_the_recovery_point_is_a_torn_tail() -> None:
    disk = make_disk()
    log = open_log(disk, LogConfig())
    fill(log, 5)
    log.checkpoint_due = True
    flush(log)
    active = log.segments.active
    active.file.append((active.file.read(0, active.size),))
    again = open_log(disk, LogConfig())
    assert again.end_offset == 5
    assert again.segments.active.size == active.size


def test_recovered_data_is_synced_before_it_counts_as_durable() -> None:
    disk = make_disk()
    log = open_log(disk)
    fill(log, 3)
    disk.sync_dir(PATH)  # The file is there, but nothing of it was synced.
    again = open_log(disk)
    assert again.durable_offset == 3
    for seed in range(20):
        after = open_log(disk.crashed(random.Random(seed)))
        assert after.end_offset == 3


# Damage below the recovery point.


def checkpointed_log(disk: SimDisk) -> Log:
    """Several segments, all below the recovery point, and a tail above it."""
    log = open_log(disk)
    fill(log, 30)
    flush(log)
    fill(log, 2)
    return log


def test_file_that_lost_durable_bytes_is_quarantined() -> None:
    disk = make_disk()
    log = checkpointed_log(disk)
    point = store.read_checkpoint(disk, PATH)
    assert point is not None
    log.segments.floor(point.segment).file.truncate(point.position - 1)
    files = disk.files()
    again = open_log(disk)
    assert again.offline is not None
    with pytest.raises(Refused) as refused:
        again.locate(0, 100, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused):
        fill(again, 1)
    assert disk.files() == files, "a quarantined log is left alone"


def test_log_whose_segments_are_gone_is_quarantined() -> None:
    disk = make_disk()
    log = checkpointed_log(disk)
    for segment in log.segments:
        disk.unlink(segment.path + store.LOG)
    assert open_log(disk).offline is not None


def test_damage_below_the_recovery_point_is_never_truncated_and_never_served() -> None:
    disk = make_disk()
    log = checkpointed_log(disk)
    sizes = [segment.size for segment in log.segments]
    disk.flip_bit(log_path(0), 8 * 200)
    again = open_log(disk)
    assert (again.offline, again.end_offset) == (None, 32)
    with pytest.raises(Corrupt):
        read_all(again)
    assert [disk.size(segment.path + store.LOG) for segment in log.segments] == sizes


def test_only_the_last_segment_may_be_torn_with_a_damaged_checkpoint() -> None:
    disk = make_disk()
    log = checkpointed_log(disk)
    disk.flip_bit(store.join(PATH, store.CHECKPOINT), 100)
    sealed = log.segments.sealed
    write_zeros(disk, log.segments.active.base_offset, 10)
    assert open_log(disk).end_offset == 32
    disk.flip_bit(store.join(PATH, store.CHECKPOINT), 100)
    disk.flip_bit(log_path(0), 8 * 200)
    again = open_log(disk)
    assert [segment.base_offset for segment in again.segments.sealed] == [
        segment.base_offset for segment in sealed
    ]


def test_bytes_of_an_earlier_process_are_checked_when_first_read() -> None:
    disk = make_disk()
    log = open_log(disk, LogConfig())
    fill(log, 10)
    again = open_log(disk, LogConfig(), log.close())
    active = again.segments.active
    assert (active.unverified_start, active.unverified_end) == (0, active.size)
    span = again.locate(0, 500, 10)
    assert span is not None
    assert span.read_cached() is None
    assert 0 < len(span.read()) <= 500
    assert 0 < active.unverified_start < 500
    fill(again, 1)
    appended = again.locate(10, 500, 11)
    assert appended is not None
    assert appended.read_cached() is not None
    read_all(again)
    assert active.unverified_start == active.unverified_end
    disk.flip_bit(log_path(0), 8 * 200)
    second = open_log(disk, LogConfig(), again.close())
    with pytest.raises(Corrupt):
        read_all(second)


# Producers and epochs.


def producer_states(log: Log) -> dict[int, tuple[int, list[tuple[int, ...]]]]:
    return {
        producer_id: (producer.epoch, list(producer.batches))
        for producer_id, producer in sorted(log.producers.by_id.items())
    }


def with_producers(log: Log, count: int) -> None:
    for at in range(count):
        append(log, batch([b"x" * 50], producer=(at % 3, 0, at // 3)))


@pytest.mark.parametrize("lost", ["none", "all", "newest", "damaged"])
def test_producers_are_rebuilt_without_usable_snapshots(lost: str) -> None:
    disk = make_disk()
    log = open_log(disk)
    with_producers(log, 40)
    flush(log)
    with_producers_again = producer_states(log)
    snapshots = [path for path in disk.files() if path.endswith(store.SNAPSHOT)]
    assert len(snapshots) > 2
    for path in {"none": [], "all": snapshots, "newest": snapshots[-1:]}.get(lost, []):
        disk.unlink(path)
    if lost == "damaged":
        for path in snapshots:
            disk.flip_bit(path, 99)
    again = open_log(disk)
    assert producer_states(again) == with_producers_again
    assert append(again, batch([b"x" * 50], producer=(0, 0, 13))).duplicate


def test_producers_are_replayed_from_a_snapshot_inside_a_segment() -> None:
    disk = make_disk()
    log = open_log(disk, LogConfig())
    with_producers(log, 40)
    log.checkpoint_due = True
    flush(log)
    for at in range(40, 43):
        append(log, batch([b"x" * 50], producer=(at % 3, 0, at // 3)))
    again = open_log(disk, LogConfig())
    assert producer_states(again) == producer_states(log)


def test_clean_stop_without_its_snapshot_still_knows_its_producers() -> None:
    disk = make_disk()
    log = open_log(disk)
    with_producers(log, 40)
    clean = log.close()
    for path in disk.files():
        if path.endswith(store.SNAPSHOT):
            disk.unlink(path)
    assert producer_states(open_log(disk, clean=clean)) == producer_states(log)


def test_old_snapshots_are_pruned() -> None:
    disk = make_disk()
    log = open_log(disk)
    for _ in range(10):
        with_producers(log, 0)
        fill(log, 10)
        log.checkpoint_due = True
        flush(log)
    snapshots = [path for path in disk.files() if path.endswith(store.SNAPSHOT)]
    assert len(snapshots) <= len(log.segments) + SNAPSHOTS_KEPT
    assert len(snapshots) == len(log.snapshots)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_leader_epochs_in_doubt_are_rebuilt_from_the_batches(how: str) -> None:
    disk = make_disk()
    log = open_log(disk)
    for epoch in (1, 1, 3, 4, 4):
        append(log, batch(), epoch=epoch)
    clean = log.close()
    path = store.join(PATH, store.LEADER_EPOCHS)
    if how == "missing":
        disk.unlink(path)
    else:
        disk.flip_bit(path, 70)
    for state in (clean, None):
        again = open_log(disk, clean=state)
        assert (again.epochs.epochs, again.epochs.starts) == ([1, 3, 4], [0, 2, 3])


def test_epoch_whose_batches_were_torn_off_is_forgotten() -> None:
    disk = make_disk()
    log = open_log(disk)
    append(log, batch(), epoch=1)
    flush(log)
    append(log, batch(), epoch=2)
    active = log.segments.active.file
    active.truncate(active.size() - 1)
    again = open_log(disk)
    assert (again.epochs.epochs, again.end_offset) == ([1], 1)


# Power cuts.


class Watched:
    """A log under load, and what must be true after a power cut at any moment of it."""

    def __init__(self, config: LogConfig, seed: int) -> None:
        self.disk = make_disk(seed)
        self.config = config
        self.rng = random.Random(seed)
        self.written: list[Record] = []
        self.durable = 0
        self.cuts = 0
        self.log = open_log(self.disk, config)
        self.disk.on_operation = self.cut

    def run(self, steps: int) -> None:
        sequence = 0
        for step in range(steps):
            epoch = 1 + step // 10
            values = [b"%d" % step * 40] * self.rng.randint(1, 3)
            made = batch(values, producer=(7, 0, sequence))
            sequence += len(values)
            # Before the append: a cut in the middle of it may leave the batch or not.
            start = self.log.end_offset
            self.written += [Record(start + at, value=one) for at, one in enumerate(values)]
            append(self.log, made, epoch=epoch)
            if self.rng.random() < 0.3:
                flush(self.log)
                self.durable = self.log.durable_offset
            if self.rng.random() < 0.1:
                self.log.roll()

    def cut(self) -> None:
        self.cuts += 1
        disk = self.disk.crashed(random.Random(self.rng.getrandbits(32)))
        after = open_log(disk, self.config)
        assert after.offline is None
        assert after.end_offset >= self.durable
        found = read_all(after)
        expected = self.written[: len(found)]
        assert len(found) == after.end_offset
        assert [(r.offset, r.value) for r in found] == [(r.offset, r.value) for r in expected]
        if found:
            batches = after.producers.by_id[7].batches
            assert batches[-1][3] == after.end_offset - 1
            assert after.epochs.of(after.end_offset - 1) == after.epochs.latest
        fill(after, 3)
        assert offsets(read_all(after)) == list(range(after.end_offset))


@pytest.mark.parametrize("seed", range(4))
def test_power_cut_at_any_operation_loses_nothing_that_was_durable(seed: int) -> None:
    watched = Watched(SMALL, seed)
    watched.run(25)
    assert watched.cuts > 60


def test_recovery_that_is_cut_off_can_be_repeated() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        disk = make_disk(seed)
        log = open_log(disk)
        fill(log, 15)
        flush(log)
        fill(log, 15)
        disk.crash(rng)
        cut_points: list[SimDisk] = []
        disk.on_operation = lambda: cut_points.append(disk.crashed(rng))  # noqa: B023
        open_log(disk)
        for cut in cut_points:
            again = open_log(cut)
            assert again.offline is None
            assert again.end_offset >= 15
            assert offsets(read_all(again)) == list(range(again.end_offset))


def test_scan_starts_at_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "CHECKPOINT_BYTES", 1000)
    disk = make_disk()
    log = open_log(disk, LogConfig())
    for _ in range(10):
        fill(log, 10)
        flush(log)
    point = store.read_checkpoint(disk, PATH)
    assert point is not None
    assert point.recovery_point >= 90
    disk.damage(log_path(0), 600)
    again = open_log(disk, LogConfig())
    assert (again.offline, again.end_offset) == (None, 100)


def test_aborted_transaction_is_known_after_a_crash() -> None:
    disk = make_disk()
    log = open_log(disk)
    append(log, batch(producer=(1, 0, 0), transactional=True))
    fill(log, 15)
    append(log, marker(1, 0, committed=False))
    append(log, batch(producer=(2, 0, 0), transactional=True))
    expected = log.aborted(0, log.end_offset)
    assert [txn[:3] for txn in expected] == [(1, 0, 16)]
    again = open_log(disk)
    assert again.aborted(0, again.end_offset) == expected
    assert again.last_stable_offset(again.end_offset) == 17
