"""The replicas that this node holds, and up to where each is known to be committed and on its disk.

A log does not tell what of it was committed, and a log that is gone tells nothing. So both are kept
in one small file, `high-watermarks`: a replica is entered before it is served for the first time,
and the offsets are refreshed every few seconds and at a clean stop. At the next start an entry
whose log is missing, or ends below the offset, is a lost replica, not a new one (ADR 0031).

Invariants:
- what the file says is a lower bound, at any time: it is lowered before a log is cut below it, and
  raised after the records are on the disk;
- an entry goes only when the replica is gone for good: its topic was deleted, it was moved away,
  or its loss was accepted.

The file is a JSON object of offsets by the partition's directory. `FORMAT_KEY` in it says that it
names every replica; older versions, which read it as well, left out those of partitions with one
replica. Where the file is missing or damaged, logs that are on disk are taken as they are, and
those that are not are lost if this version has run here before.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping

import msgspec

from penstock.base.ports import Disk, Workers
from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.log_directories import directory_of
from penstock.log import files
from penstock.log.log import CleanState
from penstock.log.recovery import NEVER_OPENED

FILE = "high-watermarks"
FORMAT_KEY = "format"
"""No directory's name: those have a slash in them."""
FORMAT = 2


class HighWatermarks:
    """The file. Both methods block."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = files.join(directory, FILE)

    def read(self) -> dict[str, int]:
        """By the name of the partition's directory; empty when the file is missing or in doubt."""
        body = files.read_checked(self._disk, self._path)
        if body is None:
            return {}
        try:
            return msgspec.json.decode(body, type=dict[str, int])
        except msgspec.MsgspecError:
            return {}

    def write(self, values: Mapping[str, int], number: int = 0) -> None:
        """`number` counts the replacements of this file by one node."""
        ending = files.temporary(number)
        files.write_durably(self._disk, self._path, msgspec.json.encode(values), ending)


class HighWatermarkCheckpoint:
    """Content of the file, as it is and as it will be. Runs on the event loop."""

    def __init__(self, disk: Disk, directory: str, workers: Workers) -> None:
        self._watermarks = HighWatermarks(disk, directory)
        self._workers = workers
        self._ends: dict[str, int] = {}
        """Known ends by the partition's directory, as of the last look."""
        self._written: dict[str, int] | None = {}
        """Content of the file; None: it could not be written."""
        self._is_all_gone = False
        self._lock = asyncio.Lock()
        self._number = 0

    async def load(
        self, clean: Mapping[str, CleanState], *, is_all_gone: bool, has_lived: bool
    ) -> None:
        """Loads what the last life knew; `clean` is what its clean stop left. `is_all_gone`: the
        folder of all logs is missing although the data directory is not new. `has_lived`: there
        was a file, so that without it no replica may be taken for a new one."""
        self._written = await self._workers.run(self._watermarks.read)
        self._ends = dict(self._written)
        self._ends.pop(FORMAT_KEY, None)
        for name in clean:
            self._ends.setdefault(name, 0)  # How far it was committed, only the file tells.
        self._is_all_gone = is_all_gone or (has_lived and not self._written)

    def retain(self, names: Collection[str]) -> None:
        """Only these replicas are this node's."""
        self._ends = {name: end for name, end in self._ends.items() if name in names}
        if self._is_all_gone:
            self._ends = {**dict.fromkeys(names, 0), **self._ends}

    def known_end(self, name: str) -> int:
        """`NEVER_OPENED` for a replica that may be new."""
        return self._ends.get(name, NEVER_OPENED)

    def enter(self, names: Iterable[str]) -> bool:
        """These replicas exist from now on; False if the file says so already."""
        written = self._written or {}
        is_news = False
        for name in names:
            self._ends.setdefault(name, 0)
            is_news |= name not in written
        return is_news

    def forget(self, name: str) -> None:
        """This replica is gone for good."""
        self._ends.pop(name, None)

    def _look(self, partitions: Iterable[Partition]) -> dict[str, int]:
        for one in partitions:
            self._ends[name_of(one)] = one.known_end
        return {FORMAT_KEY: FORMAT, **self._ends}

    async def save(self, partitions: Iterable[Partition]) -> None:
        """Writes the file if something in it has changed. Raises OSError or Refused."""
        async with self._lock:
            values = self._look(partitions)
            if values == self._written:
                return
            self._written = None
            self._number += 1
            await self._workers.run(self._watermarks.write, values, self._number)
            self._written = values

    def save_now(self, partitions: Iterable[Partition]) -> None:
        """As `save`. Blocks: for a node that ends."""
        values = self._look(partitions)
        if values != self._written:
            self._watermarks.write(values, self._number + 1)


def name_of(partition: Partition) -> str:
    """The partition's own directory, below the folder of all logs."""
    return f"{directory_of(partition.topic, partition.topic_id)}/{partition.index}"
