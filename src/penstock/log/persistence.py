"""Checkpoints of a log: caches, producer snapshots and the recovery point that save startup scans.

After a roll, and each time another `CHECKPOINT_BYTES` were synced, a flush also writes the caches
of the sealed segments (or of the active one), a snapshot of the producers, and the checkpoint with
the new recovery point, in this order and after the sync. So the scan after a crash is short, and a
checkpoint covers only bytes that are on disk. `close_logs` does the same for whole logs.

Snapshots are kept at segment starts, plus the newest two; the rest are removed.
"""

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.ports import File
from penstock.log import files as store
from penstock.log.recovery import CleanState, SegmentState

if TYPE_CHECKING:
    from penstock.log.log import Log

CHECKPOINT_BYTES = 64 * 1024 * 1024

SYNC_ALL_LOGS = 4
"""Changed logs that are closed with syncs of their own. More of them are closed with two syncs of
the whole file system: 3,000 logs would need 6,000 syncs of 2 ms or more."""


@dataclass(slots=True)
class Flush:
    """Share of one log in a group commit: files for a worker to sync, then to write and remove."""

    log: "Log"
    offset: int
    """Everything below this offset is durable once the files are synced."""
    files: list[File]
    directory: str | None
    """Directory in which a file was created or renamed: to be synced, too."""
    caches: list[tuple[str, bytes]] = field(default_factory=list)
    checkpoint: bytes | None = None
    start_offset: int = 0
    """Start offset of the log in the checkpoint."""
    obsolete: list[str] = field(default_factory=list)
    unwritten: bool = False
    """True when the disk was full: the files are synced, but the checkpoint is still due."""


def plan_flush(log: "Log") -> Flush:
    """Plans a flush up to the end offset. Changes nothing on disk: `flusher.sync` does."""
    active = log.segments.active
    sealed = log.unsynced
    flush = Flush(
        log,
        log.end_offset,
        [segment.file for segment in sealed],
        log.path if log.dir_dirty else None,
    )
    if log.config.page_cache:
        # Only sealed segments: the kernel writes back the rest at a time of its choice.
        flush.offset = active.base_offset
    elif log.synced_offset < log.end_offset:
        flush.files.append(active.file)
    grown = log.segments.size_bytes - log.checkpoint_bytes
    if sealed or log.checkpoint_due or grown >= CHECKPOINT_BYTES:
        _add_checkpoint(log, flush)
    return flush


def _add_checkpoint(log: "Log", flush: Flush) -> None:
    active = log.segments.active
    for segment in log.unsynced:
        end_offset = log.segments.end_of(segment, log.end_offset)
        flush.caches += segment.encode_caches(end_offset)
    flush.start_offset = log.start_offset
    position = 0
    if flush.offset == log.end_offset:
        position = active.size
        if active.index is not None and active.size:
            flush.caches += active.encode_caches(log.end_offset)
        log.take_snapshot()
    flush.caches += [
        (store.join(log.path, store.file_name(offset, store.SNAPSHOT)), body)
        for offset, body in log.new_snapshots
    ]
    checkpoint = store.Checkpoint(
        flush.offset, active.base_offset, position, log.start_offset, log.cleaned_offset
    )
    flush.checkpoint = store.encode_checkpoint(checkpoint)
    flush.obsolete = log.prune_snapshots()


def close_logs(logs: Sequence["Log"]) -> list[CleanState | OSError | None]:
    """Syncs changed logs, writes their caches and checkpoints, and closes all. Blocks.

    Returns for each log its state; None if it was offline; or the error that took it offline now.
    Many changed logs share two syncs of the file system. The first one makes the records and the
    temporary files durable, the second one their renaming, so a checkpoint never covers bytes that
    are not on disk.
    """
    closings = [_Closing(log) for log in logs]
    changed = [one for one in closings if one.log.changed and one.log.offline is None]
    if len(changed) > SYNC_ALL_LOGS:
        for step in (_Closing.write, _Closing.rename):
            for one in changed:
                one.attempt(step)
            _sync_all([one for one in changed if one.error is None])
    else:
        for one in changed:
            one.attempt(_Closing.sync)
            one.attempt(_Closing.write)
            one.attempt(_Closing.sync_files)
            one.attempt(_Closing.rename)
            one.attempt(_Closing.sync_directory)
    return [one.end() for one in closings]


