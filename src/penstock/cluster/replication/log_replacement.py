"""A new log in the place of one that is damaged, to be filled from the leader's.

Only for a replica that nobody counts on: it is not in sync, and not one that may be elected without
being so. What is left of its files is of no use then, and goes.

The old directory is renamed first, so that a crash leaves either the damaged log or a new one,
never a mixture; what a crash leaves of the old one goes with the next repair, or with the topic.
"""

from penstock.base.errors import Corrupt
from penstock.base.ports import Disk
from penstock.log.config import LogConfig
from penstock.log.encryption import key_file
from penstock.log.encryption.log_encryption import NO_KEY
from penstock.log.log import Log
from penstock.security.keyring import Keyring

DAMAGED = ".damaged"


def rebuild(
    disk: Disk, path: str, config: LogConfig, now_ms: int, keyring: Keyring | None = None
) -> Log:
    """An empty log at `path`, durable when this returns. Blocks: for Workers.

    Raises Corrupt, with nothing changed, where a new one could not be used either.
    """
    if config.encrypted and keyring is None:
        raise Corrupt(NO_KEY)
    parent, _, _ = path.rpartition("/")
    aside = path + DAMAGED
    _remove(disk, aside)
    if disk.exists(path):
        disk.rename(path, aside)
        disk.sync_dir(parent)
    fresh = Log.open(disk, path, config, now_ms, keyring=keyring)
    disk.sync_dir(parent)
    _remove(disk, aside)
    return fresh


def _remove(disk: Disk, path: str) -> None:
    if not disk.exists(path):
        return
    key_file.shred(disk, path)
    for name in disk.listdir(path):
        disk.unlink(f"{path}/{name}")
    disk.rmdir(path)
