"""End offset of a log, found without opening it: truncates and writes nothing, checks everything.

For comparing the logs of several nodes while none of them runs (`recover-metadata`). A tail that
the next start would truncate is not counted. Blocks.
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
    """Latest leader epoch of the log; -1 without one."""
    last_epoch: int
    """Leader epoch of the last record; -1 without one."""
    end_offset: int
    start_offset: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Rank among the logs of one partition: the highest has all committed records."""
        return self.last_epoch, self.end_offset


def survey(disk: Disk, path: str) -> Survey | None:
    """Examines the log in directory `path`; None without one. Raises OSError."""
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
