"""Close of one log and of many logs at once, on a disk whose power may fail at any operation."""

import errno
import random

import pytest

from penstock.log import files as store
from penstock.log import persistence
from penstock.log.config import LogConfig
from penstock.log.log import CleanState, Log
from penstock.log.persistence import SYNC_ALL_LOGS, close_logs
from simulation.disk import Fault, SimDisk
from tests.unit.log.building import NOW_MS, append, batch, fill, flush, offsets, read_all

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=400)
MANY = SYNC_ALL_LOGS + 3


class Counting(SimDisk):
    """Disk that counts the syncs of the whole file system."""

    synced = 0

    def sync_all(self, path: str) -> None:
        self.synced += 1
        super().sync_all(path)


def make_disk(seed: int = 0) -> Counting:
    disk = Counting(seed, journaled=False)
    disk.mkdir("/data")
    disk.sync_dir("/")
    return disk


def open_one(disk: SimDisk, index: int, clean: CleanState | None = None) -> Log:
    return Log.open(disk, f"/data/topic-{index}", CONFIG, NOW_MS, clean)


def grow(disk: SimDisk, count: int, length: int = 12) -> list[Log]:
    """Logs with some durable batches, and some that are only written."""
    logs = [open_one(disk, index) for index in range(count)]
    for log in logs:
        append(log, batch(producer=(9, 0, 0)))
        fill(log, length - 1)
        flush(log)
        fill(log, length)
    return logs


def states_of(closed: list[CleanState | OSError | None]) -> list[CleanState]:
    assert all(isinstance(one, CleanState) for one in closed), closed
    return [one for one in closed if isinstance(one, CleanState)]


def test_many_logs_are_closed_with_two_syncs_and_none_of_their_own() -> None:
    disk = make_disk()
    logs = grow(disk, MANY)
    disk.inject(Fault("sync", times=1000))
    disk.inject(Fault("sync_dir", times=1000))
    states = states_of(close_logs(logs))
    assert disk.synced == 2
    disk.heal()
    after = disk.crashed(random.Random(1))
    for index, clean in enumerate(states):
        again = open_one(after, index, clean)
        assert (again.offline, again.end_offset, again.changed) == (None, 24, False)
        assert offsets(read_all(again)) == list(range(24))


def test_few_logs_are_closed_without_a_sync_of_the_file_system() -> None:
    disk = make_disk()
    states = states_of(close_logs(grow(disk, SYNC_ALL_LOGS)))
    assert disk.synced == 0
    after = disk.crashed(random.Random(1))
    for index, clean in enumerate(states):
        assert offsets(read_all(open_one(after, index, clean))) == list(range(24))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("length", [2, 12])
def test_power_cut_during_a_close_of_many_loses_nothing(seed: int, length: int) -> None:
    disk = make_disk(seed)
    logs = grow(disk, MANY, length)
    rng = random.Random(seed)
    left: list[SimDisk] = []
    disk.on_operation = lambda: left.append(disk.crashed(rng))
    states_of(close_logs(logs))
    disk.on_operation = None
    left.append(disk.crashed(rng))
    assert len(left) > 8 * MANY
    for cut in left:
        for index in range(MANY):
            again = open_one(cut, index)
            assert again.offline is None
            assert again.end_offset >= length
            assert offsets(read_all(again)) == list(range(again.end_offset))
            assert 9 in again.producers.by_id


def test_failed_sync_leaves_no_state_of_changed_logs() -> None:
    disk = make_disk()
    closed = states_of(close_logs(grow(disk, 2 * MANY)))
    logs = [open_one(disk, index, clean) for index, clean in enumerate(closed)]
    for log in logs[:MANY]:
        fill(log, 1)
    disk.inject(Fault("sync_all", errno.EIO))
    again = close_logs(logs)
    assert all(isinstance(one, OSError) for one in again[:MANY])
    assert all(log.offline is not None for log in logs[:MANY])
    assert again[MANY:] == closed[MANY:]


def test_second_failed_sync_leaves_no_state_of_changed_logs() -> None:
    disk = make_disk()
    logs = grow(disk, MANY)
    disk.inject(Fault("sync_all", errno.EIO, skip=1))
    assert all(isinstance(one, OSError) for one in close_logs(logs))


@pytest.mark.parametrize("operation", ["append", "rename"])
@pytest.mark.parametrize("count", [3, MANY])
def test_failed_write_of_one_log_does_not_stop_the_rest(operation: str, count: int) -> None:
    disk = make_disk()
    logs = grow(disk, count)
    disk.inject(Fault(operation, errno.ENOSPC, path="topic-1/"))
    closed = close_logs(logs)
    failed = [index for index, one in enumerate(closed) if isinstance(one, OSError)]
    assert failed == [1]
    assert "could not be closed" in (logs[1].offline or "")
    after = disk.crashed(random.Random(3))
    assert offsets(read_all(open_one(after, 1)))[:12] == list(range(12))


def test_offline_log_is_left_alone() -> None:
    disk = make_disk()
    logs = grow(disk, MANY)
    logs[2].fail("for a reason")
    closed = close_logs(logs)
    assert closed[2] is None
    assert sum(isinstance(one, CleanState) for one in closed) == MANY - 1


@pytest.mark.parametrize("count", [1, MANY])
def test_short_log_gets_no_caches_and_keeps_its_producers(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = make_disk()
    logs = [open_one(disk, index) for index in range(count)]
    for log in logs:
        append(log, batch(producer=(9, 0, 0)))
    states = states_of(close_logs(logs))
    assert disk.listdir("/data/topic-0") == [
        "00000000000000000000.log",
        store.CHECKPOINT,
        store.LEADER_EPOCHS,
    ]
    for clean in (states[0], None):
        again = open_one(disk.crashed(random.Random(0)), 0, clean)
        assert append(again, batch(producer=(9, 0, 0))).duplicate
    # Larger ones keep theirs.
    monkeypatch.setattr(persistence, "SYNC_ALL_LOGS", 0)
    log = open_one(disk, 0, states[0])
    fill(log, 10)
    states_of(close_logs([log]))
    assert [name for name in disk.listdir(log.path) if name.endswith(store.SNAPSHOT)]
    assert [name for name in disk.listdir(log.path) if name.endswith(store.INDEX)]


def test_short_segment_after_others_keeps_the_state_of_its_snapshot() -> None:
    """Batches of a producer may be gone with an earlier segment: only a snapshot has it then."""
    disk = make_disk()
    log = open_one(disk, 0)
    append(log, batch(producer=(9, 0, 0)))
    fill(log, 10)
    log.roll()
    append(log, batch(producer=(10, 0, 0)))
    clean = log.close()
    names = disk.listdir(log.path)
    assert store.file_name(11, store.SNAPSHOT) in names
    assert store.file_name(11, store.INDEX) not in names
    for state in (clean, None):
        again = open_one(disk.crashed(random.Random(0)), 0, state)
        assert set(again.producers.by_id) == {9, 10}


def test_short_segment_without_the_snapshot_of_its_start_gets_one() -> None:
    disk = make_disk()
    log = open_one(disk, 0)
    append(log, batch(producer=(9, 0, 0)))
    fill(log, 10)
    log.roll()
    append(log, batch(producer=(10, 0, 0)))
    clean = log.close()
    disk.unlink(store.join(log.path, store.file_name(11, store.SNAPSHOT)))
    again = open_one(disk, 0, clean)
    fill(again, 1)
    states_of(close_logs([again]))
    assert store.file_name(13, store.SNAPSHOT) in disk.listdir(log.path)
