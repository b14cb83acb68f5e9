"""The high watermarks of a node's replicas, written down for its next life.

A log does not tell what of it was committed; other replicas do, but they may be away when this
one comes back. So the high watermarks are kept in one small file: every few seconds, and at a
clean stop. What it says is a lower bound: a missing or damaged file costs no more than the wait
until the replicas have talked, and a stale one is as true as it was.

Partitions with one replica are not in it: what is on disk there is committed.
"""

from collections.abc import Mapping

import msgspec

from penstock.base.ports import Disk
from penstock.log import store

FILE = "high-watermarks"


class Watermarks:
    """The file. Both methods block."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = store.join(directory, FILE)

    def read(self) -> dict[str, int]:
        """By the name of the partition's directory; empty when the file is missing or in doubt."""
        body = store.read_checked(self._disk, self._path)
        if body is None:
            return {}
        try:
            return msgspec.json.decode(body, type=dict[str, int])
        except msgspec.MsgspecError:
            return {}

    def write(self, values: Mapping[str, int]) -> None:
        store.write_durably(self._disk, self._path, msgspec.json.encode(values))
