"""Expected offsets and leader epochs of batches that an earlier process wrote.

Base offset and leader epoch of a batch are outside its CRC, so that a leader can stamp them. The
rest of the directory exposes a wrong bit there: file names, indexes and the preceding batch tell
the next offset, and the leader epochs tell the epoch at that offset.

A log that was never compacted has no gaps: the next offset is known exactly. Compaction makes
gaps, and so does replication from a leader that compacts. Then the next offset is only known not
to be lower, nor beyond the end of the segment. The file `gaps` holds the offset below which a log
may have gaps; it is written durably before the first gap is made. If it is unreadable, gaps are
possible everywhere.
"""

from dataclasses import dataclass, replace

import msgspec

from penstock.base.ports import Disk
from penstock.log import files
from penstock.log.leader_epochs import UNDEFINED, Epochs
from penstock.wire.records import BatchHeader

EVERYWHERE = 2**63 - 1
"""As the end of a segment: unknown. As the end of the gaps: unlimited."""


@dataclass(frozen=True, slots=True)
class ExpectedBatches:
    """Constraints on the batches of one segment. Shared with other threads: never changed."""

    is_dense: bool
    """True if there are no gaps between the batches."""
    epochs: Epochs
    """Leader epochs at the time when the log was opened."""
    end_offset: int = EVERYWHERE
    """End offset of the batches to check."""

    def admits(self, header: BatchHeader, next_offset: int) -> bool:
        """True if this batch is possible where `next_offset` is expected."""
        offset = header.base_offset
        if offset != next_offset and (self.is_dense or offset < next_offset):
            return False
        if header.next_offset > self.end_offset:
            return False
        # By the last offset, because DeleteRecords may have moved the log start into the batch.
        epoch = self.epochs.of(header.last_offset)
        return epoch in (UNDEFINED, header.leader_epoch)

    def up_to(self, end_offset: int) -> "ExpectedBatches":
        return replace(self, end_offset=end_offset)


def read_gaps(disk: Disk, directory: str) -> int:
    """Reads the offset below which batches may have gaps between them."""
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
    """Persists that batches below `end_offset` may have gaps. Blocks: durable when it returns."""
    files.write_durably(disk, files.join(directory, files.GAPS), msgspec.json.encode(end_offset))
