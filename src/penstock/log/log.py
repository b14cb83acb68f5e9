"""Log of one partition: an ordered list of segments; batches are appended to the last one.

Owns the offsets: `start_offset` (first readable), `durable_offset` (synced, or written where the
config says page cache), `end_offset` (next to assign). The partition above decides what is
committed. One event loop owns a log; only the calls that say so may block on the disk.

Life of a batch: `append` stamps base offset and leader epoch into it, writes it with one system
call and updates the indexes; `flusher.Flusher` syncs it and calls `mark_durable`; `locate` finds
it again. `recovery` opens a directory as a log; `retention` and `compaction` remove records.

Disk errors:
- ENOSPC on append: no byte of the batch stays in the file, the caller gets the OSError, and the
  log continues as soon as the disk has space again.
- Any other error of an append, and any failed sync: the log goes offline. The content of the file
  is no longer known, so it is neither read nor written until the process restarts.
- Damage found below the durable offset: `quarantine`, which takes the log offline with the reason.
  The files stay as they are, to be replaced by the copy of a peer.
An offline log refuses every call with KAFKA_STORAGE_ERROR.
"""

import errno
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Disk
from penstock.log import files, follower_append, persistence, recovery, search
from penstock.log.cleanup import retention
from penstock.log.cleanup.retention import Removal
from penstock.log.config import LogConfig
from penstock.log.encryption import key_file
from penstock.log.encryption.log_encryption import NO_KEY
from penstock.log.index_files import AbortedTxn
from penstock.log.persistence import Flush
from penstock.log.producers import Producers
from penstock.log.read_span import ReadSpan
from penstock.log.recovery import CleanState, Recovered
from penstock.log.segment import RELATIVE_OFFSET_MAX, Segment
from penstock.security.keyring import Keyring
from penstock.wire.control_batches import ControlMarker, decode_marker
from penstock.wire.records import CONTROL, BatchHeader, stamp

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AbortedTxn",
    "Appended",
    "CleanState",
    "Flush",
    "Log",
    "LogConfig",
    "ReadSpan",
    "Removal",
]

SNAPSHOTS_KEPT = 2
"""Number of newest producer snapshots to keep, besides those at segment starts."""


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    duplicate: bool = False
    """True for an idempotent retry: nothing was appended, the offsets are those of the original."""
    max_timestamp: int = -1
    """For a duplicate: the newest timestamp in the original batch."""


