"""Log recovery: opens a directory as a log, after a clean stop or a crash.

After a clean stop nothing is scanned: the saved state of the node is compared with the names and
sizes of the files, and trusted when they agree. Otherwise (RELIABILITY 3.4):

- The checkpoint holds the recovery point: everything below it was durable. From there on every
  batch is checked: length, magic, CRC, and its position (`expected_batches`). The first bad one is
  a torn tail: the file is truncated there, and later segments are removed. A tail of zeros counts
  as torn, too. If it may be damage, the log is doubtful (`doubtful_tail`).
- Below `known_end`, the end offset that the node knows was committed and on this disk, a bad batch
  is not a torn tail but damage: nothing is truncated, and the log opens offline (ADR 0031). So does
  a log that is known to have existed and has no segments: it is lost, not new.
- The rest of the tail is rewritten in place with the same bytes, and synced before it counts as
  durable. A sync alone is not enough: after a failed sync of an earlier process, the page cache
  shows bytes as clean that never reached the disk. A crash in the middle is harmless, because
  rewriting the same bytes does not change those that are on disk.
- Below the recovery point nothing may be missing. A missing or unreadable part raises Corrupt: the
  log opens offline and its files stay unchanged, for a peer to repair. Bodies there are checked
  when first read (`read_span`).
- Segments that end at or below the start offset of the checkpoint are removed: retention was about
  to do it.
- A log without a checkpoint is young: all of it may be torn. An unreadable checkpoint is damage:
  then only the last segment may be torn.

Producer state is restored from the newest good snapshot at or below the recovery point and a replay
of the batch headers after it; without a snapshot, from the headers of the whole log. Leader epochs
are read from their file, or rebuilt from the headers in the same way.

End offset of a log, found without opening it: truncates and writes nothing, checks everything.
For comparing the logs of several nodes while none of them runs (`recover-metadata`). A tail that
the next start would truncate is not counted. Blocks.
"""

import errno
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.errors import Corrupt
from penstock.base.ports import Buffer, Disk, File
from penstock.log import doubtful_tail, files
from penstock.log import leader_epochs as epoch_file
from penstock.log.config import LogConfig
from penstock.log.encryption import key_file
from penstock.log.encryption.log_encryption import NO_KEY, PLAIN, LogCipher
from penstock.log.expected_batches import EVERYWHERE, ExpectedBatches, read_gaps
from penstock.log.index_files import Summary
from penstock.log.leader_epochs import UNDEFINED, Epochs
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.log.segment_scan import Segments, scan
from penstock.log.state_rebuild import rebuild_epochs, rebuild_producers
from penstock.security.keyring import Keyring

log = logging.getLogger("penstock.log")

REWRITE_BYTES = 1024 * 1024
DOUBT = (
    ". More than the last write was in them: unless the machine lost power, the disk has changed "
    "them. Other replicas lead, if there are any"
)
NEVER_OPENED = -1
"""Known end of a log that never existed, as far as the node knows."""
SEGMENTS = (files.LOG, files.LOG + files.SWAP)
REMOVED = (files.TEMPORARY, files.DELETED, files.CLEANED, files.REPLACED)


class SegmentState(NamedTuple):
    base_offset: int
    size: int
    summary: Summary


@dataclass(frozen=True, slots=True)
class CleanState:
    """State of a log at a clean stop. The node keeps those of all its logs in one file."""

    start_offset: int
    end_offset: int
    segments: tuple[SegmentState, ...]
    producers: int
    """Number of producers; with 0 there is no snapshot to read."""
    cleaned_offset: int = 0


@dataclass(slots=True)
class Recovered:
    """Parts of an opened log, the input of `Log`."""

    segments: Segments
    start_offset: int
    end_offset: int
    epochs: Epochs
    producers: Producers
    snapshots: list[int]
    cleaned_offset: int = 0
    gaps_end: int = 0
    dir_dirty: bool = False
    is_clean: bool = False
    offline: str | None = None
    is_lost: bool = False
    """True when offline because records that were durable here, or committed, are missing."""
    is_doubtful: bool = False
    """True if the truncated tail may have held committed records: see `doubtful_tail`."""
    cipher: LogCipher = PLAIN


