"""Leader epochs of a log: at which offset each began (KIP-101, KIP-279, KIP-320).

A follower that diverged asks the leader where its epoch ended and cuts there. The list is written
durably before the first batch of a new epoch is appended; it is cut with the log at both ends.
Epochs rise strictly, start offsets never fall: an epoch in which nothing was appended is replaced
by the next one.
"""

from bisect import bisect_right

import msgspec

from penstock.base.ports import Disk
from penstock.log import files

UNDEFINED = -1


class Epochs:
    __slots__ = ("epochs", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []

    @property
    def latest(self) -> int:
        return self.epochs[-1] if self.epochs else UNDEFINED

    def begin(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` begins at `start_offset`; False when that is nothing new."""
        if epoch <= self.latest:
            assert epoch == self.latest, f"epoch {epoch} after {self.latest}"
            return False
        while self.starts and self.starts[-1] >= start_offset:
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start_offset)
        return True

    def end(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The last epoch at or below `epoch` and the offset after its last record.

        (-1, -1) when this log cannot know: the epoch is newer than any it has seen.
        """
        if epoch == UNDEFINED:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, end_offset
        at = bisect_right(self.epochs, epoch)
        if at == len(self.epochs):
            return UNDEFINED, UNDEFINED
        return (self.epochs[at - 1] if at else epoch), self.starts[at]

    def of(self, offset: int) -> int:
        """The epoch of the record at `offset`."""
        at = bisect_right(self.starts, offset)
        return self.epochs[at - 1] if at else UNDEFINED

    def truncate_end(self, end_offset: int) -> bool:
        """Forgets the epochs that began at or after `end_offset`."""
        changed = False
        while self.starts and self.starts[-1] >= end_offset:
            self.epochs.pop()
            self.starts.pop()
            changed = True
        return changed

    def truncate_start(self, start_offset: int) -> bool:
        """Forgets the epochs that ended at or before `start_offset`; the one there starts there."""
        at = bisect_right(self.starts, start_offset) - 1
        if at < 0 or (at == 0 and self.starts[0] == start_offset):
            return False
        del self.epochs[:at]
        del self.starts[:at]
        self.starts[0] = start_offset
        return True

    def copy(self) -> "Epochs":
        twin = Epochs()
        twin.epochs, twin.starts = self.epochs.copy(), self.starts.copy()
        return twin

    def encode(self) -> bytes:
        return msgspec.json.encode(list(zip(self.epochs, self.starts, strict=True)))


def read(disk: Disk, directory: str) -> Epochs | None:
    """The epochs as written, or None when the file is missing or in doubt."""
    body = files.read_checked(disk, files.join(directory, files.LEADER_EPOCHS))
    if body is None:
        return None
    try:
        pairs = msgspec.json.decode(body, type=list[tuple[int, int]])
    except msgspec.MsgspecError:
        return None
    found = Epochs()
    for epoch, start in pairs:
        if epoch <= found.latest or (found.starts and start < found.starts[-1]):
            return None
        found.epochs.append(epoch)
        found.starts.append(start)
    return found
