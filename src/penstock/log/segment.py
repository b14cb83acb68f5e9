"""Segment: a file of batches in wire format, or encrypted, with the indexes to search it.

Owns the `.log` file, its index (relative offset -> position), its time index (timestamp ->
relative offset) and the aborted transactions whose marker lies here. The log file is the source of
truth; the rest is loaded from `index_files` on first use and rebuilt from batch headers on any
doubt.

Invariants:
- Batches lie back to back; base offsets rise; the last batch of a sealed segment ends just below
  the next segment's base offset (the log rolls at its end offset, and compaction keeps the last
  batch, if necessary without records). So an offset inside the log always lies in the segment with
  the highest base offset at or below it.
- Positions fit 32 bits, offsets relative to the base fit 31.
- Bytes in [unverified_start, unverified_end) were written by an earlier process and have not
  been checked by this one; `read_span.ReadSpan` checks them before they are served. Until then
  offsets and epochs in batch headers there are trusted only if `expected` admits them.
- `generation` rises before the file is truncated; a reader that finds it changed after its read
  discards the bytes. Renamed and unlinked files keep their content (`ports.Disk`).
- Either all of its batches are sealed (`encryption.log_encryption`) or none is. `begin` sets which
  before the first append; when the config changes, the log rolls. Positions and sizes are those of
  the stored batches.

The tail keeps the exact positions of the newest batches, so that fetches at the end of the log
need no search in the file. Only the active segment has one.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Buffer, Disk, File
from penstock.log import files, index_files
from penstock.log import index_files as indexes
from penstock.log.encryption.log_encryption import (
    PLAIN,
    SEALED_OVERHEAD,
    LogCipher,
    is_sealed,
    seal_batches,
)
from penstock.log.expected_batches import EVERYWHERE, ExpectedBatches
from penstock.log.index_files import EMPTY, NO_TIMESTAMP, UNKNOWN, AbortedTxn, Index, Summary
from penstock.wire.records import (
    BATCH_OVERHEAD,
    LENGTH_OVERHEAD,
    BatchHeader,
    check_stored,
    is_control,
    read_header,
)

if TYPE_CHECKING:
    from penstock.security.data_keys import Incarnation

RELATIVE_OFFSET_MAX = 2**31 - 1
TAIL_BATCHES_MAX = 1024
CHUNK_BYTES = 64 * 1024
INDEX_ENTRY_BYTES = 8
NO_TAIL = 2**63 - 1


class Segment:
    __slots__ = (
        "_disk",
        "_incarnation",
        "_interval_bytes",
        "_tail_lasts",
        "_tail_positions",
        "_unindexed_bytes",
        "aborted",
        "base_offset",
        "begun",
        "cipher",
        "expected",
        "file",
        "first_timestamp",
        "generation",
        "index",
        "index_bytes",
        "is_doubted",
        "is_encrypted",
        "max_timestamp",
        "max_timestamp_offset",
        "overhead_bytes",
        "path",
        "retired",
        "size",
        "tail_start",
        "times",
        "unverified_end",
        "unverified_start",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        file: File,
        interval_bytes: int,
        cipher: LogCipher = PLAIN,
    ) -> None:
        self._disk = disk
        self.cipher = cipher
        self._incarnation: Incarnation | None = None
        self.begun: bool | None = None
        """True while appended batches are encrypted; None before `begin`."""
        self.is_doubted = False  # True once a batch could not be decrypted for sending.
        self.is_encrypted: bool | None = None
        """True if the stored batches are encrypted; None while unknown: of an earlier process."""
        self.overhead_bytes = 0  # Bytes that storing a batch here adds to its size.
        self.path = files.join(directory, files.file_name(base_offset, ""))
        self.base_offset = base_offset
        self.file = file
        self.size = file.size()
        self.generation = 0
        self.retired = False
        """True once replaced or removed: the cache files of this name belong to another segment.
        Set before they change, so a reader that finds it unset afterwards has read the right ones.
        """
        self._interval_bytes = interval_bytes
        self._unindexed_bytes = 0
        self.index_bytes = 0
        # None until loaded: see `load`. `aborted` may stay unknown longer: see `index_files`.
        self.index: Index | None = None
        self.times: Index | None = None
        self.aborted: list[AbortedTxn] | None = None
        self.first_timestamp, self.max_timestamp, self.max_timestamp_offset, _ = EMPTY
        self.tail_start = NO_TAIL  # The tail holds every batch from this offset on.
        self._tail_lasts: array[int] = array("q")
        self._tail_positions: array[int] = array("q")
        self.unverified_start = 0
        self.unverified_end = self.size
        self.expected: ExpectedBatches | None = None
        """Constraints on unverified batches; see `recovery`."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        interval_bytes: int,
        cipher: LogCipher = PLAIN,
    ) -> "Segment":
        path = files.join(directory, files.file_name(base_offset, files.LOG))
        return cls(disk, directory, base_offset, disk.open(path), interval_bytes, cipher)

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        interval_bytes: int,
        cipher: LogCipher = PLAIN,
    ) -> "Segment":
        path = files.join(directory, files.file_name(base_offset, files.LOG))
        file = disk.open(path, create=True)
        segment = cls(disk, directory, base_offset, file, interval_bytes, cipher)
        assert segment.size == 0, f"{path} existed before it was created"
        segment.index = Index(indexes.OFFSET_KINDS)
        segment.times = Index(indexes.TIME_KINDS)
        segment.aborted = []
        return segment

    def begin(self, encrypted: bool) -> None:
        """Prepares for appends, at first and after a truncation.

        An encrypted segment gets a data key of its own. Batches that it holds already must be of
        the same kind.
        """
        self.begun = self.is_encrypted = encrypted
        self._incarnation = self.cipher.incarnate() if encrypted else None
        self.overhead_bytes = SEALED_OVERHEAD if encrypted else 0

    def find_kind(self) -> bool | None:
        """True if the batches are encrypted; None without a batch. May read the file."""
        if self.is_encrypted is None and self.size:
            self.is_encrypted = is_sealed(self.file.read(0, BATCH_OVERHEAD))
        return self.is_encrypted if self.size else None

    def stored(self, run: Buffer, scratch: memoryview | None = None) -> Buffer:
        """Stored form of a run of batches."""
        incarnation = self._incarnation
        return run if incarnation is None else seal_batches(incarnation, run, scratch)

    def append(self, batch: Buffer, base_offset: int, last_offset: int, timestamp: int) -> None:
        """Writes one batch. Hot path, so it repeats the work of `note` inline.

        The caller has called `load` and `begin`.
        """
        size = len(batch) + self.overhead_bytes
        position = self.file.append(
            (batch if self._incarnation is None else self.stored(batch, self.cipher.scratch),)
        )
        assert position == self.size, "another writer appends to this segment"
        self.size = position + size
        tail = self._tail_lasts
        if not tail:
            self.tail_start = base_offset
        tail.append(last_offset)
        self._tail_positions.append(position)
        if len(tail) > TAIL_BATCHES_MAX:
            self._trim_tail()
        if timestamp > self.max_timestamp or not position:
            self.note(position, size, base_offset, last_offset, timestamp)
        else:
            unindexed = self._unindexed_bytes
            if unindexed > self._interval_bytes:
                self._index_batch(base_offset, position)
                unindexed = 0
            self._unindexed_bytes = unindexed + size

    def append_run(self, run: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Writes batches that lie back to back with one system call. Otherwise like `append`."""
        overhead = self.overhead_bytes
        position = self.file.append((self.stored(run, self.cipher.scratch),))
        assert position == self.size, "another writer appends to this segment"
        self.size = position + len(run) + overhead * len(headers)
        lasts, positions = self._tail_lasts, self._tail_positions
        if not lasts:
            self.tail_start = headers[0].base_offset
        for header in headers:
            size = header.size_bytes + overhead
            base_offset = header.base_offset
            last_offset = base_offset + header.last_offset_delta
            lasts.append(last_offset)
            positions.append(position)
            self.note(position, size, base_offset, last_offset, header.max_timestamp)
            position += size
            if len(lasts) > TAIL_BATCHES_MAX:
                self._trim_tail()

    def note(
        self, position: int, size: int, base_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """Adds the next batch to the indexes."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = timestamp
        elif self._unindexed_bytes > self._interval_bytes:
            self._index_batch(base_offset, position)
            self._unindexed_bytes = 0
        self._unindexed_bytes += size

    def _index_batch(self, base_offset: int, position: int) -> None:
        assert self.index is not None
        assert self.times is not None
        self.index.append(base_offset - self.base_offset, position)
        self.index_bytes += INDEX_ENTRY_BYTES
        times = self.times.keys
        if self.max_timestamp > (times[-1] if times else NO_TIMESTAMP):
            relative = max(self.max_timestamp_offset - self.base_offset, 0)
            self.times.append(self.max_timestamp, relative)

    @property
    def is_summed_up(self) -> bool:
        """True while `summary` needs no read."""
        return self.max_timestamp != NO_TIMESTAMP or self.index is not None or not self.size

    def summary(self) -> Summary:
        """Returns the summary; reads the caches of a sealed segment of an earlier process."""
        if not self.is_summed_up:
            self.load()
        count = UNKNOWN if self.aborted is None else len(self.aborted)
        return Summary(self.first_timestamp, self.max_timestamp, self.max_timestamp_offset, count)

    def believe(self, summary: Summary) -> None:
        """Takes over the summary that a clean stop persisted."""
        self.first_timestamp, self.max_timestamp, self.max_timestamp_offset, aborted = summary
        if aborted == 0:
            self.aborted = []

    def since(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Like `headers`, from an indexed batch at or before the one that holds `offset`. Reads."""
        return self.headers(*self.anchor(offset))

    def anchor(self, offset: int) -> tuple[int, int]:
        """Position and base offset of an indexed batch at or before the one that holds `offset`.
        May read."""
        relative, position = self.load().entry(max(offset - self.base_offset, 0))
        return position, self.base_offset + relative

    def place(self, offset: int) -> tuple[int, int] | None:
        """Start and end of the batch that holds `offset`; None if finding it could wait.

        The end may be that of a later batch: it is the next position in the index.
        """
        index = self.index
        if index is None:
            return None
        wanted = offset - self.base_offset
        at = bisect_right(index.keys, wanted)
        start = index.values[at - 1] if at else 0
        end = index.values[at] if at < len(index.values) else self.size
        if start < self.unverified_end and end > self.unverified_start:
            return None  # The headers in between must be checked, too: `read_span` does.
        if not wanted or (at and index.keys[at - 1] == wanted):
            return start, end
        if end - start > CHUNK_BYTES:
            return None
        chunk = self.file.read_cached(start, end - start)
        if chunk is None:
            return None
        position = 0
        while position + BATCH_OVERHEAD <= len(chunk):
            header = read_header(chunk, position)
            following = position + LENGTH_OVERHEAD + header.length
            if following <= position:
                return None
            if header.base_offset + header.last_offset_delta >= offset:
                return start + position, start + following
            position = following
        return None

    def tail_floor(self, offset: int) -> tuple[int, int]:
        """Start and end of the batch that holds `offset`, or of the first one after it.

        `offset` must be at or after `tail_start`.
        """
        at = bisect_left(self._tail_lasts, offset)
        positions = self._tail_positions
        return positions[at], positions[at + 1] if at + 1 < len(positions) else self.size

    def tail_ceiling(self, offset: int) -> int:
        """Position of the first batch in the tail that ends at or after `offset`."""
        at = bisect_left(self._tail_lasts, offset)
        return self._tail_positions[at] if at < len(self._tail_positions) else self.size

    def _trim_tail(self) -> None:
        half = TAIL_BATCHES_MAX // 2
        self.tail_start = self._tail_lasts[half - 1] + 1
        del self._tail_lasts[:half]
        del self._tail_positions[:half]

    def drop_tail(self) -> None:
        self.tail_start = NO_TAIL
        self._tail_lasts = array("q")
        self._tail_positions = array("q")

    # Caches.

    def load(self) -> Index:
        """Loads the indexes into memory, from their files or from the log itself.

        Any thread may load a sealed segment: each gets the same result, and it is set at once. The
        active segment is loaded by the thread that appends.
        """
        index = self.index
        if index is not None:
            return index
        twin = self._build()
        self.first_timestamp = twin.first_timestamp
        self.max_timestamp = twin.max_timestamp
        self.max_timestamp_offset = twin.max_timestamp_offset
        self._unindexed_bytes = twin._unindexed_bytes
        if self.aborted is None:
            self.aborted = twin.aborted
        self.times = twin.times
        self.index = index = twin.index  # Last, because other threads test it.
        assert index is not None
        self.index_bytes = len(index) * INDEX_ENTRY_BYTES
        return index

    def peek(self) -> "Segment":
        """This segment if its indexes are loaded, else a twin that has them.

        For readers in other threads, which must not load the active segment.
        """
        return self if self.index is not None else self._build()

    def _build(self) -> "Segment":
        """Builds a twin with complete indexes: from caches, and a scan of the uncovered rest."""
        twin = self.blank()
        covered_offset = self.base_offset
        cached = index_files.read(self._disk, self.path, self.size, self.cipher)
        if cached is not None and not self.retired:  # In this order: see `retired`.
            twin.believe(cached.summary)
            twin.size = cached.covered_bytes
            twin.index, twin.times, twin.aborted = cached.index, cached.times, cached.aborted
            twin._unindexed_bytes = cached.unindexed_bytes
            covered_offset = cached.next_offset
        for position, header in self.headers(twin.size, covered_offset):
            size = LENGTH_OVERHEAD + header.length
            last_offset = header.base_offset + header.last_offset_delta
            twin.note(position, size, header.base_offset, last_offset, header.max_timestamp)
            if is_control(header.attributes):
                twin.aborted = None  # Maybe one more: only a replay of producer state can tell.
            twin.size = position + size
        return twin

    def blank(self) -> "Segment":
        """Twin over the same file, with empty indexes."""
        directory, file = files.parent(self.path), self.file
        interval = self._interval_bytes
        twin = Segment(self._disk, directory, self.base_offset, file, interval, self.cipher)
        twin.size = 0
        twin.index = Index(indexes.OFFSET_KINDS)
        twin.times = Index(indexes.TIME_KINDS)
        twin.aborted = []
        return twin

    def encode_caches(self, next_offset: int) -> list[tuple[str, bytes]]:
        """Cache files of this segment, which ends before `next_offset`."""
        index = self.load()
        assert self.times is not None
        cached = index_files.Cached(
            self.summary(),
            self._unindexed_bytes,
            self.size,
            next_offset,
            index,
            self.times,
            self.aborted,
        )
        return index_files.encode(self.path, cached)

    def load_aborted(self, offset: int) -> bool:
        """Loads the aborted transactions that ended below `offset`; False if they are unknown."""
        if self.aborted is None:
            cached = index_files.read(self._disk, self.path, self.size, self.cipher)
            if cached is None or cached.next_offset < offset:
                return False
            self.aborted = cached.aborted
        if self.aborted is None:
            return False
        self.aborted = [txn for txn in self.aborted if txn.last_offset < offset]
        return True

    def remove_caches(self) -> None:
        index_files.remove(self._disk, self.path)

    def forget(self) -> None:
        """Drops the indexes from memory; `load` reads them from the files again."""
        self.times = self.index = None

    def truncate(self, size: int, end_offset: int) -> "Segment":
        """Truncates the file; returns the segment that replaces this one. Durable when it returns.

        Readers in other threads keep this one, and find that its generation has changed.
        """
        self.generation += 1
        self.retired = True
        self.remove_caches()
        self._disk.sync_dir(files.parent(self.path))
        self.file.truncate(size)
        self.file.sync()
        cut = self.blank()
        cut.forget()
        cut.size = size
        cut.unverified_start = min(self.unverified_start, size)
        cut.unverified_end = min(self.unverified_end, size)
        if self.expected is not None:
            cut.expected = self.expected.up_to(min(self.expected.end_offset, end_offset))
        cut.aborted = None
        if self.aborted is not None:
            cut.aborted = [txn for txn in self.aborted if txn.last_offset < end_offset]
        cut.load()
        return cut

    # Reading.

    def headers(
        self, position: int = 0, next_offset: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the batches from `position` on; long bodies stay unread.

        `next_offset` is the offset expected at a `position` other than the start. Raises Corrupt
        for an impossible or unexpected batch. Only headers are checked, not CRCs.
        """
        end = self.size
        next_offset = self.base_offset if next_offset is None else next_offset
        chunk = b""
        chunk_start = position
        while position < end:
            at = position - chunk_start
            if at + BATCH_OVERHEAD > len(chunk):
                chunk_start, at = position, 0
                chunk = self.file.read(position, min(CHUNK_BYTES, end - position))
                if len(chunk) < BATCH_OVERHEAD:
                    raise Corrupt(f"{self.path}: incomplete batch at position {position}")
            header = read_header(chunk, at)
            following = position + LENGTH_OVERHEAD + header.length
            if header.magic != 2 or following < position + BATCH_OVERHEAD or following > end:
                raise Corrupt(f"{self.path}: no valid batch at position {position}")
            if position < self.unverified_end:
                self.check_place(header, position, next_offset)
            yield position, header
            next_offset = header.next_offset
            position = following

    def check_place(self, header: BatchHeader, position: int, next_offset: int) -> None:
        """Raises Corrupt for an unexpected offset or leader epoch of an earlier process's batch."""
        expected = self.expected
        if expected is None:
            return
        fits = expected.admits(header, next_offset)
        if (
            position + header.size_bytes == self.unverified_end
            and expected.end_offset != EVERYWHERE
        ):
            fits &= header.next_offset == expected.end_offset
        if not fits:
            raise Corrupt(
                f"{self.path}: unexpected batch at position {position}: offset "
                f"{header.base_offset}, leader epoch {header.leader_epoch}; expected offset "
                f"{next_offset}"
            )

    def read_batch(self, position: int, header: BatchHeader) -> memoryview:
        """Reads one whole batch, verified and decrypted."""
        data = self.file.read(position, LENGTH_OVERHEAD + header.length)
        try:
            check_stored(memoryview(data))
        except Refused as error:
            raise Corrupt(f"{self.path}: at position {position}: {error}") from None
        return memoryview(self.reveal(data, position))

    def reveal(self, data: bytes, position: int) -> bytes | bytearray:
        """Decrypts batches of this file from `position` on. Raises Corrupt."""
        try:
            return self.cipher.open_batches(data)
        except Corrupt as damage:
            raise Corrupt(f"{self.path}: at position {position} or after: {damage}") from None
