"""Read span: the byte range of one segment that `Log.locate` returns and a fetch sends.

`read_cached` never waits and returns None when the disk, a search or a check is needed; `read`
does all of those and is for Workers. The bytes start at the batch that holds the requested offset
and may end inside a small batch, as in Kafka; the first batch is always whole.

Bytes that an earlier process wrote are checked (lengths, offsets, leader epochs, CRCs) the first
time they are read from the start of the unchecked part on. Damage raises Corrupt, and the bytes are
never served. The headers before them are checked, too, from the nearest indexed one: otherwise a
wrong offset there would lead to the wrong batch. An empty result means that the log was truncated
during the read: reply with no records, and the client will fetch again.

Encrypted batches are decrypted when they are read, or piece by piece when they are sent. The stored
form is never sent.
"""

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Buffer
from penstock.log.encryption.decrypting_reader import SealedSlice
from penstock.log.segment import Segment
from penstock.wire.records import BATCH_OVERHEAD, LENGTH_OVERHEAD, check_stored, read_header


class ReadSpan:
    """`position` and `end` are exact, or -1 until `read` has searched for them."""

    __slots__ = (
        "_bytes_max",
        "_first_offset",
        "_generation",
        "_limit",
        "_offset",
        "end",
        "left_out",
        "position",
        "segment",
    )

    def __init__(
        self,
        segment: Segment,
        offset: int,
        bytes_max: int,
        limit: int,
        position: int = -1,
        end: int = -1,
        readable_end: int = -1,
    ) -> None:
        self.segment = segment
        self._generation = segment.generation
        self._offset = offset
        self._bytes_max = bytes_max
        self._limit = limit
        self._first_offset = -1  # Base offset of the first batch, once it was searched for.
        self.position = position
        self.end = end
        self.left_out = max(0, min(position + bytes_max, readable_end) - end)
        """Bytes within the limits that are left out, because they are half of a large batch."""

    @property
    def bytes_max(self) -> int:
        """Requested maximum."""
        return self._bytes_max

    @property
    def size(self) -> int:
        """Bytes to be read; before the search, the most that it can find."""
        if self.position >= 0:
            return self.end - self.position
        return min(self._bytes_max, self.segment.size)

    def read_cached(self) -> bytes | bytearray | None:
        segment = self.segment
        position, end = self.position, self.end
        if position < 0 or (position < segment.unverified_end and end > segment.unverified_start):
            return None
        data = segment.file.read_cached(position, end - position)
        if data is None:
            return None
        if segment.generation != self._generation:
            return b""
        try:
            return segment.reveal(data, position)
        except Corrupt:
            return None  # A worker meets the same damage and handles it.

    def slice(self) -> "FileSlice | None":
        """The same bytes unread, to be sent unchanged; None where `read_cached` would be None, or
        where the bytes are, or may be, encrypted.

        Whether they are in the page cache shows when they are sent.
        """
        segment = self.segment
        if segment.is_encrypted is not False:
            return None
        position, end = self.position, self.end
        if position < 0 or (position < segment.unverified_end and end > segment.unverified_start):
            return None
        return FileSlice(segment, position, end - position)

    @property
    def is_sealed(self) -> bool:
        """True while the bytes are located, and known to be encrypted and undamaged."""
        segment = self.segment
        if not segment.is_encrypted or segment.is_doubted or self.position < 0:
            return False
        return self.position >= segment.unverified_end or self.end <= segment.unverified_start

    def sealed_slice(self) -> "SealedSlice | None":
        """Like `slice` for encrypted bytes: read here, and decrypted while they are sent."""
        if not self.is_sealed:
            return None
        segment, position, end = self.segment, self.position, self.end
        data = segment.file.read_cached(position, end - position)
        if data is None or len(data) < end - position or segment.generation != self._generation:
            return None
        return SealedSlice(segment, position, data)

    def read(self) -> bytes | bytearray:
        """Reads, checks and decrypts the bytes. Blocks: call it through Workers."""
        segment = self.segment
        try:
            if self.position < 0:
                self._search()
            data = segment.file.read(self.position, self.end - self.position)
            if self.position < segment.unverified_end and self.end > segment.unverified_start:
                self._verify(data)
            segment.find_kind()
            content = segment.reveal(data, self.position)
        except Corrupt:
            if segment.generation != self._generation:
                return b""
            raise
        if segment.generation != self._generation:
            return b""
        if len(data) < self.end - self.position:
            raise Corrupt(
                f"{segment.path}: {len(data)} bytes at position {self.position} instead of "
                f"{self.end - self.position}"
            )
        return content

    def _search(self) -> None:
        """Finds the first batch to send, and the end of the readable part of the segment."""
        segment, offset = self.segment, self._offset
        start = end = -1
        for position, header in segment.since(offset):
            if header.base_offset + header.last_offset_delta >= offset:
                start, end = position, position + LENGTH_OVERHEAD + header.length
                break
        else:
            raise Corrupt(f"{segment.path}: no batch holds offset {offset}")
        if header.base_offset >= self._limit:
            self.position = self.end = start  # After a gap there is nothing readable yet.
            return
        self._first_offset = header.base_offset
        limit_position = segment.size
        anchor = max(segment.anchor(self._limit), (start, header.base_offset))
        for position, header in segment.headers(*anchor):
            if header.base_offset >= self._limit:
                limit_position = position
                break
        self.end = min(max(end, start + self._bytes_max), limit_position)
        self.position = start

    def _verify(self, data: bytes) -> None:
        """Checks the whole batches in `data`, and that a partial last one fits the segment."""
        segment = self.segment
        view = memoryview(data)
        at = 0
        offset = self._first_offset
        while at + BATCH_OVERHEAD <= len(view):
            header = read_header(view, at)
            following = at + LENGTH_OVERHEAD + header.length
            if following < at + BATCH_OVERHEAD or self.position + following > segment.size:
                raise Corrupt(f"{segment.path}: no valid batch at position {self.position + at}")
            if following > len(view):
                break
            try:
                check_stored(view[at:following])
            except Refused as error:
                raise Corrupt(
                    f"{segment.path}: at position {self.position + at}: {error}"
                ) from None
            if self.position + at < segment.unverified_end:
                # Without a search, the first batch is one that was checked before.
                expected = header.base_offset if offset < 0 else offset
                segment.check_place(header, self.position + at, expected)
            offset = header.next_offset
            at = following
        if self.position <= segment.unverified_start:
            verified = min(self.position + at, segment.unverified_end)
            segment.unverified_start = max(segment.unverified_start, verified)


