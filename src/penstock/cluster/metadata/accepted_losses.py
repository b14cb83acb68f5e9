"""Losses that an operator has accepted: replicas that may go on without what is gone.

`penstock cluster accept-loss` leaves a file named for the replica in the data directory's folder
`accept-loss`, whether the node runs or not. The node looks there while it has lost replicas
(`partitions`), opens each one anew, writes that down, and removes the file. So only who may write
to the data directory accepts a loss, and a crash in the middle only has it done again.
"""

from collections.abc import Iterable

from penstock.base.ports import Disk
from penstock.cluster.controller.elections import is_last_choice
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.log import files

FOLDER = "accept-loss"
SLASH = "@"
"""Stands for the slash in a replica's name; no topic has one in its name."""


def ask(disk: Disk, data_dir: str, *names: str) -> None:
    """Leaves the requests. Names are the partitions' directories below `logs`. Blocks."""
    folder = files.join(data_dir, FOLDER)
    disk.mkdir(folder)
    disk.sync_dir(data_dir)
    for name in names:
        files.write_durably(disk, files.join(folder, name.replace("/", SLASH)), b"")


def missing(disk: Disk, data_dir: str, names: Iterable[str]) -> list[str]:
    """Those of the replicas of which no log file is there. Blocks."""
    root = files.join(data_dir, "logs")
    return [
        name
        for name in names
        if not any(one.endswith(files.LOG) for one in disk.listdir(files.join(root, name)))
    ]


def asked(disk: Disk, data_dir: str) -> list[str]:
    """The replicas whose loss was accepted. Blocks."""
    names = disk.listdir(files.join(data_dir, FOLDER))
    return [name.replace(SLASH, "/") for name in names if not name.endswith(files.TEMPORARY)]


def done(disk: Disk, data_dir: str, names: Iterable[str]) -> None:
    """They have been seen to. Blocks."""
    folder = files.join(data_dir, FOLDER)
    for name in names:
        files.remove(disk, files.join(folder, name.replace("/", SLASH)))
    disk.sync_dir(folder)


def is_possible(record: PartitionRecord, node_id: int) -> bool:
    """True if this node has the only replica, or an unclean election chose its one.

    Any other is copied anew from a leader. If it went on without what is lost, its log would begin
    there; once it leads, the others delete what they have of before.
    """
    return len(record.replicas) == 1 or is_last_choice(record, node_id)
