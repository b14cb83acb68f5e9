"""Key salting: spreads hot keys over several partitions, so that one key cannot fill one partition.

Two ways, both pure:

- `Salting` appends a salt to the key, so its messages hash to several partitions, with any client
  and in compacted topics too. Every key of the topic gets a salt: hot keys any of `buckets`, the
  others always the first. So the salt can always be removed without ambiguity. Consumers aggregate
  in two steps: each aggregates by salted key; then `merge` combines the salted keys of each key.
- `spread_hot_keys` is a partitioner for `Client(partitioner=...)`: keys are unchanged, and hot ones
  are sent to several partitions round robin. There is no salt to remove, but compaction then keeps
  several values of a key.

Either way order is per key and salt, no longer per key. `by` selects the salt: messages with the
same `by` (an order id under a hot customer) share a partition, in order, and a retried message goes
to the same partition.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from penstock.app.publish import Partitioner
from penstock.client.producer.partitioner import partition_for_key
from penstock.wire.rows import murmur2

BUCKETS_MAX: Final = 256
SEPARATOR: Final = b"#"
_SALT_BYTES: Final = 3
"""The separator and two hexadecimal digits."""

T = TypeVar("T")
Hot: TypeAlias = Collection[bytes] | Callable[[bytes], bool]
"""The hot keys, or a predicate that is True for a hot key."""


class Salting:
    """Salting of one topic's keys. All its producers and consumers must use the same."""

    def __init__(self, hot: Hot, buckets: int = 8) -> None:
        """`buckets` may grow later, and keys may become hot; both move some keys' messages."""
        _check(buckets)
        self.buckets = buckets
        self._is_hot = _predicate(hot)
        self._next_bucket = 0

    def salt(self, key: bytes, by: bytes | str | None = None) -> bytes:
        """Returns the key to publish with. Without `by`, hot keys rotate through the salts."""
        bucket = 0
        if self._is_hot(key):
            if by is None:
                bucket = self._next_bucket
                self._next_bucket = (bucket + 1) % self.buckets
            else:
                text = by.encode() if isinstance(by, str) else by
                bucket = murmur2(text) % self.buckets
        return salted(key, bucket)

    def salted_keys(self, key: bytes) -> list[bytes]:
        """All salted keys that messages of this key may have."""
        count = self.buckets if self._is_hot(key) else 1
        return [salted(key, bucket) for bucket in range(count)]

    def partitions(self, key: bytes, partition_count: int) -> list[int]:
        """The partitions that may hold messages of this key."""
        found = {partition_for_key(one, partition_count) for one in self.salted_keys(key)}
        return sorted(found)


def salted(key: bytes, bucket: int) -> bytes:
    assert 0 <= bucket < BUCKETS_MAX
    return b"%b%b%02x" % (key, SEPARATOR, bucket)


def unsalt(key: bytes) -> bytes:
    """Removes the salt from a key. Raises ValueError for a key without one."""
    salt = key[-_SALT_BYTES:]
    if len(salt) == _SALT_BYTES and salt.startswith(SEPARATOR):
        try:
            int(salt[1:].decode("ascii"), 16)
        except ValueError:
            pass
        else:
            return key[:-_SALT_BYTES]
    raise ValueError(f"key {key!r} does not end in a salt such as #00")


def merge(
    partial: Mapping[bytes, T] | Iterable[tuple[bytes, T]], combine: Callable[[T, T], T]
) -> dict[bytes, T]:
    """Combines partial results by salted key into one result per key.

    >>> merge({b"a#00": 2, b"a#01": 3, b"b#00": 1}, lambda x, y: x + y)
    {b'a': 5, b'b': 1}
    """
    whole: dict[bytes, T] = {}
    for salted_key, value in partial.items() if isinstance(partial, Mapping) else partial:
        key = unsalt(salted_key)
        whole[key] = combine(whole[key], value) if key in whole else value
    return whole


def spread_hot_keys(hot: Hot, buckets: int = 8) -> Partitioner:
    """Partitioner that rotates hot keys through `buckets` partitions; others are hashed."""
    _check(buckets)
    is_hot = _predicate(hot)
    turn = 0

    def choose(topic: str, key: bytes | None, partition_count: int) -> int | None:
        nonlocal turn
        if key is None or not is_hot(key):
            return None
        turn = (turn + 1) % buckets
        return (partition_for_key(key, partition_count) + turn) % partition_count

    return choose


def _predicate(hot: Hot) -> Callable[[bytes], bool]:
    if callable(hot):
        return hot
    keys = frozenset(hot)
    return keys.__contains__


def _check(buckets: int) -> None:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise ValueError(f"buckets={buckets}: choose 1 to {BUCKETS_MAX}")
