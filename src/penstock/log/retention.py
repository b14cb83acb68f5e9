"""Removing the oldest segments: by age, by size, and below the start offset.

A segment goes as a whole. By age, when its newest record is older than `retention_ms` (a segment
without timestamps goes by size only); by size, while the log without it still has
`retention_bytes`; below the start offset, when DeleteRecords or a queue has moved past it. Never
one that reaches above the bound the caller gives (the high watermark), never the active one: when
that has expired it is rolled, and goes in the pass after the flush that made its successor
durable, so that the end offset stays known on disk.

Retired segments are renamed to `.deleted` at once and unlinked later by `purge`: readers that
located them have until then, and the unlinking of large files stays off the event loop.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Disk
from penstock.log import store
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from penstock.log.log import Log


@dataclass(frozen=True, slots=True)
class Removal:
    """Files of one log that are out of use and may be unlinked from `due_ms` on."""

    directory: str
    paths: tuple[str, ...]
    due_ms: int


def delete_before(log: "Log", offset: int) -> None:
    if offset > log.end_offset:
        raise Refused(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the end, {log.end_offset}"
        )
    if offset > log.start_offset:
        log.start_offset = offset
        log.epochs.truncate_start(offset)
        log.checkpoint_due = log.changed = True


def retain(log: "Log", now_ms: int, bound: int) -> list[Removal]:
    """Retires what is to go; the removals are for `purge`."""
    active = log.segments.active
    if (
        log.config.cleanup_delete
        and active.size
        and log.end_offset <= bound
        and _is_expired(log, active, now_ms)
        and all(_is_expired(log, segment, now_ms) for segment in log.segments.sealed)
    ):
        log.roll()
    doomed: list[Segment] = []
    excess = log.size_bytes - log.config.retention_bytes
    sealed = log.segments.sealed
    ends = [segment.base_offset for segment in [*sealed, log.segments.active][1:]]
    for segment, end_offset in zip(sealed, ends, strict=True):
        if end_offset > bound or not log.is_settled(segment):
            break
        too_large = log.config.retention_bytes >= 0 and excess >= segment.size
        by_policy = log.config.cleanup_delete and (too_large or _is_expired(log, segment, now_ms))
        if not by_policy and end_offset > log.start_offset:
            break
        doomed.append(segment)
        excess -= segment.size
    return retire(log, doomed, now_ms) if doomed else []


def _is_expired(log: "Log", segment: Segment, now_ms: int) -> bool:
    if log.config.retention_ms < 0:
        return False
    newest = segment.summary().max_timestamp
    return newest >= 0 and now_ms - newest > log.config.retention_ms


def retire(log: "Log", doomed: list[Segment], now_ms: int) -> list[Removal]:
    """Takes the oldest segments out of the log and out of the way on disk."""
    log.segments.replace(doomed, [])
    log.changed = True
    first = log.segments[0].base_offset
    if first > log.start_offset:
        log.start_offset = first
        log.checkpoint_due = True
    log.epochs.truncate_start(log.start_offset)
    paths = [path for segment in doomed for path in set_aside(log.disk, segment, store.DELETED)]
    return [Removal(log.path, tuple(paths), now_ms + log.config.file_delete_delay_ms)]


def set_aside(disk: Disk, segment: Segment, ending: str) -> list[str]:
    """Renames the files of a segment so that the next start does not take them for one."""
    segment.retired = True
    paths = []
    for suffix in (store.LOG, *store.CACHES):
        path = segment.path + suffix
        if disk.exists(path):
            disk.rename(path, path + ending)
            paths.append(path + ending)
    return paths


def purge(disk: Disk, removals: list[Removal], now_ms: int) -> list[Removal]:
    """Unlinks what is due; the removals that are not. Blocks: call it through Workers."""
    later = []
    for removal in removals:
        if removal.due_ms > now_ms:
            later.append(removal)
            continue
        disk.sync_dir(removal.directory)
        for path in removal.paths:
            store.remove(disk, path)
    return later
