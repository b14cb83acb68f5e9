"""A new log in the place of a damaged one, whatever happens on the way."""

import random

import pytest

from penstock.cluster.replication.log_repair import rebuild
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.wire.records import Record, encode, read_header
from simulation.disk import PowerCut, SimDisk

PATH = "data/t-0"


def damaged(seed: int = 1) -> SimDisk:
    disk = SimDisk(seed)
    disk.mkdir("data")
    disk.sync_dir("")
    log = Log.open(disk, PATH, LogConfig(), 0)
    disk.sync_dir("data")
    for number in range(10):
        batch = memoryview(encode([Record(0, 1, None, b"%d" % number, ())]))
        log.append(batch, read_header(batch), 1, 0)
    log.sync()
    return disk


def test_rebuild_removes_old_files_and_starts_empty() -> None:
    disk = damaged()
    log = rebuild(disk, PATH, LogConfig(), 0)
    assert (log.start_offset, log.end_offset, log.offline) == (0, 0, None)
    assert disk.listdir("data") == ["t-0"]
    assert rebuild(disk, PATH, LogConfig(), 0).end_offset == 0, "it can be done again"


@pytest.mark.parametrize("step", range(1, 10))
def test_crash_during_rebuild_leaves_the_old_log_or_a_new_one(step: int) -> None:
    disk = damaged()
    disk.crash_after(step)
    try:
        rebuild(disk, PATH, LogConfig(), 0)
    except PowerCut:
        disk.crash(random.Random(step))
    log = Log.open(disk, PATH, LogConfig(), 0)
    assert log.offline is None
    assert log.end_offset in (0, 10)
    assert rebuild(disk, PATH, LogConfig(), 0).end_offset == 0
    assert disk.listdir("data") == ["t-0"]
