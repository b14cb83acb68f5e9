"""`penstock.log.leader_epochs`: KIP-101 and KIP-320 by their examples."""

from penstock.log import files
from penstock.log import leader_epochs as epoch_file
from penstock.log.leader_epochs import Epochs
from simulation.disk import SimDisk


def epochs_of(*pairs: tuple[int, int]) -> Epochs:
    epochs = Epochs()
    for epoch, start in pairs:
        assert epochs.begin(epoch, start)
    return epochs


def test_current_epoch_ends_at_the_log_end() -> None:
    assert epochs_of((1, 0), (3, 10)).end(3, 25) == (3, 25)


def test_older_epoch_ends_where_the_next_one_began() -> None:
    assert epochs_of((1, 0), (3, 10)).end(1, 25) == (1, 10)


def test_epoch_never_seen_is_answered_with_the_one_before() -> None:
    assert epochs_of((1, 0), (3, 10)).end(2, 25) == (1, 10)


def test_epoch_before_the_first_ends_where_the_first_began() -> None:
    assert epochs_of((4, 7)).end(2, 25) == (2, 7)


def test_newer_epoch_is_not_known() -> None:
    assert epochs_of((1, 0)).end(2, 25) == (-1, -1)
    assert Epochs().end(0, 0) == (-1, -1)
    assert epochs_of((1, 0)).end(-1, 25) == (-1, -1)


def test_epoch_without_records_is_replaced_by_the_next() -> None:
    epochs = epochs_of((1, 0), (2, 10), (5, 10))
    assert (epochs.epochs, epochs.starts) == ([1, 5], [0, 10])


def test_beginning_the_same_epoch_again_changes_nothing() -> None:
    epochs = epochs_of((1, 0))
    assert not epochs.begin(1, 50)
    assert epochs.starts == [0]


def test_cut_at_the_end_forgets_the_epochs_that_began_there() -> None:
    epochs = epochs_of((1, 0), (2, 10), (3, 20))
    assert epochs.truncate_end(10)
    assert epochs.epochs == [1]
    assert not epochs.truncate_end(10)


def test_cut_at_the_start_keeps_the_epoch_that_is_there() -> None:
    epochs = epochs_of((1, 0), (2, 10), (3, 20))
    assert epochs.truncate_start(15)
    assert (epochs.epochs, epochs.starts) == ([2, 3], [15, 20])
    assert [epochs.of(offset) for offset in (14, 15, 19, 20)] == [-1, 2, 2, 3]


def test_epochs_come_back_from_disk_and_damage_is_noticed() -> None:
    disk = SimDisk()
    disk.mkdir("/t")
    assert epoch_file.read(disk, "/t") is None
    path = files.join("/t", files.LEADER_EPOCHS)
    files.write_durably(disk, path, epochs_of((1, 0), (2, 10)).encode())
    back = epoch_file.read(disk, "/t")
    assert back is not None
    assert (back.epochs, back.starts) == ([1, 2], [0, 10])
    disk.flip_bit(path, 100)
    assert epoch_file.read(disk, "/t") is None
