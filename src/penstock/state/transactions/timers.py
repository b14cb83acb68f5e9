"""Timeouts of open transactions.

Invariant: `floor_ms` is never later than the earliest deadline, and may be earlier. Nearly every
transaction ends long before its deadline, so starting and ending one costs a dict write each; the
true minimum is searched for when the floor is reached.
"""


class Timeouts:
    """Deadlines by transactional id."""

    __slots__ = ("at_ms", "floor_ms")

    def __init__(self) -> None:
        self.at_ms: dict[str, int] = {}
        self.floor_ms: int | None = None

    def set(self, transactional_id: str, at_ms: int | None) -> None:
        """Moves the deadline, or removes it."""
        if at_ms is None:
            self.at_ms.pop(transactional_id, None)
            return
        self.at_ms[transactional_id] = at_ms
        if self.floor_ms is None or at_ms < self.floor_ms:
            self.floor_ms = at_ms

    def due(self, now_ms: int, count_max: int) -> list[str]:
        """Transactions whose deadline has passed, earliest first. They stay until moved."""
        if self.floor_ms is None or self.floor_ms > now_ms:
            return []
        found = sorted((at_ms, name) for name, at_ms in self.at_ms.items() if at_ms <= now_ms)
        if not found:
            self.floor_ms = min(self.at_ms.values(), default=None)
        return [name for _, name in found[:count_max]]