def open_directory(
    disk: Disk,
    path: str,
    config: LogConfig,
    now_ms: int,
    clean: CleanState | None,
    keyring: Keyring | None = None,
    known_end: int = NEVER_OPENED,
) -> Recovered:
    """Opens the log in directory `path`. Blocks.

    Damage below the recovery point or the known end gives an offline log, not an exception; so
    does a missing key, and a missing log.
    """
    names = disk.listdir(path)
    if known_end >= 0 and not any(name.endswith(SEGMENTS) for name in names):
        return _lost(disk, path, config, known_end)
    if not names:
        disk.mkdir(path)
        disk.sync_dir(files.parent(path))
    try:
        cipher = _unlock(disk, path, config, keyring)
    except Corrupt as trouble:
        found = _locked(disk, path, config, names, str(trouble))
        found.cipher = LogCipher(keyring)
        return found
    names = remove_leftovers(disk, path, names)
    segments = _segments(disk, path, config, names, cipher)
    snapshots = files.offsets_in(names, files.SNAPSHOT)
    gaps_end = read_gaps(disk, path)
    try:
        if clean is not None:
            _drop_retired(disk, segments, clean.start_offset)
            if _agrees(clean, segments) and clean.end_offset >= known_end:
                found = _believe(disk, path, config, clean, segments, snapshots, gaps_end)
                found.producers.expire(now_ms)
                found.cipher = cipher
                return found
        found = _recover(disk, path, config, segments, snapshots, gaps_end, cipher, known_end)
    except Corrupt as damage:
        found = _quarantined(disk, path, config, segments, str(damage))
        found.is_lost = True
    found.producers.expire(now_ms)
    found.cipher = cipher
    return found


def remove_leftovers(disk: Disk, path: str, names: list[str]) -> list[str]:
    """Removes what an interrupted process left in a log directory; returns the remaining names.

    - `.tmp`, `.cleaned`, `.replaced`: unfinished, or replaced by compaction. Removed.
    - `.deleted`: retired by retention. Removed. (`_drop_retired` removes those not yet renamed.)
    - Caches without a segment: a flush wrote them just after the segment was retired. Removed.
    - `.swap`: compaction had finished and synced its work, and was about to put it in place. The
      segments it replaces are removed and it gets its final name, as compaction would have done.
      Doing so again after another interruption is harmless.

    Blocks, and is durable when something was changed.
    """
    swaps = [name for name in names if name.endswith(files.LOG + files.SWAP)]
    doomed = [name for name in names if name.endswith(REMOVED)]
    bases = files.offsets_in(names, files.LOG)
    for suffix in files.CACHES:
        orphans = [offset for offset in files.offsets_in(names, suffix) if offset not in bases]
        doomed += [files.file_name(offset, suffix) for offset in orphans]
    if not swaps and not doomed:
        return names
    for name in doomed:
        files.remove(disk, files.join(path, name))
    for name in swaps:
        _finish_swap(disk, path, name)
    disk.sync_dir(path)
    return disk.listdir(path)


def _finish_swap(disk: Disk, path: str, name: str) -> None:
    final = name[: -len(files.SWAP)]
    base_offset = files.offset_in(final, files.LOG)
    if base_offset is None:
        return
    swap_path = files.join(path, name)
    segment = Segment(disk, path, base_offset, disk.open(swap_path), 0)  # Only its headers.
    end_offset = base_offset
    for _, header in segment.headers():
        end_offset = header.next_offset
    segment.file.close()
    for other in disk.listdir(path):
        for suffix in (*files.CACHES, files.LOG):
            offset = files.offset_in(other, suffix)
            if offset is not None and base_offset <= offset < max(end_offset, base_offset + 1):
                files.remove(disk, files.join(path, other))
    disk.sync_dir(path)  # Old and new segments with the same offsets never exist together.
    disk.rename(swap_path, files.join(path, final))


def _segments(
    disk: Disk, path: str, config: LogConfig, names: list[str], cipher: LogCipher
) -> list[Segment]:
    return [
        Segment.open(disk, path, base_offset, config.index_interval_bytes, cipher)
        for base_offset in files.offsets_in(names, files.LOG)
    ]


def _unlock(disk: Disk, path: str, config: LogConfig, keyring: Keyring | None) -> LogCipher:
    """Reads the log's key, or creates one if the config needs it. Raises Corrupt."""
    cipher = key_file.read(disk, path, keyring)
    if config.encrypted and not cipher.has_key:
        if keyring is None:
            raise Corrupt(NO_KEY)
        key_file.make(disk, path, cipher)
    return cipher


def _locked(disk: Disk, path: str, config: LogConfig, names: list[str], reason: str) -> Recovered:
    """Offline log whose key is missing or unusable; see `_quarantined`."""
    segments = _segments(disk, path, config, names, PLAIN)
    if not segments and not disk.exists(files.join(path, files.CHECKPOINT)):
        segments = [Segment.create(disk, path, 0, config.index_interval_bytes)]
    return _quarantined(disk, path, config, segments, reason)


