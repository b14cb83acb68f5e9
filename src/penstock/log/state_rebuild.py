"""Rebuild of producer state, aborted transactions and leader epochs from batch headers.

The log is the source of truth; this state is derived from it. A producer snapshot saves reading
from the start. A missing or damaged snapshot costs time but no state: if it were taken for "no
producers", a retry would become a duplicate.

Every function blocks.
"""

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Disk
from penstock.log import files
from penstock.log import producers as snapshot_file
from penstock.log.index_files import AbortedTxn
from penstock.log.leader_epochs import Epochs
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.log.segment_scan import Segments
from penstock.wire.control_batches import ControlMarker, decode_marker
from penstock.wire.records import BatchHeader, is_control


def rebuild_producers(
    disk: Disk,
    path: str,
    segments: Segments,
    snapshots: list[int],
    newest: int,
    end_offset: int,
    expiration_ms: int,
) -> Producers:
    """Producer state after every batch below `end_offset`, from a snapshot not above `newest`.

    Also sets the aborted transactions of every segment it replays.
    """
    producers = _read_snapshot(disk, path, segments, snapshots, newest, expiration_ms)
    if producers.end_offset < end_offset:
        _replay(producers, segments.since(producers.end_offset))
    producers.end_offset = end_offset
    return producers


def rebuild_aborted(
    disk: Disk, path: str, segments: Segments, snapshots: list[int], segment: Segment
) -> list[AbortedTxn]:
    """Aborted transactions whose marker lies in `segment`, for a segment without its caches."""
    producers = _read_snapshot(disk, path, segments, snapshots, segment.base_offset, 0)
    replayed = segments.since(producers.end_offset)
    _replay(producers, [other for other in replayed if other.base_offset <= segment.base_offset])
    assert segment.aborted is not None
    return segment.aborted


def _replay(producers: Producers, segments: list[Segment]) -> None:
    for segment in segments:
        known = segment.aborted or []
        aborted = [] if segment.base_offset >= producers.end_offset else known.copy()
        _replay_segment(producers, segment, aborted)
        segment.aborted = aborted


def _read_snapshot(
    disk: Disk,
    path: str,
    segments: Segments,
    snapshots: list[int],
    newest: int,
    expiration_ms: int,
) -> Producers:
    """Newest good snapshot from which the aborted transactions of the segments are known, too."""
    first = segments[0].base_offset
    for offset in sorted(snapshots, reverse=True):
        if not first <= offset <= newest:
            continue
        name = files.join(path, files.file_name(offset, files.SNAPSHOT))
        body = files.read_cache(disk, name, segments.active.cipher)
        found = None if body is None else snapshot_file.decode(body, expiration_ms)
        if found is None or found.end_offset != offset:
            continue
        segment = segments.floor(offset)
        if segment.base_offset == offset or segment.load_aborted(offset):
            return found
    fresh = Producers(expiration_ms)
    fresh.end_offset = first
    return fresh


def _replay_segment(producers: Producers, segment: Segment, aborted: list[AbortedTxn]) -> None:
    """Applies the batches of `segment` that the producer state does not include yet."""
    start = producers.end_offset
    batches = segment.since(start) if start > segment.base_offset else segment.headers()
    for at, header in batches:
        if header.base_offset < start:
            continue
        if header.producer_id >= 0:
            if is_control(header.attributes):
                marker = _read_marker(segment, at, header)
                ended = producers.apply_marker(header, marker, header.base_offset)
                if ended is not None:
                    aborted.append(ended)
            else:
                producers.apply(header, header.base_offset)
        producers.end_offset = header.next_offset


def _read_marker(segment: Segment, position: int, header: BatchHeader) -> ControlMarker | None:
    if header.count == 0:
        return None
    try:
        return decode_marker(segment.read_batch(position, header))
    except Refused as error:
        raise Corrupt(f"{segment.path}: at position {position}: {error}") from None


def rebuild_epochs(segments: Segments) -> Epochs:
    """Leader epochs from batch headers. Raises Corrupt where an epoch is lower than before."""
    epochs = Epochs()
    for segment in segments:
        for position, header in segment.headers():
            if header.leader_epoch < epochs.latest:
                raise Corrupt(
                    f"{segment.path}: leader epoch {header.leader_epoch} at position {position} "
                    f"comes after {epochs.latest}"
                )
            if header.leader_epoch > epochs.latest:
                epochs.begin(header.leader_epoch, header.base_offset)
    return epochs
