"""Lookups in a log: offsets before its tail, records by timestamp, aborted transactions.

All but `search` read files, and some decode a batch: they block, and are for Workers. They only
read; a segment that is removed meanwhile stays readable through its open file.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING

from penstock.base.errors import Refused
from penstock.log import state_rebuild
from penstock.log.index_files import AbortedTxn
from penstock.log.read_span import ReadSpan
from penstock.log.segment import Segment
from penstock.wire.records import BatchHeader, Column, decode

if TYPE_CHECKING:
    from penstock.log.log import Log

TIMES = Column.OFFSETS | Column.TIMESTAMPS

SEGMENTS_LOADED_MAX = 4
"""Number of sealed segments whose index stays in memory, per log."""

HALF_BATCH_BYTES = 16 * 1024
"""Half a batch of this size or more is not sent. As a rule this is more than lies between two
index entries, so that no whole batches are left out with it."""


def search(log: "Log", offset: int, bytes_max: int, limit_offset: int) -> ReadSpan:
    """Implements `Log.locate` before the tail: exact with a loaded index and a warm page cache.

    Otherwise the span searches when it is read. Runs on the loop; does not wait for the disk
    except to load the index of the active segment, once.
    """
    segment = log.segments.active
    limit = segment.size
    if offset < segment.base_offset:
        segment = log.segments.floor(offset)
        log.keep_loaded(segment)
        limit = segment.size
        if limit_offset < log.segments.end_of(segment, log.end_offset):
            limit = -1
    else:
        segment.load()  # Not in a worker, because this thread appends to it.
        if limit_offset >= segment.tail_start:
            limit = segment.tail_ceiling(limit_offset)
        elif limit_offset != log.end_offset:
            limit = -1
    place = segment.place(offset) if limit >= 0 else None
    if place is None:
        return ReadSpan(segment, offset, bytes_max, limit_offset)
    position, first_end = place
    end = ending(segment, first_end, position + bytes_max, limit)
    return ReadSpan(segment, offset, bytes_max, limit_offset, position, end, limit)


def ending(segment: Segment, first_end: int, wanted: int, limit: int) -> int:
    """End of the read: `wanted`, but not inside the first batch, nor after `limit`.

    A client discards a partial batch and fetches it again, so a large one is not begun. Only the
    index tells where batches begin: a small one may be cut, as in Kafka.
    """
    if wanted >= limit:
        return limit
    if wanted <= first_end:
        return min(first_end, limit)
    if segment.index is not None:
        starts = segment.index.values
        at = bisect_right(starts, wanted)
        if at and starts[at - 1] >= first_end and wanted - starts[at - 1] >= HALF_BATCH_BYTES:
            return starts[at - 1]
    return wanted


def keep_loaded(loaded: list[Segment], segment: Segment, unsynced: list[Segment]) -> None:
    """Marks `segment` as recently used, and evicts the indexes of the least recently used."""
    if loaded and loaded[-1] is segment:
        return
    if segment in loaded:
        loaded.remove(segment)
    loaded.append(segment)
    excess = len(loaded) - SEGMENTS_LOADED_MAX
    if excess > 0:
        # Segments sealed since the last flush do not have their caches on disk yet.
        for oldest in [one for one in loaded if one not in unsynced][:excess]:
            loaded.remove(oldest)
            oldest.forget()


def offset_for_time(log: "Log", timestamp: int) -> tuple[int, int, int] | None:
    """Offset, timestamp and leader epoch of the first record at or after `timestamp`."""
    start_offset = log.start_offset
    for segment in log.segments.since(start_offset):
        if segment.size and segment.summary().max_timestamp >= timestamp:
            found = _first_at(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def max_timestamp(log: "Log") -> tuple[int, int, int] | None:
    """Offset, timestamp and leader epoch of the first record with the largest timestamp."""
    best: Segment | None = None
    for segment in log.segments.since(log.start_offset):
        if segment.size and (
            best is None or segment.summary().max_timestamp > best.summary().max_timestamp
        ):
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    return _first_at(best, best.max_timestamp, log.start_offset)


def _first_at(segment: Segment, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
    indexed = segment.peek()
    assert indexed.index is not None
    assert indexed.times is not None
    # Records before an entry of the time index are not newer than its timestamp.
    from_offset = indexed.times.floor(timestamp)
    relative, start = indexed.index.entry(from_offset)
    for position, header in segment.headers(start, segment.base_offset + relative):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        found = _first_in(segment, position, header, timestamp, start_offset)
        if found is not None:
            return found
    return None


def _first_in(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> tuple[int, int, int] | None:
    try:
        columns = decode(segment.read_batch(position, header), columns=TIMES)
    except Refused:
        # An intact batch whose records do not decode, as its producer sent it: found as a whole.
        return max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch
    for offset, record_timestamp in zip(columns.offsets, columns.timestamps, strict=True):
        if record_timestamp >= timestamp and offset >= start_offset:
            return offset, record_timestamp, header.leader_epoch
    return None


def aborted(log: "Log", from_offset: int, to_offset: int) -> list[AbortedTxn]:
    found = []
    for segment in log.segments.since(from_offset):
        known = segment.aborted
        if known is None:
            known = state_rebuild.rebuild_aborted(
                log.disk, log.path, log.segments, log.snapshots, segment
            )
        for txn in known:
            if txn.last_offset >= from_offset and txn.first_offset < to_offset:
                found.append(txn)
            if txn.last_stable_offset >= to_offset:
                return found
    return found
