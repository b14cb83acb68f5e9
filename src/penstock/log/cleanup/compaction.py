"""Compaction: rewrites sealed segments so that they hold each key once.

Four steps, which the owner of the log calls in turn. None blocks the loop:

- `plan` on the loop: decides if compaction is due (dirty ratio, compaction lags), and for which
  segments. Only sealed and synced ones below the caller's bound (the last stable offset).
  `dirtiness` decides the same without a plan, for a caller that chooses between logs.
- `execute` in a worker: reads them, writes the batches that `compaction_filter` keeps to `.cleaned`
  files, merging neighbours that fit into one segment, and syncs. The log stays unchanged. It may
  take minutes, so it is abandoned between two batches as soon as its result is of no use.
- `move` in a worker, if `is_current` finds the old segments unchanged: puts the new files in place
  of the old ones. Meanwhile the log is held (`flusher.Flusher.hold`): no flush runs, and its sealed
  segments do not change. Readers keep the old files open.
- `adopt` on the loop: puts the new segments into the log.

Crash safety. `.cleaned` files are deleted at the next start. Once they are renamed to `.swap` and
the directory is synced, they are the truth: the next start finishes the swap
(`recovery.remove_leftovers`). Only then are the old files renamed away. Only when that is synced,
too, do the new files get their names: an old and a new segment with the same offsets never exist
by name at the same time.

All offsets below `Log.cleaned_offset` have been compacted. Losing it costs work, not data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Buffer, Disk
from penstock.log import files, state_rebuild
from penstock.log import index_files as indexes
from penstock.log.cleanup.compaction_filter import KEYS_MAX, Cleaner, OffsetMap, Transactions
from penstock.log.cleanup.retention import Removal, set_aside
from penstock.log.config import LogConfig
from penstock.log.expected_batches import write_gaps
from penstock.log.index_files import AbortedTxn, Index
from penstock.log.segment import RELATIVE_OFFSET_MAX, Segment
from penstock.log.segment_scan import Segments, scan_all
from penstock.wire.records import CONTROL, BatchHeader, read_header

if TYPE_CHECKING:
    from penstock.log.log import Log

WRITE_BYTES = 1024 * 1024


class Abandoned(Exception):
    """Raised when a compaction was cancelled; none of its files are left."""


def never() -> bool:
    return False


class Dirt(NamedTuple):
    """Dirty part of a log, which is due for compaction."""

    segments: list[Segment]
    """All segments that may be compacted, including those that already were."""
    dirty_offset: int
    ratio: float
    """Share of their bytes that was not compacted yet."""


@dataclass(slots=True)
class CompactionPlan:
    """Input of a compaction, in its state at the time of planning."""

    disk: Disk
    path: str
    config: LogConfig
    now_ms: int
    segments: list[Segment]
    """All sealed segments up to `end_offset`; those before `dirty_offset` are already compacted."""
    dirty_offset: int
    end_offset: int
    last_offsets: dict[int, int]
    marker_epochs: dict[int, int]
    snapshots: list[int]
    everything: Segments
    keys_max: int = KEYS_MAX


@dataclass(slots=True)
class Replacement:
    """Neighbouring segments and the compacted one that replaces them."""

    old: list[Segment]
    new: Segment
    generations: list[int]


@dataclass(slots=True)
class Compacted:
    replacements: list[Replacement]
    cleaned_offset: int
    end_offset: int
    """End offset of the last segment that is replaced."""


def dirtiness(log: "Log", now_ms: int, bound: int) -> float | None:
    """Share of the log that was not compacted yet, up to 1; None while compaction is not due."""
    dirt = _earned(log, now_ms, bound)
    return None if dirt is None else dirt.ratio


def plan(log: "Log", now_ms: int, bound: int, keys_max: int = KEYS_MAX) -> CompactionPlan | None:
    """Plans a compaction; None while it is not due. May read index files on first use."""
    dirt = _earned(log, now_ms, bound)
    if dirt is None:
        return None
    producers = log.producers.by_id
    return CompactionPlan(
        log.disk,
        log.path,
        log.config,
        now_ms,
        dirt.segments,
        dirt.dirty_offset,
        log.segments.end_of(dirt.segments[-1], log.end_offset),
        {pid: one.batches[-1][3] for pid, one in producers.items() if one.batches},
        {pid: one.epoch for pid, one in producers.items() if not one.batches},
        log.snapshots.copy(),
        Segments(list(log.segments)),
        keys_max,
    )


def _earned(log: "Log", now_ms: int, bound: int) -> Dirt | None:
    if log.offline is not None:
        return None
    segments = _cleanable(log, now_ms, bound)
    dirty_offset = max(log.cleaned_offset, log.start_offset)
    dirty = [
        segment
        for segment in segments
        if log.segments.end_of(segment, log.end_offset) > dirty_offset
    ]
    if not dirty:
        return None
    ratio = sum(one.size for one in dirty) / sum(one.size for one in segments)
    if ratio <= log.config.min_cleanable_dirty_ratio and not _is_overdue(log, dirty[0], now_ms):
        return None
    return Dirt(segments, dirty_offset, ratio)


def _cleanable(log: "Log", now_ms: int, bound: int) -> list[Segment]:
    lag_ms = log.config.min_compaction_lag_ms
    found = []
    for segment in log.segments.sealed:
        if log.segments.end_of(segment, log.end_offset) > bound or not log.is_settled(segment):
            break
        if lag_ms and now_ms - segment.summary().max_timestamp < lag_ms:
            break
        found.append(segment)
    return found


def _is_overdue(log: "Log", oldest: Segment, now_ms: int) -> bool:
    since_ms = oldest.summary().first_timestamp
    return since_ms >= 0 and now_ms - since_ms > log.config.max_compaction_lag_ms


def execute(plan: CompactionPlan, is_over: Callable[[], bool] = never) -> Compacted:
    """Writes the compacted segments. Blocks: call it through Workers.

    Raises Corrupt, OSError, or Abandoned once `is_over` returns True; then no file is left behind.
    """
    aborted = _aborted(plan, is_over)
    newest = _map_keys(plan, aborted, is_over)
    cleaner = Cleaner(
        newest,
        Transactions(aborted),
        plan.last_offsets,
        plan.marker_epochs,
        plan.config.delete_retention_ms,
        plan.now_ms,
    )
    cleaned = [segment for segment in plan.segments if segment.base_offset < newest.end_offset]
    done: list[Replacement] = []
    try:
        for group in _groups(plan, cleaned):
            done.append(_clean_group(plan, group, cleaner, is_over))  # noqa: PERF401 - see below
    except (OSError, Corrupt, Abandoned):
        for replacement in done:
            _discard(plan.disk, replacement.new)
        raise
    return Compacted(
        done,
        newest.end_offset,
        plan.everything.end_of(cleaned[-1], plan.end_offset) if cleaned else 0,
    )


def _batches(
    segment: Segment, is_over: Callable[[], bool]
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Like `scan_all`; raises Abandoned once the segment is retired or `is_over` returns True."""
    for one in scan_all(segment):
        if segment.retired or is_over():
            raise Abandoned
        yield one


