"""What has happened in the queues of this node, counted by what was kept of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.queues.state import Archived, Buried, Finished, Leased, Op, Released, Returned


@dataclass(slots=True)
class QueueCounts:
    """Records, since the node started."""

    delivered: int = 0
    finished: int = 0
    released: int = 0
    given_up: int = 0
    buried: int = 0
    """Batches of dead letters."""

    def note(self, ops: Iterable[Op]) -> None:
        for op in ops:
            match op:
                case Leased():
                    self.delivered += sum(lease.last - lease.first + 1 for lease in op.leases)
                case Returned():
                    self.delivered -= op.last - op.first + 1
                case Finished():
                    self.finished += op.last - op.first + 1
                case Released():
                    self.released += op.last - op.first + 1
                case Archived():
                    self.given_up += 1
                case Buried():
                    self.buried += 1