def _drop_retired(disk: Disk, segments: list[Segment], start_offset: int) -> None:
    """Removes segments that retention retired: those that end below a durable start offset.

    Any of their files may be gone already, which is not damage. Changes `segments`.
    """
    while len(segments) > 1 and segments[1].base_offset <= start_offset:
        segment = segments.pop(0)
        segment.remove_caches()
        segment.file.close()
        files.remove(disk, segment.path + files.LOG)


def _set_expected(
    segments: Sequence[Segment], epochs: Epochs | None, gaps_end: int, end_offset: int
) -> None:
    """Sets the expected batches of each segment, in a log that ends at `end_offset`."""
    # A copy, because the log changes its own; unknown epochs admit every batch.
    known = Epochs() if epochs is None else epochs.copy()
    ends = [segment.base_offset for segment in segments[1:]]
    for segment, end in zip(segments, [*ends, end_offset], strict=True):
        segment.expected = ExpectedBatches(segment.base_offset >= gaps_end, known, end)


def _agrees(clean: CleanState, segments: Sequence[Segment]) -> bool:
    return [(state.base_offset, state.size) for state in clean.segments] == [
        (segment.base_offset, segment.size) for segment in segments
    ] and bool(segments)


def _believe(
    disk: Disk,
    path: str,
    config: LogConfig,
    clean: CleanState,
    segments: Sequence[Segment],
    snapshots: list[int],
    gaps_end: int,
) -> Recovered:
    for segment, state in zip(segments, clean.segments, strict=True):
        segment.believe(state.summary)
    held = Segments(segments)
    end_offset = clean.end_offset
    epochs = epoch_file.read(disk, path)
    _set_expected(segments, epochs, gaps_end, end_offset)
    if epochs is None:
        epochs = rebuild_epochs(held)
    if clean.producers:
        producers = rebuild_producers(
            disk, path, held, snapshots, end_offset, end_offset, config.producer_expiration_ms
        )
    else:
        producers = Producers(config.producer_expiration_ms)
        producers.end_offset = end_offset
    epochs.truncate_start(clean.start_offset)
    return Recovered(
        held,
        clean.start_offset,
        end_offset,
        epochs,
        producers,
        snapshots,
        clean.cleaned_offset,
        gaps_end,
        is_clean=True,
    )


def _recover(
    disk: Disk,
    path: str,
    config: LogConfig,
    segments: list[Segment],
    snapshots: list[int],
    gaps_end: int,
    cipher: LogCipher,
    known_end: int,
) -> Recovered:
    if not segments:
        return _fresh(disk, path, config, cipher)
    point = recovery_point(disk, path, segments)
    _drop_retired(disk, segments, point.start_offset)
    epochs = epoch_file.read(disk, path)
    _set_expected(segments, epochs, gaps_end, EVERYWHERE)
    end_offset = _repair_tail(disk, path, segments, point, known_end)
    held = Segments(segments)
    for offset in [offset for offset in snapshots if offset > end_offset]:
        files.remove(disk, files.join(path, files.file_name(offset, files.SNAPSHOT)))
        snapshots.remove(offset)
    epochs = _recover_epochs(disk, path, held, epochs, end_offset)
    newest = min(point.recovery_point, end_offset)
    producers = rebuild_producers(
        disk, path, held, snapshots, newest, end_offset, config.producer_expiration_ms
    )
    active = held.active
    active.load()
    start_offset = min(max(point.start_offset, held[0].base_offset), end_offset)
    epochs.truncate_start(start_offset)
    cleaned_offset = min(point.cleaned_offset, end_offset)
    checkpoint = files.Checkpoint(
        end_offset, active.base_offset, active.size, start_offset, cleaned_offset
    )
    if checkpoint != point:
        files.write_checkpoint(disk, path, checkpoint)
    return Recovered(
        held,
        start_offset,
        end_offset,
        epochs,
        producers,
        snapshots,
        cleaned_offset,
        gaps_end,
        is_doubtful=doubtful_tail.is_noted(disk, path),
    )


def _fresh(disk: Disk, path: str, config: LogConfig, cipher: LogCipher) -> Recovered:
    """Creates a new log. Its first flush makes its first file durable."""
    if disk.exists(files.join(path, files.CHECKPOINT)):
        raise Corrupt(f"{path} has a checkpoint but no segments")
    segment = Segment.create(disk, path, 0, config.index_interval_bytes, cipher)
    producers = Producers(config.producer_expiration_ms)
    return Recovered(Segments([segment]), 0, 0, Epochs(), producers, [], dir_dirty=True)


