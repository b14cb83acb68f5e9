"""Accepted losses: replicas that an operator lets continue without their lost records.

`penstock cluster accept-loss` puts a file named for the replica into the data directory's folder
`accept-loss`, whether the node runs or not. The node reads the folder while it has lost replicas
(`partitions`), opens each one anew, persists that, and removes the file. So only users who may
write to the data directory can accept a loss, and after a crash in the middle it is done again.
"""

from collections.abc import Iterable

from penstock.base.ports import Disk
from penstock.cluster.controller.leader_elections import is_last_choice
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.log import files

FOLDER = "accept-loss"
SLASH = "@"
"""Replaces the slash in a replica's name; topic names do not contain it."""


def ask(disk: Disk, data_dir: str, *names: str) -> None:
    """Stores the requests. Names are the partitions' directories below `logs`. Blocks."""
    folder = files.join(data_dir, FOLDER)
    disk.mkdir(folder)
    disk.sync_dir(data_dir)
    for name in names:
        files.write_durably(disk, files.join(folder, name.replace("/", SLASH)), b"")


def missing(disk: Disk, data_dir: str, names: Iterable[str]) -> list[str]:
    """Returns the replicas without a log file. Blocks."""
    root = files.join(data_dir, "logs")
    return [
        name
        for name in names
        if not any(one.endswith(files.LOG) for one in disk.listdir(files.join(root, name)))
    ]


def asked(disk: Disk, data_dir: str) -> list[str]:
    """Returns the replicas whose loss was accepted. Blocks."""
    names = disk.listdir(files.join(data_dir, FOLDER))
    return [name.replace(SLASH, "/") for name in names if not name.endswith(files.TEMPORARY)]


def done(disk: Disk, data_dir: str, names: Iterable[str]) -> None:
    """Removes the requests of replicas that were reopened. Blocks."""
    folder = files.join(data_dir, FOLDER)
    for name in names:
        files.remove(disk, files.join(folder, name.replace("/", SLASH)))
    disk.sync_dir(folder)


def is_possible(record: PartitionRecord, node_id: int) -> bool:
    """True if this node has the only replica, or an unclean election chose its replica.

    Any other replica is copied anew from a leader. If it continued without its lost records, its
    log would begin there; once it led, the others would delete their older records.
    """
    return len(record.replicas) == 1 or is_last_choice(record, node_id)
