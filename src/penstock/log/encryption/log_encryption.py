"""What encryption at rest does to one log: batches and small files, sealed and opened (ADR 0019).

The batch stays the unit. A sealed one has its header in clear, with a length and a CRC of its own
and the bit ENCRYPTED among its attributes, so that everything that only looks at headers (scans,
indexes, recovery, cuts) works as with any other:

    header (61) | incarnation (12) | count (4) | encrypted: CRC of before (4), records | tag (16)

The tag also covers the header, so that a batch cannot be put elsewhere. What clients and other
nodes get is opened again, to the very bytes that were appended.

A log has a key or none (`key_file`). Without one the vault leaves everything as it is; with one,
segments begun while the topic's config says so are sealed, and caches and snapshots always. Each
segment that is begun gets an incarnation of its own (`security.data_keys`).
"""

import struct
from collections.abc import Iterator

import crc32c

from penstock.base.errors import Corrupt
from penstock.base.ports import Buffer
from penstock.security.data_keys import (
    PREFIX_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    DamagedSeal,
    DataKeys,
    Incarnation,
)
from penstock.security.keyring import Keyring, Wrapped
from penstock.wire.records import ATTRIBUTES_AT, BATCH_OVERHEAD, CRC_AT, ENCRYPTED, LENGTH_OVERHEAD

_CRC_BYTES = 4
SEALED_OVERHEAD = PREFIX_BYTES + _CRC_BYTES + TAG_BYTES
"""How much longer a sealed batch is."""
_LENGTH_AT = 8
_BIT = ENCRYPTED >> 8
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_NO_CRC = bytes(_CRC_BYTES)


class LogCipher:
    """The key of one log, if it has one. Its segments share it."""

    __slots__ = ("_files", "_keys", "keyring", "wrapped")

    def __init__(self, keyring: Keyring | None = None) -> None:
        self.keyring = keyring
        self.wrapped: Wrapped | None = None
        """The key as it is on disk."""
        self._keys: DataKeys | None = None
        self._files: Incarnation | None = None

    def unlock(self, wrapped: Wrapped, root: bytes) -> None:
        assert self.keyring is not None
        self.wrapped = wrapped
        self._keys = DataKeys(root, self.keyring.cipher)
        self._files = self.incarnate()

    @property
    def has_key(self) -> bool:
        return self._keys is not None

    @property
    def scratch(self) -> memoryview | None:
        """For the thread that appends; see `Keyring`."""
        return None if self.keyring is None else self.keyring.scratch

    def room(self, size: int) -> memoryview:
        """For what is opened to be sent. The loop's thread only."""
        return (
            memoryview(bytearray(size)) if self.keyring is None else self.keyring.rooms.take(size)
        )

    def incarnate(self) -> Incarnation:
        assert self._keys is not None
        assert self.keyring is not None
        return self._keys.incarnate(self.keyring.random.random_bytes(SALT_BYTES))

    def open_batches(self, data: bytes) -> bytes | bytearray:
        """Stored batches as they were appended; the first one says whether all are sealed.

        Then half a batch at the end is left out: it cannot be opened. Raises Corrupt.
        """
        if not is_sealed(data):
            return data
        opened = bytearray(len(data))
        room = memoryview(opened)
        end = self.open_into(data, room)
        room.release()
        del opened[end:]
        return opened

    def open_into(self, data: Buffer, room: memoryview) -> int:
        """Opens whole sealed batches into the start of `room`; how much that is. Raises Corrupt."""
        view = memoryview(data)
        at = end = 0
        while at + BATCH_OVERHEAD <= len(view):
            following = at + LENGTH_OVERHEAD + _INT32.unpack_from(view, at + _LENGTH_AT)[0]
            if following > len(view):
                break
            end += self._open_into(view[at:following], room[end:])
            at = following
        return end

    def _open_into(self, batch: memoryview, room: memoryview) -> int:
        """Opens one batch into the start of `room`; its size there."""
        size = len(batch) - SEALED_OVERHEAD
        if self._keys is None or size < BATCH_OVERHEAD or not batch[ATTRIBUTES_AT] & _BIT:
            raise Corrupt("an encrypted batch without a key, or too short, or amid others")
        header = bytearray(batch[:BATCH_OVERHEAD])
        header[CRC_AT:ATTRIBUTES_AT] = _NO_CRC
        # The CRC of before comes first, so it lands on the end of the header, which comes after.
        start = BATCH_OVERHEAD - _CRC_BYTES
        try:
            self._keys.open_into(batch[BATCH_OVERHEAD:], header, room[start:size])
        except DamagedSeal:
            raise Corrupt(
                "an encrypted batch is not what was written, or not by this log"
            ) from None
        header[CRC_AT:ATTRIBUTES_AT] = room[start:BATCH_OVERHEAD]
        header[ATTRIBUTES_AT] &= ~_BIT
        _INT32.pack_into(header, _LENGTH_AT, size - LENGTH_OVERHEAD)
        room[:BATCH_OVERHEAD] = header
        return size

    def seal_file(self, name: str, body: Buffer) -> bytes:
        """A small file's content, bound to its name."""
        assert self._files is not None
        return self._files.seal(body, name.encode())

    def open_file(self, name: str, sealed: bytes) -> bytes | None:
        """None when it cannot be opened, for whatever reason."""
        size = len(sealed) - PREFIX_BYTES - TAG_BYTES
        if self._keys is None or size < 0:
            return None
        body = bytearray(size)
        try:
            self._keys.open_into(sealed, name.encode(), memoryview(body))
        except DamagedSeal:
            return None
        return bytes(body)