class Log:
    __slots__ = (
        "_epoch",
        "_in_flight",
        "_loaded",
        "_prepared",
        "_since_ms",
        "changed",
        "checkpoint_bytes",
        "checkpoint_due",
        "cipher",
        "cleaned_offset",
        "config",
        "dir_dirty",
        "disk",
        "durable_offset",
        "durable_start",
        "end_offset",
        "epochs",
        "flushing",
        "gaps_end",
        "held",
        "is_doubtful",
        "is_lost",
        "marked",
        "new_snapshots",
        "offline",
        "on_durable",
        "path",
        "producers",
        "segments",
        "snapshots",
        "start_offset",
        "synced_offset",
        "unsynced",
    )

    def __init__(self, disk: Disk, path: str, config: LogConfig, parts: Recovered) -> None:
        self.disk = disk
        self.path = path
        self.config = config
        self.segments = parts.segments
        self.start_offset = parts.start_offset
        self.durable_start = parts.start_offset
        """Start offset after a power cut. Until it has advanced, neither segments nor leader
        epochs below a higher `start_offset` are removed."""
        self.end_offset = parts.end_offset
        self.durable_offset = parts.end_offset
        self.cleaned_offset = parts.cleaned_offset
        """All offsets below this one have been compacted."""
        self.gaps_end = parts.gaps_end
        """Below this offset batches may have gaps between them; see `expected_batches`."""
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.cipher = parts.cipher
        self.offline = parts.offline
        """Reason why the log is offline; None while it is online."""
        self.is_lost = parts.is_lost
        """True while offline because records that were durable here, or committed, are missing."""
        self.is_doubtful = parts.is_doubtful
        """True if this start truncated a tail that may have held committed records, or an earlier
        one that could not say so."""
        self.on_durable: Callable[[], None] | None = None
        """Callback of the owner: runs on the loop each time `durable_offset` has advanced, and
        when a flush has failed and the log went offline."""

        self._epoch = parts.epochs.latest
        self._prepared = False  # True once the index of the active segment is loaded.
        self._since_ms = 0  # Time of the first batch of this process in the active segment.
        self._loaded: list[Segment] = []

        # State for flushes, checkpoints and the close.
        self.marked = False
        """True while queued for the next flush. Set by the flusher only."""
        self.flushing = False
        self.held = False
        """True while no flush may begin: see `Flusher.hold`. Set by the flusher only."""
        self.synced_offset = parts.end_offset
        self.unsynced: list[Segment] = []
        """Segments sealed since the last flush."""
        self._in_flight: list[Segment] = []  # Sealed segments of the flush in progress.
        self.dir_dirty = parts.dir_dirty
        self.checkpoint_bytes = parts.segments.size_bytes
        self.checkpoint_due = False
        self.snapshots = parts.snapshots
        self.new_snapshots: list[tuple[int, bytes]] = []
        self.changed = not parts.is_clean

    @staticmethod
    def open(
        disk: Disk,
        path: str,
        config: LogConfig,
        now_ms: int,
        clean: CleanState | None = None,
        keyring: Keyring | None = None,
        known_end: int = recovery.NEVER_OPENED,
    ) -> "Log":
        """Opens the log in a directory. Blocks: call it through Workers.

        Without a clean state the tail is scanned. `known_end` is the end offset that the log is
        known to have had, committed and on this disk.
        """
        parts = recovery.open_directory(disk, path, config, now_ms, clean, keyring, known_end)
        return Log(disk, path, config, parts)

    # Appending.

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        *,
        transaction_version: int = 0,
    ) -> Appended:
        """Appends one checked batch as the leader, stamping it in place."""
        base_offset = self.end_offset
        if header.producer_id < 0:
            stamp(batch, base_offset, leader_epoch)
            self._write(batch, header, base_offset, leader_epoch, now_ms)
        elif header.attributes & CONTROL:
            self.require_online()
            marker = decode_marker(batch)
            if marker is not None:
                self.producers.check_marker(header, marker, transaction_version)
            stamp(batch, base_offset, leader_epoch)
            self._write(batch, header, base_offset, leader_epoch, now_ms)
            self._note_marker(header, marker, base_offset)
        else:
            if self.offline is not None:
                self.require_online()
            repeated = self.producers.check(header)
            if repeated is not None:
                _, _, first_offset, last_offset, max_timestamp = repeated
                return Appended(first_offset, last_offset, True, max_timestamp)
            stamp(batch, base_offset, leader_epoch)
            self._write(batch, header, base_offset, leader_epoch, now_ms)
            self.producers.apply(header, base_offset)
        return Appended(base_offset, self.end_offset - 1)

    def append_replica(self, view: memoryview, now_ms: int, *, waits: bool = True) -> int:
        """Appends whole batches fetched from the leader unchanged; returns the bytes consumed.

        The batches are checked here. A damaged batch, or one below `end_offset`, is refused with
        CORRUPT_MESSAGE; batches before it stay appended. A partial batch at the end is left out.
        Unless `waits`, so is the rest from the first batch that needs an `expect` first.
        """
        return follower_append.append_replica(self, view, now_ms, waits)

    def expect(self, header: BatchHeader) -> None:
        """Persists the new epoch, or the gap, that this batch of the leader implies. Blocks."""
        self.require_online()
        follower_append.expect(self, header)

    def append_as_is(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Appends one checked batch, keeping its offset and leader epoch."""
        self._write(batch, header, header.base_offset, header.leader_epoch, now_ms)
        if header.producer_id >= 0:
            self.note_producer(batch, header)

    def note_producer(self, batch: memoryview, header: BatchHeader) -> None:
        """Updates producer state from a replicated batch."""
        if header.attributes & CONTROL:
            marker = decode_marker(batch) if header.count else None
            self._note_marker(header, marker, header.base_offset)
        else:
            self.producers.apply(header, header.base_offset)

    def _write(
        self,
        batch: memoryview,
        header: BatchHeader,
        base_offset: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Rolls if necessary, and writes. Hot path: each attribute lookup costs once per batch."""
        if self.offline is not None or not self._prepared:
            self._prepare()
        last_offset = base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        active = self.segments.active
        config = self.config
        first = active.first_timestamp
        if active.begun is not config.encrypted:
            active = self._begin_segment()
        if not active.size:
            self._since_ms = now_ms
        elif (
            active.size + len(batch) + active.overhead_bytes > config.segment_bytes
            or (timestamp - first if first >= 0 else now_ms - self._since_ms) > config.segment_ms
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or active.index_bytes >= config.segment_index_bytes
        ):
            self.roll()
            self._since_ms = now_ms
            active = self._begin_segment()
        if leader_epoch != self._epoch:
            self.begin_epoch(leader_epoch, base_offset)
        try:
            active.append(batch, base_offset, last_offset, timestamp)
        except OSError as error:
            self.write_failed(error)
            raise
        self.end_offset = last_offset + 1
        if config.page_cache:
            self.durable_offset = last_offset + 1

    def note_appended(self, end_offset: int) -> None:
        """Moves the end offset after batches were written to the active segment."""
        self.end_offset = end_offset
        if self.config.page_cache:
            self.durable_offset = end_offset

    def _note_marker(self, header: BatchHeader, marker: ControlMarker | None, offset: int) -> None:
        aborted = self.producers.apply_marker(header, marker, offset)
        # While the earlier ones are unknown, a replay will find this one, too.
        known = self.segments.active.aborted
        if aborted is not None and known is not None:
            known.append(aborted)

    def begin_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Persists that `epoch` begins at the end offset. Blocks when the epoch is new.

        A new leader calls it through Workers before it accepts writes; otherwise `append` does.
        """
        self.require_online()
        if epoch < self.epochs.latest:
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"leader epoch {epoch} is older than the log's latest epoch {self.epochs.latest}",
            )
        if self.epochs.begin(epoch, self.end_offset if start_offset is None else start_offset):
            self.write_epochs()
        self._epoch = epoch

    def write_epochs(self) -> None:
        path = files.join(self.path, files.LEADER_EPOCHS)
        try:
            files.write_durably(self.disk, path, self.epochs.encode())
        except OSError as error:
            self.fail(f"writing the leader epochs failed: {error}")
            raise

    def write_failed(self, error: OSError) -> None:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            self.fail(f"write failed: {error}")

    def roll(self) -> None:
        """Seals the active segment and starts a new one at the end offset; no-op when empty."""
        if not self._prepared:
            self._prepare()
        sealed = self.segments.active
        if sealed.base_offset == self.end_offset:
            return
        interval = self.config.index_interval_bytes
        try:
            active = Segment.create(self.disk, self.path, self.end_offset, interval, self.cipher)
        except OSError as error:
            self.write_failed(error)
            raise
        self.take_snapshot()
        sealed.drop_tail()
        self.unsynced.append(sealed)
        self.segments.add(active)
        self.dir_dirty = True
        self.keep_loaded(sealed)

    def _prepare(self) -> None:
        """Loads the index of the active segment, before the first append of this process."""
        self.require_online()
        self.segments.active.load()
        self._prepared = True
        self.changed = True

    def _begin_segment(self) -> Segment:
        """Returns the active segment, ready for batches as the config wants them stored.

        A segment holds encrypted batches or plain ones, never both (`segment`): the log rolls
        where the config wants another kind than the active segment holds. A log to be encrypted
        for the first time gets its key here, which blocks once in its life; one that is opened
        with such a config has its key already.
        """
        encrypted = self.config.encrypted
        if self.segments.active.find_kind() not in (None, encrypted):
            self.roll()
        active = self.segments.active
        if encrypted and not self.cipher.has_key:
            self._create_key()
        active.begin(encrypted)
        return active

    def _create_key(self) -> None:
        if self.cipher.keyring is None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, NO_KEY)
        try:
            key_file.make(self.disk, self.path, self.cipher)
        except OSError as error:
            self.write_failed(error)
            raise

    def take_snapshot(self) -> None:
        """Snapshots the producer state; the next flush writes it."""
        offset = self.end_offset
        if offset not in self.snapshots:
            self.producers.end_offset = offset
            self.snapshots.append(offset)
            self.new_snapshots.append((offset, self.producers.encode()))

    def prune_snapshots(self) -> list[str]:
        """Forgets the producer snapshots that are no longer needed; returns their paths.

        Those at segment starts and the newest two are kept.
        """
        kept = {segment.base_offset for segment in self.segments}
        kept.update(sorted(self.snapshots)[-SNAPSHOTS_KEPT:])
        doomed = [offset for offset in self.snapshots if offset not in kept]
        self.snapshots = [offset for offset in self.snapshots if offset in kept]
        return [files.join(self.path, files.file_name(one, files.SNAPSHOT)) for one in doomed]

    def remove_snapshots_above(self, end_offset: int) -> None:
        """Deletes the producer snapshots above `end_offset`. Blocks: durable when it returns."""
        for offset in [offset for offset in self.snapshots if offset > end_offset]:
            files.remove(self.disk, files.join(self.path, files.file_name(offset, files.SNAPSHOT)))
            self.snapshots.remove(offset)
        self.disk.sync_dir(self.path)

    # Durability: see `flusher` and `persistence`.

    @property
    def is_dirty(self) -> bool:
        """True while a flush would have work to do."""
        if self.unsynced or self.checkpoint_due:
            return True
        return self.synced_offset < self.end_offset and not self.config.page_cache

    def is_settled(self, segment: Segment) -> bool:
        """True once no flush involves this sealed segment any more.

        Then it is durable, and so is the name of the segment after it.
        """
        return segment not in self.unsynced and segment not in self._in_flight

    def begin_flush(self) -> Flush:
        """Plans the syncs and writes that make everything up to the end offset durable."""
        assert not self.flushing, "one flush at a time"
        assert not self.held, "the log is held: a worker is changing its files"
        flush = persistence.plan_flush(self)
        if flush.checkpoint is not None:
            self.checkpoint_bytes = self.segments.size_bytes
            self.checkpoint_due = False
            self.new_snapshots = []
            self.unsynced, self._in_flight = [], self.unsynced
        self.dir_dirty = False
        self.flushing = True
        return flush

    def mark_durable(self, flush: Flush) -> None:
        """Advances the durable offset; runs on the loop once all of `flush` is on disk."""
        self.flushing = False
        self._in_flight = []
        if self.offline is not None:
            return
        if flush.unwritten:
            self.checkpoint_due = True
        elif flush.checkpoint is not None:
            self.durable_start = flush.start_offset
            self.epochs.truncate_start(flush.start_offset)
        if flush.offset > self.synced_offset:
            self.synced_offset = flush.offset
        if flush.offset > self.durable_offset:
            self.durable_offset = flush.offset
            if self.on_durable is not None:
                self.on_durable()

    def flush_failed(self, error: OSError) -> None:
        """Takes the log offline; runs on the loop when a flush failed and can never be durable."""
        self.flushing = False
        self.fail(f"sync failed: {error}")
        if self.on_durable is not None:
            self.on_durable()

    def sync(self) -> None:
        """Makes everything durable now. Blocks; for close and truncation, not for serving."""
        assert not self.flushing, "a flush is already running"
        if self.synced_offset == self.end_offset and not self.unsynced and not self.dir_dirty:
            return
        try:
            for segment in [*self.unsynced, self.segments.active]:
                segment.file.sync()
            self.disk.sync_dir(self.path)
        except OSError as error:
            self.fail(f"sync failed: {error}")
            raise
        self.note_synced()

    def note_synced(self) -> None:
        """Notes that everything up to the end offset, and the directory, was synced."""
        self.dir_dirty = False
        self.synced_offset = self.durable_offset = self.end_offset

    def fail(self, reason: str, *, is_lost: bool = False) -> None:
        """Takes the log offline for good; `is_lost` when it lacks committed records."""
        if self.offline is None:
            self.offline = reason
        self.is_lost |= is_lost

    def quarantine(self, reason: str) -> None:
        """Takes the log offline because its files are damaged, and leaves them unchanged."""
        self.fail(reason)

    def require_online(self) -> None:
        if self.offline is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)

    # Reading: see `read_span`, and `search` for lookups that need more than a position.

    def locate(self, offset: int, bytes_max: int, limit_offset: int) -> ReadSpan | None:
        """Returns the bytes from `offset` up to `limit_offset`; None when there are none.

        At least one whole batch, whatever `bytes_max` is. `limit_offset` must be the start of a
        batch or the end of the log: a high watermark or a last stable offset.
        """
        if self.offline is not None:
            self.require_online()
        end_offset = self.end_offset
        if not self.start_offset <= offset <= end_offset:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.start_offset}..{end_offset}",
            )
        if limit_offset > end_offset:
            limit_offset = end_offset
        if offset >= limit_offset:
            return None
        segment = self.segments.active
        if offset >= segment.tail_start:
            position, first_end = segment.tail_floor(offset)
            limit = segment.size
            if limit_offset != end_offset:
                limit = segment.tail_ceiling(limit_offset)
            end = search.ending(segment, first_end, position + bytes_max, limit)
            return ReadSpan(segment, offset, bytes_max, limit_offset, position, end, limit)
        return search.search(self, offset, bytes_max, limit_offset)

    def keep_loaded(self, segment: Segment) -> None:
        """Evicts the indexes of all but the most recently used sealed segments."""
        search.keep_loaded(self._loaded, segment, self.unsynced)

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Last epoch at or below `epoch` and its end offset; (-1, -1) when unknown to this log."""
        self.require_online()
        return self.epochs.end(epoch, self.end_offset)

    def offset_for_time(self, timestamp: int) -> tuple[int, int, int] | None:
        """Offset, timestamp and epoch of the first record at or after `timestamp`. Blocks."""
        self.require_online()
        return search.offset_for_time(self, timestamp)

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """Offset, timestamp and epoch of the first record with the largest timestamp. Blocks."""
        self.require_online()
        return search.max_timestamp(self)

    # Transactions.

    def first_unstable_offset(self, high_watermark: int) -> int:
        """First offset of an undecided transaction; -1 when every transaction that began below
        the high watermark also ended below it."""
        first = self.producers.first_unstable_offset(high_watermark)
        return max(first, self.start_offset) if first >= 0 else first

    def last_stable_offset(self, high_watermark: int) -> int:
        """Last stable offset: a read_committed consumer reads only records below it."""
        first = self.producers.first_unstable_offset(high_watermark)
        if first < 0:
            return high_watermark
        return min(max(first, self.start_offset), high_watermark)

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in [from, to), oldest marker first. May block."""
        self.require_online()
        return search.aborted(self, from_offset, to_offset)

    # Removing.

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncates the log from `offset` on. Blocks: durable when it returns.

        Not while a flush of this log is in progress: await `Flusher.settle` first.
        """
        self.require_online()
        follower_append.truncate_to(self, offset, now_ms)
        self._epoch = self.epochs.latest

    def start_over(self, offset: int) -> None:
        """Truncates the log fully; the next batch gets `offset`. Otherwise like `truncate_to`."""
        self.require_online()
        follower_append.start_over(self, offset)

    def reset(self, start_offset: int, end_offset: int, producers: Producers) -> None:
        """Resets offsets and caches after a truncation, which leaves everything durable."""
        self.start_offset = self.durable_start = start_offset
        self.end_offset = self.synced_offset = self.durable_offset = end_offset
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.producers = producers
        self.unsynced = []
        self.new_snapshots = []
        self._loaded = []
        self._prepared = False
        self.changed = True
        self._epoch = self.epochs.latest

    def delete_before(self, offset: int) -> None:
        """Advances the start offset (DeleteRecords); durable with the next flush of this log."""
        self.require_online()
        if offset > self.end_offset:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the end offset of the log, {self.end_offset}",
            )
        self.advance_start(offset)

    def advance_start(self, offset: int) -> None:
        """Advances the start offset to `offset`; a lower `offset` changes nothing."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.checkpoint_due = self.changed = True

    def replace_compacted(self, old: list[Segment], new: Segment) -> None:
        """Replaces neighbouring segments by one compacted segment."""
        self.segments.replace(old, [new])
        self.unsynced.append(new)  # So that the next flush writes its caches.
        self.keep_loaded(new)
        self.dir_dirty = self.changed = True

    def note_compacted(self, cleaned_offset: int, gaps_end: int) -> None:
        """Records how far the log was compacted, and below which offset it may have gaps."""
        self.cleaned_offset = cleaned_offset
        self.note_gaps(gaps_end)
        self.dir_dirty = self.changed = True

    def note_gaps(self, end_offset: int) -> None:
        """Records that batches below `end_offset` may have gaps between them."""
        self.gaps_end = max(self.gaps_end, end_offset)

    def retain(
        self, now_ms: int, bound: int, *, by_policy: bool = True, kept_from: int | None = None
    ) -> list[Removal]:
        """Retires expired segments, none above `bound`; `retention.purge` takes the removals.

        Without `by_policy`, and from `kept_from` on, only segments below the start offset go.
        """
        self.require_online()
        return retention.retain(self, now_ms, bound, by_policy, kept_from)

    def close(self) -> CleanState | None:
        """Syncs everything and writes the caches; None when offline: not clean. Blocks."""
        (state,) = persistence.close_logs([self])
        if isinstance(state, OSError):
            raise state
        return state
