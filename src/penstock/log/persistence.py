"""Checkpoints of a log: caches, producer snapshots and the recovery point that save startup scans.

After a roll, and each time another `CHECKPOINT_BYTES` were synced, a flush also writes the caches
of the sealed segments (or of the active one), a snapshot of the producers, and the checkpoint with
the new recovery point, in this order and after the sync. So the scan after a crash is short, and a
checkpoint covers only bytes that are on disk. `close_log` does the same for the whole log.

Snapshots are kept at segment starts, plus the newest two; the rest are removed.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.ports import File
from penstock.log import files as store
from penstock.log.recovery import CleanState, SegmentState

if TYPE_CHECKING:
    from penstock.log.log import Log

CHECKPOINT_BYTES = 64 * 1024 * 1024


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


def close_log(log: "Log") -> CleanState:
    """Syncs a dirty log, writes its caches and checkpoint if it changed, and closes it. Blocks."""
    if log.changed:
        log.sync()
        log.take_snapshot()
        active = log.segments.active
        active.load()
        for segment in [*log.unsynced, active]:
            end_offset = log.segments.end_of(segment, log.end_offset)
            for path, body in segment.encode_caches(end_offset):
                store.write_cache(log.disk, path, body, log.cipher)
        for offset, body in log.new_snapshots:
            path = store.join(log.path, store.file_name(offset, store.SNAPSHOT))
            store.write_cache(log.disk, path, body, log.cipher)
        for path in log.prune_snapshots():
            store.remove(log.disk, path)
        checkpoint = store.Checkpoint(
            log.end_offset, active.base_offset, active.size, log.start_offset, log.cleaned_offset
        )
        store.write_checkpoint(log.disk, log.path, checkpoint)
    # Before the files are closed: a summary may have to be read.
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
    return clean
