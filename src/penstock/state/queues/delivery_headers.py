"""Delivery headers: options of a record, in plain headers that any Kafka client can set.

    penstock-delay-ms     not before so many milliseconds after the record was sent
    penstock-deliver-at   not before this time, in milliseconds since the epoch
    penstock-priority     0 (the default) to 9, which goes first
    penstock-expires-at   not after this time
    penstock-ttl-ms       not after so many milliseconds after the record was sent
    penstock-dedup-id     the same id again within the window is not delivered; where the topic
                          says so (`dedups_by_key`), only if the key is the same, too

It was sent when its timestamp says, unless the leader knows better: clocks of publishers are their
own (`WriteTimes`, ADR 35). Values are decimal digits in ASCII. A value that is none is ignored, and
counted: a record is never lost for a header. Most batches have no headers at all; they arrive as
one run. Of others most say nothing but when: they arrive as a column of times. In a dead-letter
topic they are not heeded again.
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b

from penstock.state.queues.backlog import Arrival
from penstock.state.queues.dead_letter_format import TOPIC
from penstock.state.queues.deduplication import SKEW_MS, DedupWindow
from penstock.state.queues.policy import PRIORITY_MAX, Order
from penstock.wire.columns import DIGITS_MAX, Columns

DELAY_MS = "penstock-delay-ms"
DELIVER_AT = "penstock-deliver-at"
PRIORITY = "penstock-priority"
EXPIRES_AT = "penstock-expires-at"
TTL_MS = "penstock-ttl-ms"
DEDUP_ID = "penstock-dedup-id"
PREFIX = "penstock-"
TIME_MS_MAX = 1 << 53
DUE_MS_MAX = (1 << 63) - 1
_TIMES = (DELIVER_AT.encode(), DELAY_MS.encode())
_PREFIX = PREFIX.encode()
_HAS_KEY = (b"none", b"key")
"""Distinguishes a record without a key from one with an empty key."""


def key_hash(key: bytes | None, offset: int) -> int:
    """Hash of a key; each record without a key has its own."""
    if key is None:
        return ~offset
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


class WriteTimes:
    """Earliest and latest time at which a batch was appended, by the clock of its leader."""

    __slots__ = ("has_corrected", "since_ms", "until_ms")

    def __init__(self, since_ms: int, until_ms: int) -> None:
        self.since_ms = since_ms
        self.until_ms = until_ms
        self.has_corrected = False
        """True if relative times of some record count from `since_ms`: its timestamp is older."""

    def count_from(self, sent_ms: int) -> int:
        """Base of a record's relative times: its timestamp, unless it is outside of these times."""
        if sent_ms < self.since_ms - SKEW_MS:
            self.has_corrected = True
            sent_ms = self.since_ms
        return min(sent_ms, self.until_ms)


ANY_TIME = WriteTimes(-(1 << 63), (1 << 63) - 1)


class Intake:
    """Converts batches to arrivals."""

    def __init__(
        self, order: Order, dedup: DedupWindow | None = None, *, dedups_by_key: bool = False
    ) -> None:
        self._order = order
        self._dedup = dedup
        self._dedups_by_key = dedups_by_key
        self.ignored = 0
        """Number of headers with an invalid value."""
        self.has_ids = False
        """True if some record had a deduplication id."""

    def is_plain(self, columns: Columns) -> bool:
        """True if the whole batch may arrive as one run: dense, and without headers."""
        return self._is_dense(columns) and not any(columns.header_counts)

    def due_times(self, columns: Columns, written: WriteTimes = ANY_TIME) -> "array[int] | None":
        """Due time of each record, below 1: at once; None if the headers contain other options."""
        numbers = columns.header_numbers(_PREFIX, _TIMES) if self._is_dense(columns) else None
        if numbers is None:
            return None
        if any(max(column, default=0) > TIME_MS_MAX for column in numbers):
            return None
        deliver_at, delays = numbers
        if max(delays, default=-1) < 0:
            return deliver_at
        times = zip(deliver_at, delays, columns.timestamps, strict=True)
        return array(
            "q",
            (
                at if delay < 0 else max(at, _after(written.count_from(sent_ms), delay))
                for at, delay, sent_ms in times
            ),
        )

    def _is_dense(self, columns: Columns) -> bool:
        """True if the records may arrive together: without order, and none is missing."""
        header = columns.header
        return self._order is Order.NONE and header.count == header.last_offset_delta + 1

    def arrivals(self, columns: Columns, written: WriteTimes = ANY_TIME) -> Iterator[Arrival | int]:
        """One arrival per record, in order; a bare offset is a duplicate that is not delivered."""
        by_key = self._order is Order.KEY
        for at, offset in enumerate(columns.offsets):
            key = key_hash(columns.key(at), offset) if by_key else 0
            if columns.header_counts[at]:
                yield self._heed(columns, at, offset, key, written)
            else:
                yield Arrival(offset, key=key)

    def remember(self, columns: Columns) -> None:
        """Adds the ids of records that need not be delivered: later ones may repeat them."""
        for at in range(len(columns)):
            if columns.header_counts[at]:
                self._heed(columns, at, 0, 0)

    def _heed(
        self, columns: Columns, at: int, offset: int, key: int, written: WriteTimes = ANY_TIME
    ) -> Arrival | int:
        sent_ms = columns.timestamps[at]
        priority = due_ms = expires_ms = 0
        dedup_id: bytes | None = None
        for name, value in columns.headers(at):
            if not name.startswith(PREFIX):
                continue
            if name == TOPIC:
                # A copy from another queue's dead-lettering: its headers have already taken effect.
                return Arrival(offset, key=key)
            if name == DEDUP_ID:
                dedup_id = value
                continue
            number = self._number(name, value)
            if number is None:
                continue
            if name == PRIORITY:
                priority = number
            elif name == DELAY_MS:
                due_ms = max(due_ms, _after(written.count_from(sent_ms), number))
            elif name == DELIVER_AT:
                due_ms = max(due_ms, number)
            elif name == TTL_MS:
                expires_ms = _earlier(expires_ms, _after(written.count_from(sent_ms), number))
            elif name == EXPIRES_AT:
                expires_ms = _earlier(expires_ms, number)
        if dedup_id and self._dedup is not None:
            self.has_ids = True
            if self._dedup.is_repeated(self._scoped(columns, at, dedup_id), sent_ms):
                return offset
        return Arrival(offset, priority, due_ms, expires_ms, key)

    def _scoped(self, columns: Columns, at: int, dedup_id: bytes) -> bytes:
        """Id within its scope; all records without a key share one scope."""
        if not self._dedups_by_key:
            return dedup_id
        key = columns.key(at)
        scope = blake2b(key or b"", digest_size=16, person=_HAS_KEY[key is not None])
        return scope.digest() + dedup_id

    def _number(self, name: str, value: bytes | None) -> int | None:
        if value is None or not value.isdigit() or len(value) > DIGITS_MAX:
            if name in (PRIORITY, DELAY_MS, DELIVER_AT, EXPIRES_AT, TTL_MS):
                self.ignored += 1
            return None
        number = int(value)
        if number > (PRIORITY_MAX if name == PRIORITY else TIME_MS_MAX):
            self.ignored += 1
            return None
        return number


def _after(sent_ms: int, wait_ms: int) -> int:
    """Later time, limited: a record may claim any timestamp."""
    return min(sent_ms + wait_ms, DUE_MS_MAX)


def _earlier(one: int, other: int) -> int:
    """Earlier of two times; 0 means none."""
    return min(one, other) if one else other
