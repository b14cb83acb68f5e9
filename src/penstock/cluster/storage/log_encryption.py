"""The keys of the logs of one node: whether they can be used, and under which key they lie.

`check` runs before anything of a data directory is touched: a node that lacks a key says so and
does not start, instead of taking logs offline that would then be copied anew. `rotate` puts logs
under the key in use, some at a time, so that whoever asks can show how far it is; nothing else
stops meanwhile, because root keys stay what they are. A key-encryption key that no log uses any
more can be thrown away.
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
    """What a step of a rotation did, and what is left to do."""

    rewrapped: int
    remaining: int


def check(disk: Disk, root: str, keyring: Keyring | None) -> int:
    """How many logs below `root` have a key; raises KeyTrouble if one cannot be used. Blocks.

    A damaged file is not looked into here: it takes its own log offline.
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
                    f"{directory} is encrypted, and there is no encryption.kek.source. Set it to "
                    f"where the key {wrapped.kek_id} is, and start again; nothing was changed."
                )
            try:
                keyring.unwrap(wrapped)
            except UnknownKek as trouble:
                raise KeyTrouble(
                    f"{directory}: {trouble}. Put the missing key back, after the one in use, and "
                    "start again; nothing was changed."
                ) from trouble
            except KeyTrouble:
                continue
    return found


class LogEncryption:
    """Of a running node that has keys."""

    def __init__(
        self,
        partitions: Partitions,
        disk: Disk,
        workers: Workers,
        keyring: Keyring,
        read_keks: Callable[[], tuple[Kek, ...]],
    ) -> None:
        """`read_keks` reads the keys anew; it blocks, and raises KeyTrouble."""
        self._partitions = partitions
        self._disk = disk
        self._workers = workers
        self._read_keks = read_keks
        self.keyring = keyring
        self._rotating = asyncio.Lock()

    async def reload(self) -> None:
        """Takes over the keys as they are written down now. Raises KeyTrouble, with nothing
        changed, when one that is in use would be missing."""
        keks = await self._workers.run(self._read_keks)
        missing = self.uses().keys() - {kek.id for kek in keks}
        if missing:
            raise KeyTrouble(
                f"the key {min(missing)} is still in use, and encryption.kek.source does not hold "
                "it any more; put it back after the new one until nothing uses it"
            )
        self.keyring.replace(keks)

    def uses(self) -> Counter[str]:
        """By key-encryption key: how many logs lie under it."""
        return Counter(
            log.cipher.wrapped.kek_id for log in self._logs() if log.cipher.wrapped is not None
        )

    @property
    def plain(self) -> int:
        """How many logs have no key."""
        return sum(not log.cipher.has_key for log in self._logs())

    async def rotate(self, logs_max: int) -> RotationProgress:
        """Puts up to so many logs under the key in use. Raises OSError, KeyTrouble."""
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
