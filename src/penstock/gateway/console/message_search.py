"""Search for messages by their key, value or headers, within a budget.

The search reads windows of `WINDOW` offsets, from the newest backward or from a given position
forward, matches them in a worker, and reports progress after each. It compares the decompressed
bytes and does not decode them by schemas. Text matches ignoring the case of ASCII characters;
patterns run on RE2, in linear time.

Bounds: a budget of records, `BYTES_MAX` and `SECONDS_MAX`; `SEARCHES_MAX` at a time per node,
`EACH_MAX` per user, or per address of anonymous users.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import re2  # type: ignore[import-untyped]

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_pool import FairPool
from penstock.client.consumer.fetched import FetchedRecord
from penstock.gateway.console.message_pages import PageOffsets
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.log_reader import Portion, size_of
from penstock.gateway.core.permissions import Principal

WINDOW = 2_000
CHUNK_BYTES = 1 << 20
BYTES_MAX = 256 << 20
DECOMPRESSED_BYTES = 16 << 20
FOUND_BYTES_MAX = 64 << 20
"""Limit for the matches of one window."""
SECONDS_MAX = 30.0
SEARCHES_MAX, EACH_MAX = 8, 2
PATTERN_CHARS_MAX = 500
PATTERN_BYTES_MAX = 1 << 20
KEY, VALUE, HEADERS = "key", "value", "headers"
PLACES = (KEY, VALUE, HEADERS)

MessageMatcher = Callable[[FetchedRecord], bool]


@dataclass(frozen=True, slots=True)
class SearchCriteria:
    matcher: MessageMatcher
    records_max: int
    found_max: int
    newest_first: bool


@dataclass(slots=True)
class SearchProgress:
    """Progress of a search."""

    total: int
    """Number of offsets to search."""
    scanned: int = 0
    size_bytes: int = 0
    found: list[FetchedRecord] = field(default_factory=list)
    """Matches since the last report."""
    found_count: int = 0
    ended: str = ""
    """Reason of the end: `all`, `found`, `records`, `bytes` or `time`; empty while it runs."""


def matcher_of(text: str, places: list[str], *, is_pattern: bool) -> MessageMatcher:
    """Returns the matcher for a text or pattern; refuses invalid ones."""
    if not text or len(text) > PATTERN_CHARS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"invalid search text: must have 1 to {PATTERN_CHARS_MAX} characters, has {len(text)}",
        )
    if not places or any(place not in PLACES for place in places):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"nothing to search in: choose from {', '.join(PLACES)}"
        )
    test = _pattern(text) if is_pattern else _text(text)

    def matches(message: FetchedRecord) -> bool:
        return (
            (KEY in places and message.key is not None and test(message.key))
            or (VALUE in places and message.value is not None and test(message.value))
            or (HEADERS in places and any(_in_header(test, *pair) for pair in message.headers))
        )

    return matches


def _in_header(test: Callable[[bytes], bool], name: str, value: bytes | None) -> bool:
    return test(name.encode()) or (value is not None and test(value))


def _text(text: str) -> Callable[[bytes], bool]:
    wanted = text.encode().lower()
    return lambda data: wanted in data.lower()


def _pattern(text: str) -> Callable[[bytes], bool]:
    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(text.encode(), options=options)
    except re2.error as error:
        raise Refused(ErrorCode.INVALID_REQUEST, f"invalid pattern: {error}") from None
    return lambda data: compiled.search(data) is not None


class Searches:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._places = FairPool(SEARCHES_MAX, EACH_MAX)

    async def run(
        self,
        principal: Principal,
        topic: TopicImage,
        starts: PageOffsets,
        ends: PageOffsets,
        wanted: SearchCriteria,
    ) -> AsyncIterator[SearchProgress]:
        """Yields progress after each window, until the search has `ended`."""
        if not self._places.take(principal.holder):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"too many running searches: at most {EACH_MAX} per user and {SEARCHES_MAX} per "
                "node; wait for one to end",
            )
        try:
            progress = SearchProgress(sum(ends[at] - start for at, start in starts.items()))
            deadline_s = asyncio.get_running_loop().time() + SECONDS_MAX
            windows = _windows(starts, ends, newest_first=wanted.newest_first)
            for left, low, high in windows:
                await self._scan(principal, topic, low, high, wanted, progress)
                progress.ended = _end_of(progress, wanted, deadline_s) or ("" if left else "all")
                yield progress
                progress.found = []
                if progress.ended:
                    return
            progress.ended = "all"  # There was nothing to search.
            yield progress
        finally:
            self._places.give(principal.holder)

    async def _scan(
        self,
        principal: Principal,
        topic: TopicImage,
        low: PageOffsets,
        high: PageOffsets,
        wanted: SearchCriteria,
        progress: SearchProgress,
    ) -> None:
        """Searches one window."""
        positions = {at: start for at, start in low.items() if start < high[at]}
        found: list[FetchedRecord] = []
        while positions and progress.size_bytes < BYTES_MAX and _size(found) < FOUND_BYTES_MAX:
            for portion in await self._gateway.log.portions(
                principal, topic, positions, partition_bytes=CHUNK_BYTES
            ):
                at = portion.partition
                if not portion.error_code and not portion.is_empty:
                    seen = await self._gateway.ctx.workers.run(
                        _match, portion, high[at], wanted.matcher
                    )
                    progress.scanned += seen.scanned
                    progress.size_bytes += seen.size
                    found += seen.matched
                    positions[at] = seen.next_offset
                else:
                    positions[at] = portion.fetched.next_offset
                if portion.error_code or portion.is_empty or positions[at] >= high[at]:
                    del positions[at]
        sign = -1 if wanted.newest_first else 1
        found.sort(key=lambda one: (sign * one.timestamp, one.partition, sign * one.offset))
        progress.found = found[: wanted.found_max - progress.found_count]
        progress.found_count += len(progress.found)


def _size(messages: list[FetchedRecord]) -> int:
    return sum(map(size_of, messages))


class _Scanned(NamedTuple):
    """Result of scanning a portion."""

    scanned: int
    size: int
    next_offset: int
    matched: list[FetchedRecord]


def _match(portion: Portion, end: int, matcher: MessageMatcher) -> _Scanned:
    """Scans a portion in a worker, up to `DECOMPRESSED_BYTES`: a portion may decompress to a
    thousand times its size."""
    scanned = size = 0
    found: list[FetchedRecord] = []
    for message in portion.fetched.messages():
        if message.offset >= end:
            break
        scanned += 1
        size += size_of(message)
        if matcher(message):
            found.append(message)
        if size > DECOMPRESSED_BYTES:
            return _Scanned(scanned, size, message.offset + 1, found)
    return _Scanned(scanned, size, portion.fetched.next_offset, found)


def _end_of(progress: SearchProgress, wanted: SearchCriteria, deadline_s: float) -> str:
    if progress.found_count >= wanted.found_max:
        return "found"
    if progress.scanned >= wanted.records_max:
        return "records"
    if progress.size_bytes >= BYTES_MAX:
        return "bytes"
    return "time" if asyncio.get_running_loop().time() >= deadline_s else ""


def _windows(
    starts: PageOffsets, ends: PageOffsets, *, newest_first: bool
) -> Iterator[tuple[int, PageOffsets, PageOffsets]]:
    """Yields the windows in order, each with the number of those that follow."""
    steps = max((ends[at] - start + WINDOW - 1) // WINDOW for at, start in starts.items())
    for step in range(steps):
        if newest_first:
            high = {at: max(start, ends[at] - step * WINDOW) for at, start in starts.items()}
            low = {at: max(start, high[at] - WINDOW) for at, start in starts.items()}
        else:
            low = {at: min(ends[at], start + step * WINDOW) for at, start in starts.items()}
            high = {at: min(ends[at], low[at] + WINDOW) for at in starts}
        yield steps - step - 1, low, high
