"""Hot keys, spread over several partitions: one key with most of the traffic otherwise fills one.

Two ways, both pure:

- `Salting` writes the key with a salt behind it, so its messages fall into several partitions by
  themselves, with any client and in compacted topics as well. Every key of the topic gets one, the
  hot ones any of `buckets`, the others always the first; so a salt can always be told from a key.
  Consumers aggregate in two steps: each works on the salted keys that it is given, as if they were
  keys; then `merge` brings together what belongs to one key.
- `spread_hot_keys` is a partitioner for `Client(partitioner=...)`: keys stay as they are, and hot
  ones are sent to several partitions in turn. Nothing to undo, but compaction would then keep
  several values of a key.

Either way order is kept per key and salt, no longer per key. `by` chooses the salt: messages with
the same `by` (an order id under a hot customer) stay together, in order, and a message that is
sent again goes to the same place.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from penstock.app.publish import Partitioner
from penstock.client.producer.partitioner import murmur2, partition_for_key

BUCKETS_MAX: Final = 256
SEPARATOR: Final = b"#"
_SALT_BYTES: Final = 3
"""The separator and two hexadecimal digits."""

T = TypeVar("T")
Hot: TypeAlias = Collection[bytes] | Callable[[bytes], bool]
"""The hot keys, or whether a key is one."""


class Salting:
    """How the keys of one topic are salted. All its producers and consumers use the same."""

    def __init__(self, hot: Hot, buckets: int = 8) -> None:
        """`buckets` may grow later, and keys may become hot; each moves some messages."""
        _check(buckets)
        self.buckets = buckets
        self._is_hot = _predicate(hot)
        self._turn = 0

    def salt(self, key: bytes, by: bytes | str | None = None) -> bytes:
        """The key to publish with. Without `by` the salts of hot keys take turns."""
        bucket = 0
        if self._is_hot(key):
            if by is None:
                bucket, self._turn = self._turn, (self._turn + 1) % self.buckets
            else:
                text = by.encode() if isinstance(by, str) else by
                bucket = murmur2(text) % self.buckets
        return salted(key, bucket)

    def salted_keys(self, key: bytes) -> list[bytes]:
        """Every key under which messages of this one may be."""
        count = self.buckets if self._is_hot(key) else 1
        return [salted(key, bucket) for bucket in range(count)]

    def partitions(self, key: bytes, partition_count: int) -> list[int]:
        """The partitions where messages of this key may be."""
        found = {partition_for_key(one, partition_count) for one in self.salted_keys(key)}
        return sorted(found)


def salted(key: bytes, bucket: int) -> bytes:
    assert 0 <= bucket < BUCKETS_MAX
    return b"%b%b%02x" % (key, SEPARATOR, bucket)


def unsalt(key: bytes) -> bytes:
    """The key without its salt. Raises ValueError for one that has none."""
    salt = key[-_SALT_BYTES:]
    if len(salt) == _SALT_BYTES and salt.startswith(SEPARATOR):
        try:
            int(salt[1:].decode("ascii"), 16)
        except ValueError:
            pass
        else:
            return key[:-_SALT_BYTES]
    raise ValueError(f"{key!r} has no salt")


def merge(
    partial: Mapping[bytes, T] | Iterable[tuple[bytes, T]], combine: Callable[[T, T], T]
) -> dict[bytes, T]:
    """Brings what was aggregated by salted key together by key.

    >>> merge({b"a#00": 2, b"a#01": 3, b"b#00": 1}, lambda x, y: x + y)
    {b'a': 5, b'b': 1}
    """
    whole: dict[bytes, T] = {}
    for salted_key, value in partial.items() if isinstance(partial, Mapping) else partial:
        key = unsalt(salted_key)
        whole[key] = combine(whole[key], value) if key in whole else value
    return whole


def spread_hot_keys(hot: Hot, buckets: int = 8) -> Partitioner:
    """A partitioner that sends hot keys to `buckets` partitions in turn, the others as ever."""
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
        raise ValueError(f"{buckets} buckets: there are 1 to {BUCKETS_MAX}")
