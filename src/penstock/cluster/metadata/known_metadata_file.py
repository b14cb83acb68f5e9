"""File of the metadata that a node has seen in the store: `known-metadata`.

One small file, protected by a CRC and replaced as a whole. It is persisted before anything that
depends on it: a topic with its configs before a replica of it is served here, a block of producer
ids before one of them is given away. Other changes are written within `PAUSE_SECONDS`.

A missing or damaged file is written at the next start; until then only the logs can tell that a
store is older. A file of another cluster is refused with its directory (`data_directory`). A file
older than the store is normal. Only one process writes a directory's file.
Invariants: the file never goes back to an earlier revision of one history.
Elsewhere: its meaning (`known_metadata`), waiting for it (`partitions`, `producer_ids`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Disk, Workers
from penstock.cluster.metadata.image import EMPTY, Image
from penstock.cluster.metadata.known_metadata import (
    KnownMetadata,
    has_changed,
    has_gone_back,
    known_of,
)
from penstock.log import files

log = logging.getLogger("penstock.metadata")

FILE = "known-metadata"
PAUSE_SECONDS = 1.0


Remember = Callable[[Image], Awaitable[None]]
"""Returns once the topics of an image are persisted here."""


async def remember_nothing(image: Image) -> None:
    pass


class StoreWentBack(Exception):
    """The store shows an earlier state; the message says which."""


def read(disk: Disk, data_dir: str) -> KnownMetadata | None:
    """Reads the previous process's metadata; None if the file is missing or damaged."""
    body = files.read_checked(disk, files.join(data_dir, FILE))
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=KnownMetadata)
    except msgspec.MsgspecError:
        return None


def write(disk: Disk, data_dir: str, known: KnownMetadata, number: int = 0) -> None:
    """`number` counts the replacements of this file by one node."""
    path = files.join(data_dir, FILE)
    files.write_durably(disk, path, msgspec.json.encode(known), files.temporary(number))


class KnownMetadataFile:
    """Metadata that this node has seen, in this process and before."""

    def __init__(
        self,
        disk: Disk | None,
        workers: Workers,
        data_dir: str,
        node_id: int,
        next_producer_id: int = 0,
    ) -> None:
        """Without a disk nothing is persisted. `next_producer_id`: of an earlier process."""
        self._disk = disk
        self._node_id = node_id
        self._workers = workers
        self._data_dir = data_dir
        self._image: Image = EMPTY
        """Newest image."""
        self._kept: Image = EMPTY
        """Image in the file."""
        self._next_producer_id = next_producer_id
        self._kept_producer_id = 0
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._gone_back: str | None = None
        self._number = 0

    def follow(self, before: Image, after: Image) -> None:
        """Schedules a write if needed; called at every change of the image."""
        self._gone_back = self._gone_back or has_gone_back(before, after, self._node_id)
        if self._gone_back is not None:
            self._wake.set()
            return
        self._image = after
        if has_changed(before, after):
            self._wake.set()

    async def topics(self, image: Image) -> None:
        """Returns once the topics of this image are on disk. Raises OSError."""
        if self._image.revision < image.revision:
            self._image = image
        if self._kept.revision < image.revision and has_changed(self._kept, image):
            await self._write(lambda: self._kept.revision >= image.revision)

    async def producer_ids(self, next_id: int) -> None:
        """Returns once the file says that ids below `next_id` may be in use."""
        self._next_producer_id = max(self._next_producer_id, next_id)
        try:
            await self._write(lambda: self._kept_producer_id >= next_id)
        except OSError as error:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{FILE} cannot be written: {error}"
            ) from error

    async def run(self) -> None:
        """Keeps the file up to date until cancelled; then writes once more."""
        try:
            await self._write_changes()
        except asyncio.CancelledError:
            await self._flush()
            raise

    async def _write_changes(self) -> None:
        while True:
            await self._wake.wait()
            if self._gone_back is not None:
                raise StoreWentBack(self._gone_back)
            await asyncio.sleep(PAUSE_SECONDS)
            self._wake.clear()
            if not has_changed(self._kept, self._image):
                continue
            try:
                await self._write(lambda: not has_changed(self._kept, self._image))
            except (OSError, Refused) as error:
                log.warning("%s is written later: %s", FILE, error)
                self._wake.set()

    async def _flush(self) -> None:
        try:
            await self._write(lambda: not has_changed(self._kept, self._image))
        except (OSError, Refused) as error:
            log.warning("%s was not written: %s", FILE, error)

    async def _write(self, is_done: Callable[[], bool]) -> None:
        if self._disk is None:
            return
        async with self._writing:
            if is_done():
                return
            image, next_id = self._image, self._next_producer_id
            if image is EMPTY:
                return
            self._number += 1
            await self._workers.run(_put, self._disk, self._data_dir, image, next_id, self._number)
            self._kept = image
            self._kept_producer_id = max(next_id, image.next_producer_id)


def _put(disk: Disk, data_dir: str, image: Image, next_id: int, number: int) -> None:
    write(disk, data_dir, known_of(image, next_id), number)