class FileSlice:
    """Verified bytes of a segment to be sent to a socket. See `ports.Slice`.

    The file stays readable while this object lives, even if the segment is retired meanwhile. If
    the segment is truncated, the announced bytes are gone: raises EOFError, and the connection must
    be closed, because the client already has their length.
    """

    __slots__ = ("_generation", "_position", "_segment", "_size")

    def __init__(self, segment: Segment, position: int, size: int) -> None:
        self._segment = segment
        self._generation = segment.generation
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def send_to(self, descriptor: int) -> bool:
        segment = self._segment
        if segment.generation != self._generation:
            raise self._cut()
        sent = segment.file.send_to(descriptor, self._position, self._size)
        if sent is None:
            return False
        self._position += sent
        self._size -= sent
        return True

    def take(self, size: int) -> Buffer:
        """Waits for the disk if the bytes have left the page cache since the fetch."""
        size = min(size, self._size)
        file = self._segment.file
        data = file.read_cached(self._position, size)
        if data is None:
            data = file.read(self._position, size)
        if self._segment.generation != self._generation:
            raise self._cut()
        if len(data) != size:
            raise EOFError(f"{file.path} ends before {self._position + size}")
        self._position += size
        self._size -= size
        return data

    def _cut(self) -> EOFError:
        return EOFError(f"{self._segment.path} was truncated while it was being sent")