def recovery_point(disk: Disk, path: str, segments: Sequence[Segment]) -> files.Checkpoint:
    """Start of the scan. The module docstring covers a missing or unreadable checkpoint."""
    first = segments[0].base_offset
    checkpoint = files.read_checkpoint(disk, path)
    if checkpoint is None:
        if not disk.exists(files.join(path, files.CHECKPOINT)):
            return files.Checkpoint(first, first, 0, first)
        last = segments[-1].base_offset
        return files.Checkpoint(last, last, 0, first)
    if checkpoint.recovery_point < first:
        # Retention has removed everything up to the recovery point, and more.
        return checkpoint._replace(recovery_point=first, segment=first, position=0)
    return checkpoint


def _repair_tail(
    disk: Disk, path: str, segments: list[Segment], point: files.Checkpoint, known_end: int
) -> int:
    """Scans from the recovery point and truncates at the first bad batch; returns the end offset.

    Changes `segments`. Everything scanned is durable when this returns, and so are the names.
    Raises Corrupt, with nothing changed on disk, if the log would end below `known_end`.
    """
    first = _segment_of(segments, point)
    scanned, offset, epoch = _scan_tail(segments, first, point)
    if offset < known_end:
        raise Corrupt(
            f"{path}: the log is intact only up to offset {offset}, but everything below "
            f"{known_end} was on this disk and committed"
        )
    at = first + len(scanned)
    position, good = scanned[-1]
    cut_bytes = sum(segment.size for segment in segments[at - 1 :]) - good
    if cut_bytes:
        is_doubtful = doubtful_tail.is_doubtful(segments[at - 1 :], good, epoch)
        if is_doubtful:
            doubtful_tail.note(disk, path)
        log.log(
            logging.ERROR if is_doubtful else logging.WARNING,
            "torn tail: %s.log is truncated at offset %d, from byte %d on: %d bytes do not hold "
            "a whole, expected batch; none of them is known to be committed%s",
            segments[at - 1].path,
            offset,
            good,
            cut_bytes,
            DOUBT if is_doubtful else "",
        )
    for number, (position, good) in enumerate(scanned, first):
        segment = segments[number]
        _rewrite(segment.file, position, good)
        if good < segment.size:
            segments[number] = segment.truncate(good, offset)
        else:
            segment.file.truncate(good)  # Repeated, too: an earlier one may not be durable either.
            segment.file.sync()
    for segment in reversed(segments[at:]):
        segment.remove_caches()
        segment.file.close()
        files.remove(disk, segment.path + files.LOG)
    del segments[at:]
    disk.sync_dir(path)
    return offset


def _scan_tail(
    segments: Sequence[Segment], first: int, point: files.Checkpoint
) -> tuple[list[tuple[int, int]], int, int]:
    """Intact byte range of each segment from `first` on, the offset where they end, and the leader
    epoch there."""
    position, offset = _position_of(segments[first], point)
    epoch = -1
    scanned: list[tuple[int, int]] = []
    for segment in segments[first:]:
        if scanned and segment.base_offset != offset:
            break
        assert segment.expected is not None
        # The scan finds the end of the tail; the part that was checked before ends here.
        expected = segment.expected.up_to(EVERYWHERE)
        segment.expected = segment.expected.up_to(offset)
        good = position
        for header, _ in scan(segment, position, offset, epoch, expected):
            good += header.size_bytes
            offset, epoch = header.next_offset, header.leader_epoch
        segment.unverified_end = position
        scanned.append((position, good))
        position = 0
        if good < segment.size:
            break
    return scanned, offset, epoch


def _rewrite(file: File, position: int, end: int) -> None:
    """Makes the next sync store these bytes even if an earlier sync failed."""
    while position < end:
        data = file.read(position, min(REWRITE_BYTES, end - position))
        if not data:
            raise Corrupt(f"{file.path}: no data at position {position}, which was just read")
        file.rewrite(position, data)
        position += len(data)


def _segment_of(segments: Sequence[Segment], point: files.Checkpoint) -> int:
    """Index of the segment that holds the recovery point: the one that the checkpoint names,
    unless compaction merged it into another."""
    at = 0
    for i, segment in enumerate(segments):
        if segment.base_offset == point.segment:
            return i
        if segment.base_offset <= point.recovery_point:
            at = i
    return at


