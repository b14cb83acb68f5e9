"""Order by key: one record of each key at a time, the others wait in a FIFO queue behind it.

A member that wants several records of a key at a time gets the head and its followers at once.

The queue of a key is a single number while only its head is there, and an array from the second
offset on: most keys never have more. Keys are 64-bit hashes; two keys with the same hash wait for
each other, which costs time and never order.

Owns the queues, and nothing of what happens to a head: its owner calls `leave` when the record is
settled, and gets the next head.
"""

from array import array


class Lines:
    __slots__ = ("_count", "_lines")

    def __init__(self) -> None:
        self._lines: dict[int, int | array[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Number of queued offsets, heads included."""
        return self._count

    def join(self, key: int, offset: int) -> bool:
        """Adds an offset to its key's queue; True if it is the head."""
        line = self._lines.get(key)
        self._count += 1
        if line is None:
            self._lines[key] = offset
            return True
        if isinstance(line, int):
            line = self._lines[key] = array("q", (line,))
        # Usually the highest offset; only delayed records come later than their offset says.
        line.append(offset)
        return False

    def is_head(self, key: int, offset: int) -> bool:
        line = self._lines.get(key)
        return line is not None and (line if isinstance(line, int) else line[0]) == offset

    def followers(self, key: int, count: int) -> "array[int]":
        """Offsets behind the head of a key, at most `count`."""
        line = self._lines.get(key)
        return array("q") if line is None or isinstance(line, int) else line[1 : count + 1]

    def leave(self, key: int, offset: int) -> int | None:
        """Removes an offset; returns the new head of its key, if it changed."""
        line = self._lines.get(key)
        if line is None:
            return None
        if isinstance(line, int):
            if line == offset:
                del self._lines[key]
                self._count -= 1
            return None
        try:
            at = line.index(offset)
        except ValueError:
            return None
        del line[at]
        self._count -= 1
        head = line[0]
        if len(line) == 1:
            self._lines[key] = head
        return head if at == 0 else None
