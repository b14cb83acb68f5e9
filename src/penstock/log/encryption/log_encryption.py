"""Encryption at rest of one log: sealing and opening of batches and small files (ADR 0019).

The batch stays the unit. A sealed (encrypted) batch has a plaintext header, with a length and a CRC
of its own and the attribute bit ENCRYPTED. So everything that only reads headers (scans, indexes,
recovery, truncation) works as with a plain batch:

    header (61) | incarnation (12) | count (4) | encrypted: original CRC (4), records | tag (16)

The tag also covers the header, so that a batch cannot be moved to another offset. Clients and other
nodes get the batch decrypted, byte for byte as it was appended.

A log may have a key (`key_file`). Without one the cipher changes nothing. With one, segments that
begin while the topic's config demands it are sealed; caches and snapshots always are. Each new
segment gets an incarnation of its own (`security.data_keys`).
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
"""Bytes that sealing adds to a batch."""
_LENGTH_AT = 8
_BIT = ENCRYPTED >> 8
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_NO_CRC = bytes(_CRC_BYTES)


class LogCipher:
    """Cipher of one log, with a key if the log has one. Its segments share it."""

    __slots__ = ("_files", "_keys", "keyring", "wrapped")

    def __init__(self, keyring: Keyring | None = None) -> None:
        self.keyring = keyring
        self.wrapped: Wrapped | None = None
        """Key in its wrapped form, as on disk."""
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
        """Buffer for the thread that appends; see `Keyring`."""
        return None if self.keyring is None else self.keyring.scratch

    def new_buffer(self, size: int) -> memoryview:
        """Buffer for decrypted data to be sent. On the loop's thread only."""
        return (
            memoryview(bytearray(size)) if self.keyring is None else self.keyring.buffers.take(size)
        )

    def incarnate(self) -> Incarnation:
        assert self._keys is not None
        assert self.keyring is not None
        return self._keys.incarnate(self.keyring.random.random_bytes(SALT_BYTES))

    def open_batches(self, data: bytes) -> bytes | bytearray:
        """Stored batches as they were appended; the first one tells whether all are sealed.

        If so, a partial batch at the end is left out: it cannot be decrypted. Raises Corrupt.
        """
        if not is_sealed(data):
            return data
        opened = bytearray(len(data))
        target = memoryview(opened)
        end = self.open_into(data, target)
        target.release()
        del opened[end:]
        return opened

    def open_into(self, data: Buffer, target: memoryview) -> int:
        """Decrypts whole sealed batches into the start of `target`; returns their size there.
        Raises Corrupt."""
        view = memoryview(data)
        at = end = 0
        while at + BATCH_OVERHEAD <= len(view):
            following = at + LENGTH_OVERHEAD + _INT32.unpack_from(view, at + _LENGTH_AT)[0]
            if following > len(view):
                break
            end += self._open_into(view[at:following], target[end:])
            at = following
        return end

    def _open_into(self, batch: memoryview, target: memoryview) -> int:
        """Decrypts one batch into the start of `target`; returns its size there."""
        size = len(batch) - SEALED_OVERHEAD
        if self._keys is None or size < BATCH_OVERHEAD or not batch[ATTRIBUTES_AT] & _BIT:
            raise Corrupt(
                "unreadable encrypted batch: the log has no key, or the batch is too short, or it "
                "is not encrypted like its neighbours"
            )
        header = bytearray(batch[:BATCH_OVERHEAD])
        header[CRC_AT:ATTRIBUTES_AT] = _NO_CRC
        # The original CRC comes first, so it lands on the end of the header, which is set later.
        start = BATCH_OVERHEAD - _CRC_BYTES
        try:
            self._keys.open_into(batch[BATCH_OVERHEAD:], header, target[start:size])
        except DamagedSeal:
            raise Corrupt(
                "an encrypted batch was changed on disk, or was not written by this log"
            ) from None
        header[CRC_AT:ATTRIBUTES_AT] = target[start:BATCH_OVERHEAD]
        header[ATTRIBUTES_AT] &= ~_BIT
        _INT32.pack_into(header, _LENGTH_AT, size - LENGTH_OVERHEAD)
        target[:BATCH_OVERHEAD] = header
        return size

    def seal_file(self, name: str, body: Buffer) -> bytes:
        """Encrypts the content of a small file, bound to its name."""
        assert self._files is not None
        return self._files.seal(body, name.encode())

    def open_file(self, name: str, sealed: bytes) -> bytes | None:
        """Decrypts the content of a small file; None when that fails, for any reason."""
        size = len(sealed) - PREFIX_BYTES - TAG_BYTES
        if self._keys is None or size < 0:
            return None
        body = bytearray(size)
        try:
            self._keys.open_into(sealed, name.encode(), memoryview(body))
        except DamagedSeal:
            return None
        return bytes(body)


NO_KEY = "the topic requires encryption, but this node has no key: set encryption.kek.source"

PLAIN = LogCipher()
"""Cipher of a log without encryption."""


def is_sealed(data: Buffer) -> bool:
    """True if the batch at the start of `data` is sealed."""
    return len(data) > ATTRIBUTES_AT and bool(data[ATTRIBUTES_AT] & _BIT)


def opened_bytes(sealed: Buffer, start: int = 0, enough: int = 1 << 62) -> tuple[int, int]:
    """End of the whole sealed batches from `start` on, and their decrypted size.

    Stops at the batch with which the size reaches `enough`.
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
    """Seals whole batches; into `scratch`, if it is given and large enough."""
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


def _seal_into(incarnation: Incarnation, batch: memoryview, target: memoryview) -> None:
    assert not batch[ATTRIBUTES_AT] & _BIT, "this batch is sealed already"
    header = target[:BATCH_OVERHEAD]
    header[:] = batch[:BATCH_OVERHEAD]
    header[ATTRIBUTES_AT] |= _BIT
    header[CRC_AT:ATTRIBUTES_AT] = _NO_CRC
    _INT32.pack_into(header, _LENGTH_AT, len(target) - LENGTH_OVERHEAD)
    content = target[BATCH_OVERHEAD:]
    crc = batch[CRC_AT:ATTRIBUTES_AT]
    start = BATCH_OVERHEAD - _CRC_BYTES
    if batch.readonly:
        incarnation.seal_into(b"".join((crc, batch[BATCH_OVERHEAD:])), header, content)
    else:
        # The CRC must stand directly before the records. It overwrites the end of the header,
        # which is restored afterwards: that saves a copy of the batch.
        lent = bytes(batch[start:BATCH_OVERHEAD])
        batch[start:BATCH_OVERHEAD] = crc
        try:
            incarnation.seal_into(batch[start:], header, content)
        finally:
            batch[start:BATCH_OVERHEAD] = lent
    _UINT32.pack_into(target, CRC_AT, crc32c.crc32c(target[ATTRIBUTES_AT:]))
