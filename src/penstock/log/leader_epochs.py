"""Leader epochs of a log, each with its start offset (KIP-101, KIP-279, KIP-320).

A diverged follower asks the leader for the end offset of its epoch and truncates there. The list is
written durably before the first batch of a new epoch is appended, and truncated with the log at
both ends. Epochs rise strictly, start offsets never fall: an epoch without a batch is replaced by
the next one.
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
        """Adds `epoch`, which begins at `start_offset`; False when it is already the latest."""
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
        """Last epoch at or below `epoch`, and the offset after its last record.

        (-1, -1) when `epoch` is newer than any in this log.
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
        """Epoch of the record at `offset`."""
        at = bisect_right(self.starts, offset)
        return self.epochs[at - 1] if at else UNDEFINED

    def truncate_end(self, end_offset: int) -> bool:
        """Removes the epochs that began at or after `end_offset`; True if there were any."""
        changed = False
        while self.starts and self.starts[-1] >= end_offset:
            self.epochs.pop()
            self.starts.pop()
            changed = True
        return changed

    def truncate_start(self, start_offset: int) -> bool:
        """Removes the epochs that ended at or before `start_offset`; the one that holds it starts
        there afterwards. True if that changed anything."""
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
    """Reads the epochs; None when the file is missing or inconsistent."""
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