def _position_of(segment: Segment, point: files.Checkpoint) -> tuple[int, int]:
    """Position of the recovery point in `segment`, and the offset expected there.

    Raises Corrupt when the file ends before it. The offset is lower than the recovery point when
    compaction merged the segment that held the point, and left a gap there.
    """
    if segment.base_offset == point.segment:
        if segment.size < point.position:
            raise Corrupt(
                f"{segment.path} has {segment.size} bytes, but {point.position} were durable"
            )
        return point.position, point.recovery_point
    end = segment.base_offset
    for position, header in segment.headers():
        if header.base_offset >= point.recovery_point:
            return position, end
        end = header.next_offset
    if end < point.recovery_point:
        raise Corrupt(
            f"{segment.path} ends at offset {end}, but everything below "
            f"{point.recovery_point} was durable"
        )
    return segment.size, end


def _recover_epochs(
    disk: Disk, path: str, segments: Segments, epochs: Epochs | None, end_offset: int
) -> Epochs:
    """Leader epochs from their file, truncated to the log; without the file, from the batches."""
    if epochs is None:
        epochs = rebuild_epochs(segments)
        changed = bool(epochs.epochs)
    else:
        changed = epochs.truncate_end(end_offset)
    if changed:
        files.write_durably(disk, files.join(path, files.LEADER_EPOCHS), epochs.encode())
    return epochs


def _lost(disk: Disk, path: str, config: LogConfig, known_end: int) -> Recovered:
    """Offline log for one that existed and whose files are missing; creates nothing on disk."""
    place = AbsentFile(files.join(path, files.file_name(0, files.LOG)))
    segment = Segment(disk, path, 0, place, config.index_interval_bytes)
    reason = (
        f"{path} is missing or has no segments, but this node had this replica, committed at "
        f"least up to offset {known_end}"
    )
    found = _quarantined(disk, path, config, [segment], reason)
    found.is_lost = True
    return found


def _quarantined(
    disk: Disk, path: str, config: LogConfig, segments: Sequence[Segment], reason: str
) -> Recovered:
    """Offline log that holds only the reason. Nothing on disk is changed."""
    if not segments:
        # A log always has an active segment; an offline one never touches its file.
        file = disk.open(files.join(path, files.CHECKPOINT))
        segments = [Segment(disk, path, 0, file, config.index_interval_bytes)]
    held = Segments(segments)
    first = held[0].base_offset
    producers = Producers(config.producer_expiration_ms)
    return Recovered(held, first, first, Epochs(), producers, [], offline=reason)


class AbsentFile:
    """Empty, unwritable active segment of a log whose files are missing (`base.ports.File`).

    An offline log has a segment like any other, but nothing may be created where its directory
    was: the next start must find it missing, too.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def size(self) -> int:
        return 0

    def append(self, buffers: Sequence[Buffer]) -> int:
        raise self._error()

    def read(self, position: int, size: int) -> bytes:
        return b""

    def read_cached(self, position: int, size: int) -> bytes | None:
        return b""

    def is_at_hand(self, position: int, size: int) -> bool:
        return False

    def send_to(self, descriptor: int, position: int, size: int) -> int | None:
        return None

    def truncate(self, size: int) -> None:
        raise self._error()

    def rewrite(self, position: int, data: Buffer) -> None:
        raise self._error()

    def erase(self) -> None:
        raise self._error()

    def sync(self) -> None:
        raise self._error()

    def close(self) -> None:
        pass

    def _error(self) -> OSError:
        return OSError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)


INDEX_INTERVAL = 4_096


class Survey(NamedTuple):
    latest_epoch: int
    """Latest leader epoch of the log; -1 without one."""
    last_epoch: int
    """Leader epoch of the last record; -1 without one."""
    end_offset: int
    start_offset: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Rank among the logs of one partition: the highest has all committed records."""
        return self.last_epoch, self.end_offset


def survey(disk: Disk, path: str) -> Survey | None:
    """Examines the log in directory `path`; None without one. Raises OSError."""
    bases = files.offsets_in(disk.listdir(path), files.LOG)
    epochs = epoch_file.read(disk, path) or Epochs()
    if not bases:
        return Survey(epochs.latest, UNDEFINED, 0) if disk.exists(path) else None
    segments = [Segment.open(disk, path, base, INDEX_INTERVAL) for base in bases]
    try:
        point = recovery_point(disk, path, segments)
        offset, last_epoch = point.recovery_point, epochs.of(point.recovery_point - 1)
        position = point.position
        for segment in segments:
            if segment.base_offset < point.segment:
                continue
            if segment.base_offset > max(offset, point.segment):
                break  # The one before it is torn.
            good = position
            for header, _ in scan(segment, position, offset, -1, None):
                offset, last_epoch = header.next_offset, header.leader_epoch
                good += header.size_bytes
            if good < segment.size:
                break
            position = 0
    finally:
        for segment in segments:
            segment.file.close()
    return Survey(max(epochs.latest, last_epoch), last_epoch, offset, point.start_offset)
