"""Read-ahead for encrypted logs: decrypts the next chunk while a consumer handles the last one.

Decrypting a chunk takes about as long as sending it, and a consumer requests the next chunk only
when it has the last one, so it would wait for both. So when a consumer has been sent everything,
the next chunk is decrypted, ready for its next request. Chunks that are not requested within
`KEPT_SECONDS` are dropped. At `BYTES_MAX` there is no read-ahead.

Decryption runs on the event loop, one chunk at a time, as for direct replies, and only from the
page cache. ADR 0025 explains why workers do not do it, and why not earlier.

A chunk may contain uncommitted batches: it is returned only for a span that covers it, to readers
that may read it. A chunk that cannot be read or decrypted is dropped: the next request finds the
cause.
"""

import asyncio
from typing import Final

from penstock.base.errors import Corrupt
from penstock.log.encryption.decrypting_reader import Opened, decrypt_chunk
from penstock.log.read_span import ReadSpan
from penstock.log.search import ending
from penstock.log.segment import Segment

BYTES_MAX: Final = 16 << 20
CHUNK_BYTES_MIN: Final = 256 * 1024
"""Smallest chunk: with less data the reader is near the end of the log."""
CHUNK_BYTES_MAX: Final = 2 << 20
"""Largest chunk: more would block the event loop, and larger fetches are infrequent."""
KEPT_SECONDS: Final = 1.0

ReadAheadKey = tuple[Segment, int]


class DecryptedChunk:
    """Chunk: batches of one segment from one position on, decrypted or still to decrypt."""

    __slots__ = ("opened", "since", "size")

    def __init__(self, size: int, since: float) -> None:
        self.size = size
        self.since = since
        self.opened: Opened | None = None


class ReadAhead:
    """Read-ahead of one node."""

    def __init__(self) -> None:
        self._chunks: dict[ReadAheadKey, DecryptedChunk] = {}  # Oldest first.
        self._wanted: dict[ReadAheadKey, DecryptedChunk] = {}
        self._bytes = 0
        self._is_opening = False
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def bytes_held(self) -> int:
        return self._bytes

    def take(self, span: ReadSpan) -> Opened | None:
        """Removes and returns the decrypted chunk at the start of `span`, if there is one."""
        key = (span.segment, span.position)
        chunk = self._chunks.get(key)
        if chunk is None:
            return None
        self._forget(key, chunk)
        opened = chunk.opened
        if opened is None or opened.end > span.end:
            return None
        return opened if opened.generation == span.segment.generation else None

    def follow(self, span: ReadSpan, end: int) -> None:
        """Requests read-ahead from `end` on, unless the reader is near the end of the log."""
        if end - span.position < CHUNK_BYTES_MIN or span.bytes_max > CHUNK_BYTES_MAX:
            return
        segment = span.segment
        size = ending(segment, end, end + span.bytes_max, segment.size) - end
        key = (segment, end)
        if size < CHUNK_BYTES_MIN or key in self._chunks or self._bytes + size > BYTES_MAX:
            return
        loop = asyncio.get_running_loop()
        self._chunks[key] = self._wanted[key] = DecryptedChunk(size, loop.time())
        self._bytes += size
        if self._expiry is None:
            self._expiry = loop.call_later(KEPT_SECONDS, self._expire)

    def sent(self) -> None:
        """Starts read-ahead, since a consumer has been sent its whole reply."""
        if self._wanted and not self._is_opening:
            self._is_opening = True
            asyncio.get_running_loop().call_soon(self._open)

    def _open(self) -> None:
        """Decrypts the oldest requested chunk, and schedules itself for the next one."""
        for key, chunk in self._wanted.items():
            del self._wanted[key]
            try:
                chunk.opened = decrypt_chunk(*key, chunk.size)
            except (Corrupt, OSError):
                chunk.opened = None
            if chunk.opened is None:
                self._forget(key, chunk)
            break
        self._is_opening = bool(self._wanted)
        if self._is_opening:
            # After other ready callbacks of the loop.
            asyncio.get_running_loop().call_soon(self._open)

    def _forget(self, key: ReadAheadKey, chunk: DecryptedChunk) -> None:
        if self._chunks.get(key) is chunk:
            del self._chunks[key]
            self._wanted.pop(key, None)
            self._bytes -= chunk.size

    def _expire(self) -> None:
        self._expiry = None
        loop = asyncio.get_running_loop()
        late = loop.time() - KEPT_SECONDS
        for key, chunk in tuple(self._chunks.items()):
            if chunk.since <= late:
                self._forget(key, chunk)
        if self._chunks:
            self._expiry = loop.call_later(KEPT_SECONDS, self._expire)