def _sync_all(closings: "Sequence[_Closing]") -> None:
    """Syncs the file system once; on an error none of these logs is known to be durable."""
    if not closings:
        return
    try:
        closings[0].log.disk.sync_all(posixpath.commonpath([one.log.path for one in closings]))
    except OSError as error:
        for one in closings:
            one.fail(error)
    else:
        for one in closings:
            one.log.note_synced()


class _Closing:
    """Close of one log, in steps. The first error takes the log offline and ends its close."""

    def __init__(self, log: "Log") -> None:
        self.log = log
        self.error: OSError | None = None
        self._paths: list[str] = []  # Written under a temporary name, to be renamed to this one.

    def attempt(self, step: "Callable[[_Closing], None]") -> None:
        if self.error is None:
            try:
                step(self)
            except OSError as error:
                self.fail(error)

    def fail(self, error: OSError) -> None:
        self.error = error
        self.log.fail(f"it could not be closed: {error}")

    def sync(self) -> None:
        self.log.sync()

    def write(self) -> None:
        """Writes caches, snapshots and the checkpoint under temporary names.

        The active segment gets neither caches nor a snapshot while it is shorter than the first
        entry of its index: reading its headers takes no longer than reading those files.
        """
        log = self.log
        active = log.segments.active
        cached = list(log.unsynced)
        is_short = active.size <= log.config.index_interval_bytes
        if not (is_short and (active.base_offset in log.snapshots or not active.base_offset)):
            log.take_snapshot()
            active.load()
            cached.append(active)
        caches = [
            cache
            for segment in cached
            for cache in segment.encode_caches(log.segments.end_of(segment, log.end_offset))
        ]
        for offset, body in log.new_snapshots:
            caches.append((store.join(log.path, store.file_name(offset, store.SNAPSHOT)), body))
        for path, body in caches:
            self._write(path, store.seal_cache(path, body, log.cipher))
        checkpoint = store.Checkpoint(
            log.end_offset, active.base_offset, active.size, log.start_offset, log.cleaned_offset
        )
        path = store.join(log.path, store.CHECKPOINT)
        self._write(path, store.seal(store.encode_checkpoint(checkpoint)))

    def _write(self, path: str, content: bytes) -> None:
        store.write_temporary(self.log.disk, path + store.TEMPORARY, content)
        self._paths.append(path)

    def sync_files(self) -> None:
        """Syncs the temporary checkpoint, the only file whose content must survive a power cut."""
        file = self.log.disk.open(store.join(self.log.path, store.CHECKPOINT) + store.TEMPORARY)
        try:
            file.sync()
        finally:
            file.close()

    def rename(self) -> None:
        for path in self._paths:
            self.log.disk.rename(path + store.TEMPORARY, path)
        for path in self.log.prune_snapshots():
            store.remove(self.log.disk, path)

    def sync_directory(self) -> None:
        self.log.disk.sync_dir(self.log.path)

    def end(self) -> CleanState | OSError | None:
        """Closes the files. Before that a summary may have to be read."""
        log = self.log
        if log.offline is not None:
            return self.error
        try:
            clean = CleanState(
                log.start_offset,
                log.end_offset,
                tuple(
                    SegmentState(segment.base_offset, segment.size, segment.summary())
                    for segment in log.segments
                ),
                len(log.producers.by_id),
                log.cleaned_offset,
            )
            for segment in log.segments:
                segment.file.close()
        except OSError as error:
            self.fail(error)
            return error
        return clean
