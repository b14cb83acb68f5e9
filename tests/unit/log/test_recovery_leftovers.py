"""`penstock.log.recovery`: files that an interrupted process left in a log directory."""

import pytest

from penstock.log import files, recovery
from simulation.disk import SimDisk
from tests.unit.log.building import (
    PATH,
    disk_of,
    fill,
    flush,
    make_disk,
    offsets,
    open_log,
    read_all,
)

pytestmark = pytest.mark.usefixtures("in_both_modes")


def touch(disk: SimDisk, name: str) -> None:
    disk.open(f"{PATH}/{name}", create=True).append((b"anything",))


def test_tidy_directory_is_not_touched() -> None:
    log = open_log(make_disk())
    fill(log, 20)
    flush(log)
    disk = disk_of(log)
    before, names = disk.operations, disk.listdir(PATH)
    assert recovery.remove_leftovers(disk, PATH, names) == names
    assert disk.operations == before


def test_unfinished_and_retired_files_are_removed() -> None:
    log = open_log(make_disk())
    fill(log, 20)
    flush(log)
    disk = disk_of(log)
    names = disk.listdir(PATH)
    for name in (
        "checkpoint.tmp",
        files.file_name(0, ".log.cleaned"),
        files.file_name(0, ".log.replaced"),
        files.file_name(0, ".index.replaced"),
        files.file_name(999, ".index"),
        files.file_name(999, ".timeindex"),
    ):
        touch(disk, name)
    again = open_log(disk)
    assert disk.listdir(PATH) == names
    assert offsets(read_all(again)) == list(range(20))


def test_missing_segment_below_the_start_offset_is_not_damage() -> None:
    """Of the files that retention removes any may be gone first."""
    log = open_log(make_disk())
    fill(log, 30)
    first = log.segments[3].base_offset
    log.delete_before(first)
    flush(log)
    disk = disk_of(log)
    disk.rename(log.segments[1].path + files.LOG, log.segments[1].path + files.LOG + files.DELETED)
    again = open_log(disk)
    assert (again.offline, again.segments[0].base_offset) == (None, first)
    assert offsets(read_all(again)) == list(range(first, 30))
    assert "00000000000000000000.log" not in disk.listdir(log.path)
