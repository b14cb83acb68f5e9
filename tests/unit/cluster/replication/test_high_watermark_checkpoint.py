"""`cluster.replication.high_watermark_checkpoint`: a lower bound that survives, or nothing."""

import random

import pytest

from penstock.cluster.replication.high_watermark_checkpoint import FILE, HighWatermarkFile
from simulation.disk import SimDisk


def new_disk() -> SimDisk:
    disk = SimDisk(0)
    disk.mkdir("data")
    disk.sync_dir("")
    return disk


def test_checkpoint_survives_a_power_cut() -> None:
    disk = new_disk()
    HighWatermarkFile(disk, "data").write({"t.id/0": 7, "t.id/1": 0})
    disk.crash(random.Random(1))
    assert HighWatermarkFile(disk, "data").read() == {"t.id/0": 7, "t.id/1": 0}


def test_missing_file_reads_as_empty() -> None:
    assert HighWatermarkFile(new_disk(), "data").read() == {}


def test_damaged_file_reads_as_empty() -> None:
    disk = new_disk()
    HighWatermarkFile(disk, "data").write({"t.id/0": 7})
    file = disk.open(f"data/{FILE}")
    file.truncate(file.size() - 2)
    file.append([b"9}"])
    assert HighWatermarkFile(disk, "data").read() == {}


def test_concurrent_replacements_leave_one_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled leaves its worker writing, while the next one begins."""
    disk = new_disk()
    marks, rename = HighWatermarkFile(disk, "data"), disk.rename
    between = [lambda: marks.write({"t.id/0": 8}, 2)]

    def late(source: str, target: str) -> None:
        if between:
            between.pop()()
        rename(source, target)

    monkeypatch.setattr(disk, "rename", late)
    marks.write({"t.id/0": 7}, 1)
    assert marks.read() == {"t.id/0": 7}, "whichever was last is there as a whole"
