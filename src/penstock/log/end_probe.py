"""End of a log, found without opening it: nothing is cut, written or believed but what is checked.

For comparing logs of several nodes while none of them runs (`recover-metadata`). What the next
start would cut is not counted. Blocks.
"""

from typing import NamedTuple

from penstock.base.ports import Disk
from penstock.log import files
from penstock.log import leader_epochs as epoch_file
from penstock.log.leader_epochs import UNDEFINED, Epochs
from penstock.log.recovery import recovery_point
from penstock.log.segment import Segment
from penstock.log.segment_scan import scan

INDEX_INTERVAL = 4_096


class Survey(NamedTuple):
    latest_epoch: int
    """The latest leader epoch that the log knows of; -1: none."""
    last_epoch: int
    """That of its last record; -1: it has none."""
    end_offset: int
    start_offset: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Of two logs of a partition, the one with the higher rank has all that was committed."""
        return self.last_epoch, self.end_offset


def survey(disk: Disk, path: str) -> Survey | None:
    """None: there is no log. Raises OSError."""
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
