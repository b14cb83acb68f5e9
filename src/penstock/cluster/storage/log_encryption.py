"""Encryption keys of a node's logs: their check at the start, and rotation.

`check` runs before a data directory is changed: a node that lacks a key reports it and does not
start, instead of taking logs offline that would then be copied anew. `rotate` wraps the logs' keys
with the current key-encryption key, some at a time, so that the caller can show progress. Nothing
else is interrupted, because the logs' own keys do not change. A key-encryption key that no log
uses can be discarded.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.base.errors import Corrupt
from penstock.base.ports import Disk, Workers
from penstock.cluster.replication.partitions import Partitions
from penstock.log.encryption import key_file
from penstock.log.log import Log
from penstock.security.keyring import Kek, Keyring, KeyTrouble, UnknownKek

ROTATED_MAX = 1000


@dataclass(frozen=True, slots=True)
class RotationProgress:
    """Logs done in one step of a rotation, and logs left to do."""

    rewrapped: int
    remaining: int


def check(disk: Disk, root: str, keyring: Keyring | None) -> int:
    """Counts the logs below `root` with a key; raises KeyTrouble if one is unusable. Blocks.

    A damaged key file is ignored here: it takes its own log offline.
    """
    found = 0
    for topic in disk.listdir(root):
        for index in disk.listdir(f"{root}/{topic}"):
            directory = f"{root}/{topic}/{index}"
            if topic.startswith(".") or not index.isdecimal():
                continue
            try:
                wrapped = key_file.peek(disk, directory)
            except Corrupt:
                continue
            if wrapped is None:
                continue
            found += 1
            if keyring is None:
                raise KeyTrouble(
                    f"{directory} is encrypted, and encryption.kek.source is not set. Set it to "
                    f"the location of key {wrapped.kek_id}, and start again; nothing was changed."
                )
            try:
                keyring.unwrap(wrapped)
            except UnknownKek as trouble:
                raise KeyTrouble(
                    f"{directory}: {trouble}. Add the missing key back, after the one in use, and "
                    "start again; nothing was changed."
                ) from trouble
            except KeyTrouble:
                continue
    return found


class LogEncryption:
    """Log encryption of a running node with keys."""

    def __init__(
        self,
        partitions: Partitions,
        disk: Disk,
        workers: Workers,
        keyring: Keyring,
        read_keks: Callable[[], tuple[Kek, ...]],
    ) -> None:
        """`read_keks` reads the keys again; it blocks, and raises KeyTrouble."""
        self._partitions = partitions
        self._disk = disk
        self._workers = workers
        self._read_keks = read_keks
        self.keyring = keyring
        self._rotating = asyncio.Lock()

    async def reload(self) -> None:
        """Applies the keys of the present configuration. Raises KeyTrouble, with nothing changed,
        if it lacks one that is in use."""
        keks = await self._workers.run(self._read_keks)
        missing = self.uses().keys() - {kek.id for kek in keks}
        if missing:
            raise KeyTrouble(
                f"the key {min(missing)} is still in use, but missing in encryption.kek.source; "
                "add it back after the new one until no log uses it"
            )
        self.keyring.replace(keks)

    def uses(self) -> Counter[str]:
        """Number of logs by the key-encryption key that they use."""
        return Counter(
            log.cipher.wrapped.kek_id for log in self._logs() if log.cipher.wrapped is not None
        )

    @property
    def plain(self) -> int:
        """Number of logs without a key."""
        return sum(not log.cipher.has_key for log in self._logs())

    async def rotate(self, logs_max: int) -> RotationProgress:
        """Rewraps up to `logs_max` logs with the current key. Raises OSError, KeyTrouble."""
        async with self._rotating:
            old = [log for log in self._logs() if self._is_old(log)]
            share = old[: max(0, min(logs_max, ROTATED_MAX))]
            done = await self._workers.run(self._rewrap, share)
        return RotationProgress(done, len([log for log in old if self._is_old(log)]))

    def _logs(self) -> list[Log]:
        return [one.log for one in self._partitions.replicas()]

    def _is_old(self, log: Log) -> bool:
        wrapped = log.cipher.wrapped
        return (
            wrapped is not None
            and wrapped.kek_id != self.keyring.current.id
            and log.offline is None
        )

    def _rewrap(self, logs: Sequence[Log]) -> int:
        done = 0
        for log in logs:
            try:
                done += key_file.rewrap(self._disk, log.path, log.cipher)
            except FileNotFoundError:
                if log.offline is None:
                    raise  # Else its topic was deleted meanwhile.
        return done
