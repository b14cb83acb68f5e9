"""Retention: removes the oldest segments by age, by size, and below the start offset.

Only whole segments are removed. By age, when the newest record is older than `retention_ms` (a
segment without timestamps is removed by size only). By size, while the log without the segment
still has `retention_bytes`. Below the start offset, when DeleteRecords or a queue has advanced past
it. Never a segment that reaches above the caller's bound (the high watermark), and never the active
one. When all of the active segment is expired it is rolled, and removed in the pass after the flush
that made its successor durable, so that the end offset stays known on disk.

Nothing here blocks but `purge`, which is for Workers. A retired segment leaves the list of the log
at once, but its files stay until the new start offset is durable: otherwise a power cut could leave
a gap in the log, because renames may reach the disk in any order. Then `purge` renames them to
`.deleted`, and later unlinks them; until then readers may use the spans that they located. If the
process stops before, the next start removes the files, because they lie below the start offset.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.ports import Disk
from penstock.log import files
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from penstock.log.log import Log


@dataclass(slots=True)
class Removal:
    """Unused files of one log, to be unlinked from `due_ms` on."""

    log: "Log"
    due_ms: int
    segments: list[Segment]
    """Segments to rename as soon as the log durably starts at `start_offset`."""
    start_offset: int = 0
    paths: list[str] = field(default_factory=list)
    """Paths of renamed files."""
    retry_ms: int = 0
    """Earliest time of the next attempt, after a disk error."""

    def is_due(self, now_ms: int) -> bool:
        """True while `purge` has work to do for it."""
        if now_ms < self.retry_ms:
            return False
        if self.segments:
            return self.log.offline is not None or self.log.durable_start >= self.start_offset
        return self.due_ms <= now_ms


def retain(
    log: "Log", now_ms: int, bound: int, by_policy: bool = True, kept_from: int | None = None
) -> list[Removal]:
    """Retires expired segments; returns the removals for `purge`.

    A segment that reaches above `kept_from` does not expire by age or size.
    """
    by_policy = by_policy and log.config.cleanup_delete
    policy_bound = log.end_offset if kept_from is None else kept_from
    is_empty = log.start_offset >= log.end_offset
    if is_empty or (by_policy and _is_all_expired(log, now_ms, policy_bound)):
        active = log.segments.active
        if active.size and log.end_offset <= bound:
            log.roll()
    doomed = _doomed(log, now_ms, bound, by_policy, policy_bound)
    return retire(log, doomed, now_ms) if doomed else []


def expiring(log: "Log", now_ms: int, bound: int, kept_from: int | None) -> list[tuple[int, int]]:
    """Returns first and end offset of each segment that `retain` would retire by age or size, and
    of the active one if it would be rolled for that."""
    if not log.config.cleanup_delete:
        return []
    policy_bound = log.end_offset if kept_from is None else kept_from
    doomed = _doomed(log, now_ms, bound, True, policy_bound)
    ends = [segment.base_offset for segment in [*log.segments.sealed, log.segments.active][1:]]
    found = [
        (segment.base_offset, end)
        for segment, end in zip(doomed, ends, strict=False)
        if end > log.start_offset
    ]
    active = log.segments.active
    if _is_all_expired(log, now_ms, policy_bound) and active.size and log.end_offset <= bound:
        found.append((active.base_offset, log.end_offset))
    return found


def _is_all_expired(log: "Log", now_ms: int, policy_bound: int) -> bool:
    return (
        policy_bound >= log.end_offset
        and _is_expired(log, log.segments.active, now_ms)
        and all(_is_expired(log, segment, now_ms) for segment in log.segments.sealed)
    )


def _doomed(
    log: "Log", now_ms: int, bound: int, by_policy: bool, policy_bound: int
) -> list[Segment]:
    """Returns the sealed segments that expired, the oldest first."""
    doomed: list[Segment] = []
    excess = log.size_bytes - log.config.retention_bytes
    sealed = log.segments.sealed
    ends = [segment.base_offset for segment in [*sealed, log.segments.active][1:]]
    for segment, end_offset in zip(sealed, ends, strict=True):
        if end_offset > bound or not log.is_settled(segment):
            break
        too_large = log.config.retention_bytes >= 0 and excess >= segment.size
        is_expired = (
            by_policy
            and end_offset <= policy_bound
            and (too_large or _is_expired(log, segment, now_ms))
        )
        if not is_expired and end_offset > log.start_offset:
            break
        doomed.append(segment)
        excess -= segment.size
    return doomed


def sum_up(segments: list[Segment]) -> None:
    """Reads the summaries of sealed segments of an earlier process. Blocks: use Workers."""
    for segment in segments:
        segment.summary()


def _is_expired(log: "Log", segment: Segment, now_ms: int) -> bool:
    if log.config.retention_ms < 0:
        return False
    newest = segment.summary().max_timestamp
    return newest >= 0 and now_ms - newest > log.config.retention_ms


def retire(log: "Log", doomed: list[Segment], now_ms: int) -> list[Removal]:
    """Takes the oldest segments out of the log."""
    log.segments.replace(doomed, [])
    log.changed = True
    first = log.segments[0].base_offset
    log.advance_start(first)
    return [Removal(log, now_ms + log.config.file_delete_delay_ms, doomed, first)]


def set_aside(disk: Disk, segment: Segment, ending: str) -> list[str]:
    """Renames the files of a segment so that the next start does not open them as one."""
    segment.retired = True
    paths = []
    for suffix in (files.LOG, *files.CACHES):
        path = segment.path + suffix
        if disk.exists(path):
            disk.rename(path, path + ending)
            paths.append(path + ending)
    return paths


def purge(disk: Disk, removals: list[Removal], now_ms: int) -> list[Removal]:
    """Renames and unlinks the files that are due; returns the remaining removals. Blocks.

    Skips an offline log: its topic was deleted, or its files are kept for inspection.
    """
    later = []
    for removal in removals:
        log = removal.log
        if log.offline is not None:
            continue
        if removal.segments and removal.is_due(now_ms):
            for segment in removal.segments:
                removal.paths += set_aside(disk, segment, files.DELETED)
            removal.segments = []
        if removal.segments or removal.due_ms > now_ms:
            later.append(removal)
            continue
        disk.sync_dir(log.path)
        for path in removal.paths:
            files.remove(disk, path)
    return later
