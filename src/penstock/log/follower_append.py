"""Follower side of a log: appends the leader's batches, and truncates what the leader lacks.

`append_replica` keeps offsets and epochs as the leader assigned them. `truncate_to` truncates by
offset; the leader epochs determine the offset (KIP-101, KIP-320), never the high watermark.

A crash in the middle of a truncation leaves a log that recovery can open. First the checkpoint is
lowered, so that nothing above the truncation counts as durable. Then snapshots, later segments and
the tail of the last one are removed. Everything is synced before the call returns.
"""

from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, Refused
from penstock.log import files
from penstock.log.expected_batches import EVERYWHERE, write_gaps
from penstock.log.producers import Producers
from penstock.log.segment import RELATIVE_OFFSET_MAX, Segment
from penstock.log.state_rebuild import rebuild_producers
from penstock.wire.records import ENCRYPTED, BatchHeader, batches, check_intact

if TYPE_CHECKING:
    from penstock.log.log import Log


def append_replica(log: "Log", view: memoryview, now_ms: int, waits: bool) -> int:
    """Implements `Log.append_replica`: batches that fit the active segment are written together,
    each run with one system call."""
    run = _Run(log, view)
    try:
        for position, header in batches(view):
            batch = view[position : position + header.size_bytes]
            check_intact(batch, header)
            if header.attributes & ENCRYPTED:
                raise Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the leader sent an encrypted batch at offset {header.base_offset}",
                )
            if run.takes(header):
                continue
            run.write()
            if header.base_offset < log.end_offset:
                raise Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the leader sent offset {header.base_offset} after {log.end_offset - 1}",
                )
            if not is_expected(log, header):
                if not waits:
                    return run.end
                expect(log, header)
            log.append_as_is(batch, header, now_ms)
            run.begin(position + header.size_bytes)
    except Refused:
        run.write()
        raise
    run.write()
    return run.end


class _Run:
    """Run of batches to be written together: of one epoch, in one segment, back to back."""

    def __init__(self, log: "Log", view: memoryview) -> None:
        self.end = 0
        """Position in the view up to which it was consumed."""
        self._log = log
        self._view = view
        self._start = 0
        self._space = -1
        self._overhead_bytes = 0
        self._next_offset = -1
        self._offset_max = -1
        self._timestamp_max = -1
        self._headers: list[BatchHeader] = []

    def begin(self, position: int) -> None:
        """Begins a run after the batch before `position`, which was appended to the segment."""
        log = self._log
        active, config = log.segments.active, log.config
        self._start = self.end = position
        self._space = config.segment_bytes - active.size
        self._overhead_bytes = active.overhead_bytes
        if active.index_bytes >= config.segment_index_bytes or active.first_timestamp < 0:
            self._space = -1
        self._next_offset = log.end_offset
        self._offset_max = active.base_offset + RELATIVE_OFFSET_MAX
        self._timestamp_max = active.first_timestamp + config.segment_ms

    def takes(self, header: BatchHeader) -> bool:
        size = header.size_bytes
        space = size + self._overhead_bytes
        log = self._log
        if (
            space > self._space
            or header.leader_epoch != log.epochs.latest
            or header.base_offset < self._next_offset
            or (header.base_offset > self._next_offset and log.gaps_end != EVERYWHERE)
            or header.last_offset > self._offset_max
            or header.max_timestamp > self._timestamp_max
        ):
            return False
        self._space -= space
        self.end += size
        self._next_offset = header.next_offset
        self._headers.append(header)
        return True

    def write(self) -> None:
        headers, self._headers = self._headers, []
        self._space = -1
        if not headers:
            return
        log = self._log
        start, self._start = self._start, self.end
        try:
            log.segments.active.append_run(self._view[start : self.end], headers)
        except OSError as error:
            log.write_failed(error)
            raise
        log.note_appended(self._next_offset)
        position = start
        for header in headers:
            following = position + header.size_bytes
            if header.producer_id >= 0:
                log.note_producer(self._view[position:following], header)
            position = following


