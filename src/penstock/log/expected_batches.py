"""Where the batches of an earlier process must lie, as told by everything but themselves.

Base offset and leader epoch of a batch are outside its CRC, so that a leader can stamp them. A
wrong bit there is found by what the rest of the directory says: file names, indexes and the batch
before say which offset comes next, and the leader epochs say which epoch it has.

A log that was never compacted has no gaps: the next offset is known exactly. Compaction makes
gaps, and so does copying from a leader that compacts; then the next offset is at least known not
to go back, nor to go beyond the end of the segment. Which logs may have gaps, and up to where, is
in the file `gaps`, written durably before the first one is made. When it cannot be read there may
be gaps everywhere.
"""

from dataclasses import dataclass, replace

import msgspec

from penstock.base.ports import Disk
from penstock.log import files
from penstock.log.leader_epochs import UNDEFINED, Epochs
from penstock.wire.records import BatchHeader

EVERYWHERE = 2**63 - 1
"""As the end of a segment: not known. As the end of the gaps: there is none."""


@dataclass(frozen=True, slots=True)
class ExpectedBatches:
    """What is known of the batches of one segment. Shared with other threads: never changed."""

    is_dense: bool
    """There are no gaps between its batches."""
    epochs: Epochs
    """As they were when the log was opened."""
    end_offset: int = EVERYWHERE
    """Where the batches in question end."""

    def admits(self, header: BatchHeader, next_offset: int) -> bool:
        """Whether this batch can come where `next_offset` was to come."""
        offset = header.base_offset
        if offset != next_offset and (self.is_dense or offset < next_offset):
            return False
        if header.next_offset > self.end_offset:
            return False
        # By its last offset, because DeleteRecords may have moved the start of the log into it.
        epoch = self.epochs.of(header.last_offset)
        return epoch in (UNDEFINED, header.leader_epoch)

    def up_to(self, end_offset: int) -> "ExpectedBatches":
        return replace(self, end_offset=end_offset)


def read_gaps(disk: Disk, directory: str) -> int:
    """Below this offset batches may have gaps between them."""
    path = files.join(directory, files.GAPS)
    if not disk.exists(path):
        return 0
    body = files.read_checked(disk, path)
    if body is None:
        return EVERYWHERE
    try:
        return msgspec.json.decode(body, type=int)
    except msgspec.MsgspecError:
        return EVERYWHERE


def write_gaps(disk: Disk, directory: str, end_offset: int) -> None:
    """Blocks: durable when it returns."""
    files.write_durably(disk, files.join(directory, files.GAPS), msgspec.json.encode(end_offset))
