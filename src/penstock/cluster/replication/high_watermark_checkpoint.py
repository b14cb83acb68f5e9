"""High watermark checkpoint: the replicas of a node, with their committed and durable offsets.

A log does not tell which of its records were committed, and a missing log tells nothing. So both
facts are kept in one small file, `high-watermarks`. A replica is added before it is served for the
first time. The offsets are refreshed every few seconds and at a clean stop. At the next start an
entry whose log is missing, or ends below the offset, is a lost replica, not a new one (ADR 0031).

Invariants:
- an offset in the file is a lower bound at any time: it is lowered before a log is truncated below
  it, and raised after the records are on disk;
- an entry is removed only when the replica is gone for good: its topic was deleted, it was moved
  away, or its loss was accepted.

The file is a JSON object of offsets by the partition's directory. `FORMAT_KEY` marks a file that
names every replica; older versions, which can read it, left out partitions with one replica. If
the file is missing or damaged, logs on disk are opened as they are, and missing logs are lost if
this version has run here before.
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
"""Key of the format version. Not a directory's name: those contain a slash."""
FORMAT = 2


class HighWatermarkFile:
    """The checkpoint file. Both methods block."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = files.join(directory, FILE)

    def read(self) -> dict[str, int]:
        """Offsets by the partition's directory; empty if the file is missing or damaged."""
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
    """Contents of the checkpoint file, written and pending. Runs on the event loop."""

    def __init__(self, disk: Disk, directory: str, workers: Workers) -> None:
        self._watermarks = HighWatermarkFile(disk, directory)
        self._workers = workers
        self._ends: dict[str, int] = {}
        """Known end offsets by the partition's directory, as of the last refresh."""
        self._written: dict[str, int] | None = {}
        """Content of the file; None after a failed write."""
        self._are_logs_missing = False
        self._lock = asyncio.Lock()
        self._number = 0

    async def load(
        self, clean: Mapping[str, CleanState], *, are_logs_missing: bool, has_run_before: bool
    ) -> None:
        """Loads the file of the previous process; `clean` is what its clean stop left.
        `are_logs_missing`: the logs' folder is missing although the data directory is not new.
        `has_run_before`: there was a file, so without it no replica counts as new."""
        self._written = await self._workers.run(self._watermarks.read)
        self._ends = dict(self._written)
        self._ends.pop(FORMAT_KEY, None)
        for name in clean:
            self._ends.setdefault(name, 0)  # Only the file tells how much was committed.
        self._are_logs_missing = are_logs_missing or (has_run_before and not self._written)

    def retain(self, names: Collection[str]) -> None:
        """Drops the entries of all other replicas."""
        self._ends = {name: end for name, end in self._ends.items() if name in names}
        if self._are_logs_missing:
            self._ends = {**dict.fromkeys(names, 0), **self._ends}

    def known_end(self, name: str) -> int:
        """Known end of the replica's log; `NEVER_OPENED` for one that may be new."""
        return self._ends.get(name, NEVER_OPENED)

    def enter(self, names: Iterable[str]) -> bool:
        """Adds replicas; False if the file has all of them already."""
        written = self._written or {}
        is_news = False
        for name in names:
            self._ends.setdefault(name, 0)
            is_news |= name not in written
        return is_news

    def forget(self, name: str) -> None:
        """Removes a replica that is gone for good."""
        self._ends.pop(name, None)

    def _refresh(self, partitions: Iterable[Partition]) -> dict[str, int]:
        for one in partitions:
            self._ends[name_of(one)] = one.known_end
        return {FORMAT_KEY: FORMAT, **self._ends}

    async def save(self, partitions: Iterable[Partition]) -> None:
        """Writes the file if its content has changed. Raises OSError or Refused."""
        async with self._lock:
            values = self._refresh(partitions)
            if values == self._written:
                return
            self._written = None
            self._number += 1
            await self._workers.run(self._watermarks.write, values, self._number)
            self._written = values

    def save_now(self, partitions: Iterable[Partition]) -> None:
        """As `save`, but blocking: for a node that stops."""
        values = self._refresh(partitions)
        if values != self._written:
            self._watermarks.write(values, self._number + 1)


def name_of(partition: Partition) -> str:
    """The partition's own directory, relative to the logs' folder."""
    return f"{directory_of(partition.topic, partition.topic_id)}/{partition.index}"
