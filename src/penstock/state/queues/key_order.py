"""Order by key: of each key one record at a time, the others stand in line behind it.

Who wants several of a key at a time is given the head and those right behind it, in one go.

A line is one number while only its head is there, and an array from the second one on: most keys
never have more. Keys are 64-bit hashes; two keys with one hash wait for each other, which costs
time and never order.

Owns the lines, and nothing of what happens to a head: whoever delivers it says `leave` when it is
done with, in whatever way, and is told who is next.
"""

from array import array


class Lines:
    __slots__ = ("_count", "_lines")

    def __init__(self) -> None:
        self._lines: dict[int, int | array[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many stand in lines, heads included."""
        return self._count

    def join(self, key: int, offset: int) -> bool:
        """Puts an offset in its place; True if it is the head of its line."""
        line = self._lines.get(key)
        self._count += 1
        if line is None:
            self._lines[key] = offset
            return True
        if isinstance(line, int):
            line = self._lines[key] = array("q", (line,))
        # Nearly always the last one; only what was delayed comes later than its offset says.
        line.append(offset)
        return False

    def is_head(self, key: int, offset: int) -> bool:
        line = self._lines.get(key)
        return line is not None and (line if isinstance(line, int) else line[0]) == offset

    def followers(self, key: int, count: int) -> "array[int]":
        """Those behind the head of a line, `count` at most."""
        line = self._lines.get(key)
        return array("q") if line is None or isinstance(line, int) else line[1 : count + 1]

    def leave(self, key: int, offset: int) -> int | None:
        """The offset is done with; answers the new head of the line, if that changed."""
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
