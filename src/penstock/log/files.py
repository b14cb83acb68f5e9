"""Files of a log directory: their names, and atomic writes of small files.

A partition's directory holds, for each segment, `<base offset>.log` and its caches `.index`,
`.timeindex`, `.txnindex`; producer snapshots `<offset>.snapshot`; `leader-epochs`; `checkpoint`;
and `gaps`, if there may be any between batches (see `expected_batches`).
Names carry the offset in twenty digits, so that a sorted listing is in offset order.

A small file is written in one of two ways:
- `write_durably`: new content, synced, renamed over the old file, directory synced. For content
  that must survive a power cut: checkpoint, leader epochs and gaps.
- `write_cache`: the same without the syncs. For content that can be rebuilt: indexes and snapshots.

Each of them carries a CRC32C: `read_checked` returns None for a file that is missing, short,
changed or in another format. Caches of a log with a key are encrypted as well
(`encryption.log_encryption`), and `read_cache` decrypts them.
"""

import errno
import posixpath
from typing import NamedTuple

import crc32c
import msgspec

from penstock.base.ports import Buffer, Disk
from penstock.log.encryption.log_encryption import LogCipher

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
CACHES = (INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
REPLACED = ".replaced"
TEMPORARY = ".tmp"
TEMPORARIES = 8
"""Number of file name endings used in turn: more than one file can have concurrent writers."""

CHECKPOINT = "checkpoint"
LEADER_EPOCHS = "leader-epochs"
GAPS = "gaps"

SMALL_FILE_BYTES_MAX = 256 * 1024 * 1024
SEAL = b"PSK1"
ENCRYPTED_SEAL = b"PSK2"
SEAL_BYTES = len(SEAL) + 4


class Checkpoint(NamedTuple):
    """State that recovery trusts without a scan. Written only after the data was synced."""

    recovery_point: int
    """Every batch below this offset was durable."""
    segment: int
    """Base offset of the segment that holds the recovery point."""
    position: int
    """Position in that segment of the batch at the recovery point."""
    start_offset: int
    cleaned_offset: int = 0
    """All offsets below this one have been compacted; see `compaction`."""


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_in(name: str, suffix: str) -> int | None:
    """Offset in a file name, or None when it is not a file of this kind."""
    digits = name[: -len(suffix)]
    if not name.endswith(suffix) or len(digits) != 20 or not digits.isdigit():
        return None
    return int(digits)


def offsets_in(names: list[str], suffix: str) -> list[int]:
    found = (offset_in(name, suffix) for name in names)
    return [offset for offset in found if offset is not None]


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}"


def parent(path: str) -> str:
    return posixpath.dirname(path) or "."


def seal(body: Buffer, mark: bytes = SEAL) -> bytes:
    return b"".join((mark, crc32c.crc32c(body).to_bytes(4, "big"), body))


def read_checked(disk: Disk, path: str) -> bytes | None:
    """Reads the content of a `write_durably`; None when missing or damaged."""
    found = _read(disk, path)
    return found[1] if found is not None and found[0] == SEAL else None


def read_cache(disk: Disk, path: str, cipher: LogCipher) -> bytes | None:
    """Reads the content of a `write_cache`, encrypted or from before the log had a key."""
    found = _read(disk, path)
    if found is not None and found[0] == ENCRYPTED_SEAL:
        return cipher.open_file(posixpath.basename(path), found[1])
    return found[1] if found is not None and found[0] == SEAL else None


def _read(disk: Disk, path: str) -> tuple[bytes, bytes] | None:
    """Format mark and body; None when missing or damaged."""
    try:
        size = disk.size(path)
        if not SEAL_BYTES <= size <= SMALL_FILE_BYTES_MAX:
            return None
        file = disk.open(path)
        try:
            data = file.read(0, size)
        finally:
            file.close()
    except FileNotFoundError:
        return None
    body = data[SEAL_BYTES:]
    if crc32c.crc32c(body) != int.from_bytes(data[4:8], "big"):
        return None
    return data[: len(SEAL)], body


def temporary(number: int) -> str:
    """Name ending of the temporary file for the `number`-th replacement of one file."""
    return f".{number % TEMPORARIES}{TEMPORARY}"


def write_durably(disk: Disk, path: str, body: Buffer, ending: str = TEMPORARY) -> None:
    """Replaces the file durably.

    Each concurrent writer needs an `ending` of its own for its temporary file: a cancelled task
    leaves its worker writing.
    """
    write_temporary(disk, path + ending, seal(body), durable=True)
    disk.rename(path + ending, path)
    disk.sync_dir(parent(path))


def write_cache(disk: Disk, path: str, body: Buffer, cipher: LogCipher) -> None:
    write_temporary(disk, path + TEMPORARY, seal_cache(path, body, cipher))
    disk.rename(path + TEMPORARY, path)


def seal_cache(path: str, body: Buffer, cipher: LogCipher) -> bytes:
    """Content of the cache file at `path`: encrypted if the log has a key."""
    if cipher.has_key:
        return seal(cipher.seal_file(posixpath.basename(path), body), ENCRYPTED_SEAL)
    return seal(body)


def write_temporary(disk: Disk, path: str, content: bytes, *, durable: bool = False) -> None:
    """Writes a file that the caller renames; `durable` syncs it."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append((content,))
        if durable:
            file.sync()
    finally:
        file.close()


def remove(disk: Disk, path: str) -> None:
    """Unlinks a file if it exists."""
    try:
        disk.unlink(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return msgspec.json.encode(checkpoint)


def write_checkpoint(disk: Disk, directory: str, checkpoint: Checkpoint) -> None:
    write_durably(disk, join(directory, CHECKPOINT), encode_checkpoint(checkpoint))


def read_checkpoint(disk: Disk, directory: str) -> Checkpoint | None:
    body = read_checked(disk, join(directory, CHECKPOINT))
    if body is None:
        return None
    try:
        return msgspec.json.decode(body, type=Checkpoint)
    except msgspec.MsgspecError:
        return None
