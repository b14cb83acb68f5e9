"""Default partitioner, compatible with the Java client.

A record with a key goes to murmur2(key) modulo the number of partitions, so that all Kafka clients
send a key to the same partition. Records without key stick to one partition until its batch is
full (KIP-480), which makes fewer and larger batches than a round robin.
"""

from penstock.base.ports import Random
from penstock.wire.rows import murmur2


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
