"""What a log writes down so that the next start need not look: caches, snapshots, checkpoint.

After a roll, and each time `CHECKPOINT_BYTES` more were synced, a flush also writes the caches of
what was sealed (or of the active segment), a snapshot of the producers, and the checkpoint with
the new recovery point, in this order and after the sync: so the scan after a crash is short, and a
checkpoint promises only what is on disk. `close_log` does the same for all of it.

Snapshots are kept at segment starts, plus the newest two; the others are removed.
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
    """One log's share of a group commit: what a worker syncs, and then writes and removes."""

    log: "Log"
    offset: int
    """Durable when the files are synced."""
    files: list[File]
    directory: str | None
    """Where a file was created or renamed: to be synced, too."""
    caches: list[tuple[str, bytes]] = field(default_factory=list)
    checkpoint: bytes | None = None
    start_offset: int = 0
    """Of the log, as the checkpoint has it."""
    obsolete: list[str] = field(default_factory=list)
    unwritten: bool = False
    """The disk was full: the files are synced, but the checkpoint is still due."""


def plan_flush(log: "Log") -> Flush:
    """Everything that makes the log durable up to here. Only looks; `sync` in `flusher` does."""
    active = log.segments.active
    sealed = log.unsynced
    flush = Flush(
        log,
        log.end_offset,
        [segment.file for segment in sealed],
        log.path if log.dir_dirty else None,
    )
    if log.config.page_cache:
        # Only what was sealed: the kernel writes back the rest when it likes.
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
    """Syncs what is dirty and writes what changed since the log was opened. Blocks."""
    if log.changed:
        log.sync()
        log.take_snapshot()
        active = log.segments.active
        active.load()
        for segment in [*log.unsynced, active]:
            end_offset = log.segments.end_of(segment, log.end_offset)
            for path, body in segment.encode_caches(end_offset):
                store.write_cache(log.disk, path, body, log.vault)
        for offset, body in log.new_snapshots:
            path = store.join(log.path, store.file_name(offset, store.SNAPSHOT))
            store.write_cache(log.disk, path, body, log.vault)
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