def _aborted(plan: CompactionPlan, is_over: Callable[[], bool]) -> list[AbortedTxn]:
    """Aborted transactions whose marker is in the segments to be compacted."""
    found: list[AbortedTxn] = []
    for segment in plan.segments:
        if is_over():
            raise Abandoned
        known = segment.aborted
        if known is None:
            known = state_rebuild.rebuild_aborted(
                plan.disk, plan.path, plan.everything, plan.snapshots, segment
            )
        found += known
    return found


def _map_keys(
    plan: CompactionPlan, aborted: list[AbortedTxn], is_over: Callable[[], bool]
) -> OffsetMap:
    newest = OffsetMap(plan.dirty_offset, plan.keys_max)
    transactions = Transactions(aborted)
    for segment in plan.everything.since(plan.dirty_offset):
        if segment.base_offset >= plan.end_offset:
            break
        for header, batch in _batches(segment, is_over):
            if header.attributes & CONTROL:
                transactions.is_spent(header, batch)
                aborts = True
            else:
                aborts = transactions.is_aborted(header)
            if header.last_offset < plan.dirty_offset:
                continue
            if aborts:
                newest.skip(header)
                continue
            newest.add(header, batch)
            if newest.is_full:
                return newest
    return newest


def _groups(plan: CompactionPlan, segments: list[Segment]) -> list[list[Segment]]:
    """Groups neighbours that fit into one segment, by size and by the range of its offsets."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        end_offset = plan.everything.end_of(segment, plan.end_offset)
        if (
            groups
            and size + segment.size <= plan.config.segment_bytes
            and end_offset - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups


def _clean_group(
    plan: CompactionPlan, group: list[Segment], cleaner: Cleaner, is_over: Callable[[], bool]
) -> Replacement:
    generations = [segment.generation for segment in group]
    new = _create(plan, group[0].base_offset)
    try:
        end_offset = plan.everything.end_of(group[-1], plan.end_offset)
        buffers: list[Buffer] = []
        size = 0
        for segment in group:
            for header, batch in _batches(segment, is_over):
                try:
                    kept = cleaner.clean(header, batch, is_last=header.next_offset == end_offset)
                except Refused as error:
                    raise Corrupt(f"{segment.path}: {header.base_offset}: {error}") from None
                if kept is None:
                    continue
                now = read_header(kept)
                at, stored_bytes = new.size + size, len(kept) + new.overhead_bytes
                new.note(at, stored_bytes, now.base_offset, now.last_offset, now.max_timestamp)
                buffers.append(new.stored(kept))
                size += stored_bytes
                if size >= WRITE_BYTES:
                    _write(new, buffers)
                    size = 0
        _write(new, buffers)
        new.file.sync()
    except (OSError, Corrupt, Abandoned):
        _discard(plan.disk, new)
        raise
    new.aborted = cleaner.transactions.kept
    cleaner.transactions.kept = []
    new.unverified_end = 0
    return Replacement(group, new, generations)


def _create(plan: CompactionPlan, base_offset: int) -> Segment:
    name = files.file_name(base_offset, files.LOG + files.CLEANED)
    path = files.join(plan.path, name)
    files.remove(plan.disk, path)
    file = plan.disk.open(path, create=True)
    interval = plan.config.index_interval_bytes
    cipher = plan.everything.active.cipher
    new = Segment(plan.disk, plan.path, base_offset, file, interval, cipher)
    new.begin(plan.config.encrypted and cipher.has_key)
    new.index = Index(indexes.OFFSET_KINDS)
    new.times = Index(indexes.TIME_KINDS)
    return new


def _write(segment: Segment, buffers: list[Buffer]) -> None:
    if buffers:
        segment.file.append((b"".join(buffers),))
        segment.size = segment.file.size()
        buffers.clear()


def _discard(disk: Disk, segment: Segment) -> None:
    segment.file.close()
    files.remove(disk, segment.path + files.LOG + files.CLEANED)


def is_valid(log: "Log", plan: CompactionPlan) -> bool:
    """True while the log still has the planned segments, not truncated; otherwise damage found in
    them does not count."""
    held = list(log.segments)
    return all(segment in held and not segment.retired for segment in plan.segments)


def is_current(log: "Log", compacted: Compacted) -> bool:
    """True while the log still has the segments that were compacted, not truncated."""
    held = list(log.segments)
    return log.offline is None and all(
        segment in held and segment.generation == generation
        for one in compacted.replacements
        for segment, generation in zip(one.old, one.generations, strict=True)
    )


def discard(compacted: Compacted, disk: Disk) -> None:
    """Deletes the compacted files. Blocks: call it through Workers."""
    for one in compacted.replacements:
        _discard(disk, one.new)


def move(disk: Disk, path: str, compacted: Compacted, gaps_end: int) -> list[str]:
    """Puts the new files in place; returns the paths of the old ones. Blocks: use Workers.

    After an OSError the log must go offline: the next start finds out which files it has.
    """
    write_gaps(disk, path, max(gaps_end, compacted.end_offset))
    return _swap_files(disk, path, compacted.replacements)


def adopt(log: "Log", compacted: Compacted, paths: list[str], now_ms: int) -> list[Removal]:
    """Puts the new segments into the log; `retention.purge` removes the old files."""
    for one in compacted.replacements:
        log.replace_compacted(one.old, one.new)
    log.note_compacted(compacted.cleaned_offset, compacted.end_offset)
    return [Removal(log, now_ms + log.config.file_delete_delay_ms, [], paths=paths)]


def _swap_files(disk: Disk, path: str, replacements: list[Replacement]) -> list[str]:
    """Renames in the order given in the module docstring; returns the paths of the old files."""
    for one in replacements:
        name = one.new.path + files.LOG
        disk.rename(name + files.CLEANED, name + files.SWAP)
    disk.sync_dir(path)
    aside = [
        old_path
        for one in replacements
        for segment in one.old
        for old_path in set_aside(disk, segment, files.REPLACED)
    ]
    disk.sync_dir(path)
    for one in replacements:
        name = one.new.path + files.LOG
        disk.rename(name + files.SWAP, name)
    return aside
