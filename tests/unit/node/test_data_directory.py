"""Ownership of a data directory, and the marker of a clean stop."""

import errno

import msgspec
import pytest

from penstock.base.errors import Corrupt
from penstock.cluster.configs.effective_configs import InvalidConfig
from penstock.log.files import seal, write_durably
from penstock.log.log import CleanState
from penstock.node.data_directory import (
    CLEAN,
    META,
    Meta,
    claim,
    leave_clean_states,
    read,
    take_clean_states,
)
from simulation.disk import Fault, PowerCut, SimDisk

STATES = {"t.abc/0": CleanState(0, 7, (), 0)}


def owner(node_id: int, cluster_id: str, *, is_shared: bool = False) -> Meta:
    return Meta(1, cluster_id, node_id, f"directory-of-{cluster_id}", is_shared)


def make_disk() -> SimDisk:
    disk = SimDisk(journaled=False)
    disk.mkdir("data")
    disk.sync_dir("")
    return disk


def put(disk: SimDisk, name: str, content: bytes) -> None:
    file = disk.open(f"data/{name}", create=True)
    file.truncate(0)
    file.append((content,))
    file.close()


# -- whose it is ------------------------------------------------------------------------------


def test_new_directory_is_claimed_and_recognized_again() -> None:
    disk = make_disk()
    first = claim(disk, "data", owner(3, "cluster-a"))
    assert (first.cluster_id, first.node_id) == ("cluster-a", 3)
    assert claim(disk, "data", owner(3, "cluster-b")) == first


def test_claim_survives_a_power_cut() -> None:
    disk = make_disk()
    claim(disk, "data", owner(3, "cluster-a"))
    after = disk.crashed(disk.rng)
    assert claim(after, "data", owner(3, "cluster-b")).cluster_id == "cluster-a"


@pytest.mark.parametrize("seed", range(20))
def test_power_cut_during_the_first_claim_keeps_the_directory_usable(seed: int) -> None:
    for operation in range(1, 12):
        disk = SimDisk(seed, journaled=False)
        disk.mkdir("data")
        disk.sync_dir("")
        disk.crash_after(operation)
        try:
            claim(disk, "data", owner(3, "cluster-a"))
        except PowerCut:
            disk.crash(disk.rng)
        claim(disk, "data", owner(3, "cluster-a"))


def test_directory_of_another_node_is_refused_with_both_ids() -> None:
    disk = make_disk()
    claim(disk, "data", owner(3, "cluster-a"))
    with pytest.raises(InvalidConfig, match=r"belongs to node 3, this is node 4.*--node-id 3"):
        claim(disk, "data", owner(4, "cluster-a"))


def test_directory_of_an_older_version_gets_an_id_once() -> None:
    disk = make_disk()
    write_durably(disk, f"data/{META}", b'{"format":1,"cluster_id":"cluster-a","node_id":3}')
    first = claim(disk, "data", owner(3, "cluster-b"))
    assert (first.cluster_id, first.directory_id) == ("cluster-a", "directory-of-cluster-b")
    assert claim(disk, "data", owner(3, "cluster-c")) == first


@pytest.mark.parametrize("was_shared", [False, True])
def test_directory_keeps_its_kind_of_metadata(was_shared: bool) -> None:
    disk = make_disk()
    claim(disk, "data", owner(3, "cluster-a", is_shared=was_shared))
    with pytest.raises(InvalidConfig, match="etcd"):
        claim(disk, "data", owner(3, "cluster-a", is_shared=not was_shared))


def test_reading_a_new_directory_changes_nothing() -> None:
    disk = make_disk()
    assert read(disk, "data", 3, is_shared=True) is None
    assert disk.listdir("data") == []


def test_directory_with_unknown_files_is_refused() -> None:
    disk = make_disk()
    put(disk, "holiday.jpg", b"sun")
    with pytest.raises(InvalidConfig, match="not a Penstock data directory"):
        claim(disk, "data", owner(3, "cluster-a"))


@pytest.mark.parametrize("name", ["lock", "lost+found", "meta.json.tmp"])
def test_known_harmless_files_are_ignored(name: str) -> None:
    disk = make_disk()
    put(disk, name, b"")
    assert claim(disk, "data", owner(3, "cluster-a")).node_id == 3


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", seal(b"{}"), seal(b"not json"), seal(b'{"format": 1}')],
)
def test_damaged_owner_file_is_refused_and_not_overwritten(content: bytes) -> None:
    disk = make_disk()
    put(disk, META, content)
    with pytest.raises(InvalidConfig, match="is damaged; restore it"):
        claim(disk, "data", owner(3, "cluster-a"))
    assert disk.open(f"data/{META}").read(0, 100) == content


def test_flipped_bit_in_the_owner_file_is_damage() -> None:
    disk = make_disk()
    claim(disk, "data", owner(3, "cluster-a"))
    disk.flip_bit(f"data/{META}", 200)
    with pytest.raises(InvalidConfig, match="is damaged"):
        claim(disk, "data", owner(3, "cluster-a"))


def test_another_format_is_refused() -> None:
    disk = make_disk()
    write_durably(disk, f"data/{META}", msgspec.json.encode(Meta(99, "cluster-a", 3)))
    with pytest.raises(InvalidConfig, match="format 99"):
        claim(disk, "data", owner(3, "cluster-a"))


# -- how it was left --------------------------------------------------------------------------


def test_clean_states_are_taken_once() -> None:
    disk = make_disk()
    leave_clean_states(disk, "data", STATES)
    assert take_clean_states(disk, "data") == STATES
    assert take_clean_states(disk, "data") is None


def test_taken_clean_states_stay_removed_after_a_power_cut() -> None:
    for seed in range(10):
        disk = SimDisk(seed, journaled=False)
        disk.mkdir("data")
        disk.sync_dir("")
        leave_clean_states(disk, "data", STATES)
        assert take_clean_states(disk, "data") is not None
        assert take_clean_states(disk.crashed(disk.rng), "data") is None


def test_clean_states_survive_a_power_cut_until_they_are_taken() -> None:
    disk = make_disk()
    leave_clean_states(disk, "data", STATES)
    assert take_clean_states(disk.crashed(disk.rng), "data") == STATES


@pytest.mark.parametrize("content", [b"", b"garbage", seal(b"[]"), seal(b"not json")])
def test_damaged_marker_is_ignored(content: bytes) -> None:
    disk = make_disk()
    put(disk, CLEAN, content)
    assert take_clean_states(disk, "data") is None


def test_marker_that_cannot_be_removed_is_not_trusted() -> None:
    disk = make_disk()
    leave_clean_states(disk, "data", STATES)
    disk.inject(Fault("unlink", errno.EIO))
    with pytest.raises((OSError, Corrupt)):
        take_clean_states(disk, "data")
