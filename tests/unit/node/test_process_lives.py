"""`penstock.node.process_lives`: which copies of a data directory are this node's last."""

import random

import pytest

from penstock.cluster.metadata.store_keys import LifeRecord
from penstock.node import data_directory
from penstock.node.process_lives import is_older, is_unknown, next_life
from simulation.disk import SimDisk


@pytest.mark.parametrize(
    ("here", "last", "older"),
    [
        (0, None, False),  # Before there were numbers.
        (7, None, False),
        (7, LifeRecord(7, "d"), False),
        (8, LifeRecord(7, "d"), False),  # A crash came before it registered.
        (7, LifeRecord(8, "d"), True),
        (0, LifeRecord(1, "d"), True),  # A copy from before there were numbers.
        (9, LifeRecord(3, "another"), True),
    ],
)
def test_directory_not_left_by_the_last_run_is_older(
    here: int, last: LifeRecord | None, older: bool
) -> None:
    assert is_older(here, "d", last) is older


@pytest.mark.parametrize(
    ("here", "last", "unknown"),
    [
        (0, None, False),
        (7, None, True),
        (7, LifeRecord(7, "d"), False),
        (8, LifeRecord(7, "d"), True),
        (7, LifeRecord(8, "d"), False),
        (9, LifeRecord(3, "another"), False),
    ],
)
def test_store_that_lacks_a_life_of_this_directory_is_noticed(
    here: int, last: LifeRecord | None, unknown: bool
) -> None:
    assert is_unknown(here, "d", last) is unknown


def test_next_run_number_exceeds_all_earlier_ones() -> None:
    assert next_life(0, "d", None) == LifeRecord(1, "d")
    assert next_life(7, "d", LifeRecord(3, "d")).number == 8
    assert next_life(3, "d", LifeRecord(7, "x")) == LifeRecord(8, "d")


def new_disk() -> SimDisk:
    disk = SimDisk(0)
    disk.mkdir("data")
    disk.sync_dir("")
    return disk


def test_run_number_survives_a_power_cut_and_a_damaged_file_is_zero() -> None:
    disk = new_disk()
    assert data_directory.read_life(disk, "data") == 0
    data_directory.write_life(disk, "data", 12)
    disk.crash(random.Random(1))
    assert data_directory.read_life(disk, "data") == 12
    disk.flip_bit("data/life", 70)
    assert data_directory.read_life(disk, "data") == 0


@pytest.mark.parametrize(("life", "is_trusted"), [(4, True), (3, False), (5, False)])
def test_clean_stop_counts_only_for_the_run_that_made_it(life: int, is_trusted: bool) -> None:
    disk = new_disk()
    data_directory.leave_clean_states(disk, "data", {}, 4)
    assert (data_directory.take_clean_states(disk, "data", life) is not None) is is_trusted