NO_KEY = "the topic is to be encrypted, and this node has no key: set encryption.kek.source"

PLAIN = LogCipher()
"""Of a log that knows nothing of encryption."""


def is_sealed(data: Buffer) -> bool:
    """Whether the batch at the start of `data` is."""
    return len(data) > ATTRIBUTES_AT and bool(data[ATTRIBUTES_AT] & _BIT)


def opened_bytes(sealed: Buffer, start: int = 0, enough: int = 1 << 62) -> tuple[int, int]:
    """Where whole sealed batches from `start` on end, and how large they are when opened.

    Looks no further than the batch that makes that `enough`.
    """
    view = memoryview(sealed)
    at, size = start, 0
    while size < enough and at + BATCH_OVERHEAD <= len(view):
        following = at + LENGTH_OVERHEAD + _INT32.unpack_from(view, at + _LENGTH_AT)[0]
        if not at < following <= len(view):
            break
        size += following - at - SEALED_OVERHEAD
        at = following
    return at, size


def seal_batches(incarnation: Incarnation, run: Buffer, scratch: memoryview | None) -> memoryview:
    """The stored form of whole batches; in `scratch`, if there is one and it is large enough."""
    view = memoryview(run)
    sizes = list(_sizes(view))
    total = len(view) + SEALED_OVERHEAD * len(sizes)
    if scratch is None or len(scratch) < total:
        scratch = memoryview(bytearray(total))
    at = end = 0
    for size in sizes:
        stored = size + SEALED_OVERHEAD
        _seal_into(incarnation, view[at : at + size], scratch[end : end + stored])
        at, end = at + size, end + stored
    return scratch[:total]


def _sizes(view: memoryview) -> Iterator[int]:
    at = 0
    while at < len(view):
        size = LENGTH_OVERHEAD + _INT32.unpack_from(view, at + _LENGTH_AT)[0]
        yield size
        at += size


def _seal_into(incarnation: Incarnation, batch: memoryview, room: memoryview) -> None:
    assert not batch[ATTRIBUTES_AT] & _BIT, "this batch is sealed already"
    header = room[:BATCH_OVERHEAD]
    header[:] = batch[:BATCH_OVERHEAD]
    header[ATTRIBUTES_AT] |= _BIT
    header[CRC_AT:ATTRIBUTES_AT] = _NO_CRC
    _INT32.pack_into(header, _LENGTH_AT, len(room) - LENGTH_OVERHEAD)
    content = room[BATCH_OVERHEAD:]
    crc = batch[CRC_AT:ATTRIBUTES_AT]
    start = BATCH_OVERHEAD - _CRC_BYTES
    if batch.readonly:
        incarnation.seal_into(b"".join((crc, batch[BATCH_OVERHEAD:])), header, content)
    else:
        # The CRC has to stand before the records. The end of the header lends its place, and is
        # put back: that spares a copy of everything.
        lent = bytes(batch[start:BATCH_OVERHEAD])
        batch[start:BATCH_OVERHEAD] = crc
        try:
            incarnation.seal_into(batch[start:], header, content)
        finally:
            batch[start:BATCH_OVERHEAD] = lent
    _UINT32.pack_into(room, CRC_AT, crc32c.crc32c(room[ATTRIBUTES_AT:]))
