"""Checker of exactly-once copies, from the view of read_committed consumers.

Each copied record names its input record and its transaction. Copiers report the outcome of their
transactions: committed, aborted or unknown; an unknown one must be one of the two. Violations
(RELIABILITY, 1.3):

- inconsistent-offsets: two records at one offset;
- aborted-read: a consumer reads a record of an aborted transaction;
- precommitted-read: a consumer reads a record before its commit was requested;
- duplicate: a consumer reads two copies of one input record;
- torn: only a part of a transaction is visible, or nothing of a committed one;
- lost-write: an input record has no copy at the end;
- disorder: copies of one input partition are out of order in an output partition.
"""

from dataclasses import dataclass, field

from simulation.checkers.context import CheckerContext

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """Content of a copied record: its transaction and its source."""

    txn: str
    topic: str
    index: int
    offset: int

    def encode(self) -> bytes:
        return f"{self.txn} {self.topic} {self.index} {self.offset}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "Copy":
        txn, topic, index, offset = value.decode().split(" ")
        return cls(txn, topic, int(index), int(offset))

    @property
    def source(self) -> tuple[str, int, int]:
        return self.topic, self.index, self.offset


@dataclass(slots=True)
class Txn:
    """Transaction as its copier knows it."""

    name: str
    copies: dict[tuple[Place, Copy], None] = field(default_factory=dict)
    """Acknowledged copies."""
    is_commit_asked: bool = False
    is_committed: bool = False
    is_aborted: bool = False


@dataclass(slots=True)
class CopyChecker:
    """All transactions of a run, and their visible records."""

    world: CheckerContext
    txns: dict[str, Txn] = field(default_factory=dict)
    seen: dict[tuple[Place, int], Copy] = field(default_factory=dict)
    sources: dict[tuple[str, int, int], tuple[Place, int]] = field(default_factory=dict)

    # -- reports of copiers -----------------------------------------------------------------

    def began(self, name: str) -> Txn:
        assert name not in self.txns
        txn = self.txns[name] = Txn(name)
        return txn

    def committed(self, txn: Txn) -> None:
        txn.is_committed = True

    def aborted(self, txn: Txn) -> None:
        """Marks a transaction as certainly aborted: no consumer may ever read its records."""
        txn.is_aborted = True
        for where, copy in self.seen.items():
            if copy.txn == txn.name:
                self._violate("aborted-read", f"{copy} was seen at {where}, then aborted")

    # -- reports of consumers ---------------------------------------------------------------

    def note_read(self, place: Place, offset: int, value: bytes) -> None:
        """Checks a record read by a read_committed consumer."""
        copy = Copy.decode(value)
        known = self.seen.setdefault((place, offset), copy)
        if known != copy:
            self._violate("inconsistent-offsets", f"{known} and {copy} at {place} {offset}")
        txn = self.txns.get(copy.txn)
        if txn is None:
            self._violate("invented", f"{copy} at {place} {offset}")
        elif txn.is_aborted:
            self._violate("aborted-read", f"{copy} at {place} {offset}")
        elif not txn.is_commit_asked:
            self._violate("precommitted-read", f"{copy} at {place} {offset}")
        first = self.sources.setdefault(copy.source, (place, offset))
        if first != (place, offset):
            self._violate("duplicate", f"{copy} at {first} and at {place} {offset}")

    # -- final check ------------------------------------------------------------------------

    def check(self, final: dict[Place, list[tuple[int, bytes]]], ends: dict[Place, int]) -> None:
        """Checks all committed records (`final`) against the input partitions' end offsets."""
        for place, rows in final.items():
            self._check_order(place, rows)
            for offset, value in rows:
                self.note_read(place, offset, value)
        present = {(place, offset) for place, rows in final.items() for offset, _ in rows}
        for (place, offset), copy in self.seen.items():
            if (place, offset) not in present:
                self._violate("lost-write", f"{copy} was seen at {place} {offset} and is gone")
        self._check_whole(final)
        for (topic, index), end in ends.items():
            for offset in range(end):
                if (topic, index, offset) not in self.sources:
                    self._violate("lost-write", f"{topic}-{index} {offset} was never copied")

    def _check_order(self, place: Place, rows: list[tuple[int, bytes]]) -> None:
        last: dict[Place, int] = {}
        for _, value in rows:
            copy = Copy.decode(value)
            source = (copy.topic, copy.index)
            if copy.offset <= last.get(source, -1):
                self._violate("disorder", f"{copy} after {last[source]} in {place}")
            last[source] = copy.offset

    def _check_whole(self, final: dict[Place, list[tuple[int, bytes]]]) -> None:
        visible: dict[str, int] = {}
        found = {
            (place, Copy.decode(value)): offset
            for place, rows in final.items()
            for offset, value in rows
        }
        for _, copy in found:
            visible[copy.txn] = visible.get(copy.txn, 0) + 1
        for txn in self.txns.values():
            missing = [copy for copy in txn.copies if copy not in found]
            if missing and (txn.is_committed or visible.get(txn.name)):
                self._violate("torn", f"{txn.name} is seen, but not {missing[0]}")

    def _violate(self, name: str, text: str) -> None:
        self.world.violate(name, text)