def is_expected(log: "Log", header: BatchHeader) -> bool:
    """True if nothing must be persisted before this batch, which comes next, is appended."""
    if header.leader_epoch != log.epochs.latest:
        return False
    return header.base_offset == log.end_offset or log.gaps_end == EVERYWHERE


def expect(log: "Log", header: BatchHeader) -> None:
    """Persists what must be on disk before this batch: a new epoch, or that there are gaps.
    Blocks."""
    if header.base_offset > log.end_offset and log.gaps_end != EVERYWHERE:
        # The leader compacts. This is persisted before the first gap, which would pass for damage.
        write_gaps(log.disk, log.path, EVERYWHERE)
        log.note_gaps(EVERYWHERE)
    log.begin_epoch(header.leader_epoch, header.base_offset)


def truncate_to(log: "Log", offset: int, now_ms: int) -> None:
    """Truncates the log to end at `offset`, or before it when that is inside a batch."""
    if offset >= log.end_offset:
        # An epoch without a batch is not part of the history that other replicas may share.
        if log.epochs.truncate_end(log.end_offset):
            log.write_epochs()
        return
    assert not log.flushing, "a log must not be truncated during a flush"
    if offset <= log.segments[0].base_offset:
        start_over(log, offset)
        return
    kept = log.segments.floor(offset - 1)
    position, end_offset = _cut_of(kept, offset)
    start_offset = min(log.start_offset, end_offset)
    log.sync()
    checkpoint = files.Checkpoint(end_offset, kept.base_offset, position, start_offset)
    files.write_checkpoint(log.disk, log.path, checkpoint)
    log.remove_snapshots_above(end_offset)
    doomed = [segment for segment in log.segments if segment.base_offset > kept.base_offset]
    _remove(log, doomed)
    log.segments.replace([*doomed, kept], [kept.truncate(position, end_offset)])
    producers = rebuild_producers(
        log.disk,
        log.path,
        log.segments,
        log.snapshots,
        end_offset,
        end_offset,
        log.config.producer_expiration_ms,
    )
    producers.expire(now_ms)
    if log.epochs.truncate_end(end_offset):
        log.write_epochs()
    log.reset(start_offset, end_offset, producers)


def start_over(log: "Log", offset: int) -> None:
    """Truncates the log fully; the next batch gets `offset`.

    For a follower whose end offset is below the start offset of the leader.
    """
    assert not log.flushing, "a log must not be truncated during a flush"
    old = list(log.segments)
    same = [segment for segment in old if segment.base_offset == offset]
    if not same:
        # This checkpoint covers nothing, so that a new segment amid the old ones does not count as
        # damage. The new one exists before they go: a directory without segments is damage, too.
        first = old[0].base_offset
        nothing = files.Checkpoint(first, first, 0, log.start_offset)
        files.write_checkpoint(log.disk, log.path, nothing)
        interval = log.config.index_interval_bytes
        fresh = Segment.create(log.disk, log.path, offset, interval, log.cipher)
        log.disk.sync_dir(log.path)
    files.write_checkpoint(log.disk, log.path, files.Checkpoint(offset, offset, 0, offset))
    log.remove_snapshots_above(-1)
    if same:
        fresh = same[0].truncate(0, offset)
    _remove(log, [segment for segment in old if segment not in same])
    log.segments.replace(old, [fresh])
    producers = Producers(log.config.producer_expiration_ms)
    producers.end_offset = offset
    if log.epochs.truncate_end(0):
        log.write_epochs()
    log.reset(offset, offset, producers)


def _cut_of(segment: Segment, offset: int) -> tuple[int, int]:
    """Position of the batch that holds `offset`, and the offset after the preceding batch."""
    end_offset = -1
    cut = segment.size
    for position, header in segment.since(offset - 1):
        if header.last_offset >= offset:
            cut = position
            end_offset = header.base_offset if end_offset < 0 else end_offset
            break
        end_offset = header.next_offset
    return cut, end_offset


def _remove(log: "Log", doomed: list[Segment]) -> None:
    for segment in reversed(doomed):
        segment.generation += 1
        segment.retired = True
        segment.remove_caches()
        files.remove(log.disk, segment.path + files.LOG)
    if doomed:
        log.disk.sync_dir(log.path)
