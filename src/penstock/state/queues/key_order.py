"""Order by key: one record of each key at a time, the others wait in a FIFO queue behind it.

A member that wants several records of a key at a time gets the head and its followers at once.

The queue of a key is a single number while only its head is there, and an array from the second
offset on: most keys never have more. Keys are 64-bit hashes; two keys with the same hash wait for
each other, which costs time and never order.

Owns the queues, and nothing of what happens to a head: its owner calls `leave` when the record is
settled, and gets the next head.
"""

from array import array


class KeyQueues:
    __slots__ = ("_count", "_queues")

    def __init__(self) -> None:
        self._queues: dict[int, int | array[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Number of queued offsets, heads included."""
        return self._count

    def join(self, key: int, offset: int) -> bool:
        """Adds an offset to its key's queue; True if it is the head."""
        queue = self._queues.get(key)
        self._count += 1
        if queue is None:
            self._queues[key] = offset
            return True
        if isinstance(queue, int):
            queue = self._queues[key] = array("q", (queue,))
        # Usually the highest offset; only delayed records come later than their offset says.
        queue.append(offset)
        return False

    def is_head(self, key: int, offset: int) -> bool:
        queue = self._queues.get(key)
        return queue is not None and (queue if isinstance(queue, int) else queue[0]) == offset

    def followers(self, key: int, count: int) -> "array[int]":
        """Offsets behind the head of a key, at most `count`."""
        queue = self._queues.get(key)
        return array("q") if queue is None or isinstance(queue, int) else queue[1 : count + 1]

    def leave(self, key: int, offset: int) -> int | None:
        """Removes an offset; returns the new head of its key, if it changed."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        if isinstance(queue, int):
            if queue == offset:
                del self._queues[key]
                self._count -= 1
            return None
        try:
            at = queue.index(offset)
        except ValueError:
            return None
        del queue[at]
        self._count -= 1
        head = queue[0]
        if len(queue) == 1:
            self._queues[key] = head
        return head if at == 0 else None
