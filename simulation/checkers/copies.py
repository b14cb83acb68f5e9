"""Exactly-once copies, as readers of committed records see them.

Each copied record says which input record it is a copy of and in which transaction it was made.
Copiers tell how their transactions went: every outcome is committed, aborted or unknown, and an
unknown one must be one of the two. Named promises (RELIABILITY, 1.3):

- inconsistent-offsets: two records at one place;
- aborted-read: a record of a transaction that was aborted is seen;
- precommitted-read: a record is seen before anybody asked to commit it;
- duplicate: two copies of one input record are seen;
- torn: some records of a transaction are seen and others are not, or none of a committed one;
- lost-write: an input record has no copy in the end;
- disorder: copies of one input partition are out of order in an output partition.
"""

from dataclasses import dataclass, field

from simulation.checkers.witness import Witness

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """What a copied record says about itself."""

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
    """One transaction as its copier knows it."""

    name: str
    copies: dict[tuple[Place, Copy], None] = field(default_factory=dict)
    """What was acknowledged within it."""
    is_commit_asked: bool = False
    is_committed: bool = False
    is_aborted: bool = False


@dataclass(slots=True)
class CopyChecker:
    """All transactions of a run, and what was seen of them."""

    world: Witness
    txns: dict[str, Txn] = field(default_factory=dict)
    seen: dict[tuple[Place, int], Copy] = field(default_factory=dict)
    sources: dict[tuple[str, int, int], tuple[Place, int]] = field(default_factory=dict)

    # -- what copiers tell ------------------------------------------------------------------

    def began(self, name: str) -> Txn:
        assert name not in self.txns
        txn = self.txns[name] = Txn(name)
        return txn

    def committed(self, txn: Txn) -> None:
        txn.is_committed = True

    def aborted(self, txn: Txn) -> None:
        """It certainly was, and nobody may see any of it, now or later."""
        txn.is_aborted = True
        for where, copy in self.seen.items():
            if copy.txn == txn.name:
                self._violate("aborted-read", f"{copy} was seen at {where}, then aborted")

    # -- what readers tell ------------------------------------------------------------------

    def saw(self, place: Place, offset: int, value: bytes) -> None:
        """A reader of committed records was given this."""
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

    # -- in the end -------------------------------------------------------------------------

    def check(self, final: dict[Place, list[tuple[int, bytes]]], ends: dict[Place, int]) -> None:
        """`final` is all that is committed, `ends` where each input partition ends."""
        for place, rows in final.items():
            self._check_order(place, rows)
            for offset, value in rows:
                self.saw(place, offset, value)
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
