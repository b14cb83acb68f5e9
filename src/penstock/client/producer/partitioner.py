"""Default partitioner, compatible with the Java client.

A record with a key goes to murmur2(key) modulo the number of partitions, so that all Kafka clients
send a key to the same partition. Records without key stick to one partition until its batch is
full (KIP-480), which makes fewer and larger batches than a round robin.
"""

from penstock.base.ports import Random

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """Current partition of a topic for records without key."""

    __slots__ = ("_candidates", "_random", "partition")

    def __init__(self, random: Random, candidates: list[int]) -> None:
        self._random = random
        self._candidates = candidates
        self.partition = -1
        self.move()

    def set_candidates(self, candidates: list[int]) -> None:
        """Sets the partitions to choose from: those that have a leader."""
        self._candidates = candidates
        if self.partition not in candidates:
            self.move()

    def move(self) -> None:
        """Chooses another partition at random, when a new batch begins."""
        others = [p for p in self._candidates if p != self.partition] or self._candidates
        index = min(int(self._random.uniform(0, len(others))), len(others) - 1)
        self.partition = others[index]
