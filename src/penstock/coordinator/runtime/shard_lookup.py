"""Lookup of the internal partition that coordinates a group or a transactional id.

Kafka's rule, so that tools which compute it themselves get the same: Java's `String.hashCode`, its
sign removed, modulo the number of partitions.
"""

from functools import lru_cache

REMEMBERED_MAX = 20_000
"""Keys with a cached hash: every heartbeat looks up its group's."""


@lru_cache(maxsize=REMEMBERED_MAX)
def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, wrapping at 32 bits, signed."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def shard_of(key: str, count: int) -> int:
    value = java_hash(key)
    # The smallest integer has no positive counterpart; Kafka uses zero for it.
    return 0 if value == -(1 << 31) else abs(value) % count
