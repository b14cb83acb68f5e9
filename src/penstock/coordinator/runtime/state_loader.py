"""Replay of an internal partition from start to end, for a machine to apply.

Reading, checking and decoding run on workers, one chunk ahead of the loop; applying runs on the
loop in slices, so that other requests are served while a large partition loads. Control batches are
skipped: they have no meaning for a machine.
"""

import asyncio
from collections.abc import Callable, Sequence

from penstock.base.errors import Corrupt
from penstock.base.ports import Workers
from penstock.base.state_machine import Record
from penstock.log.log import Log
from penstock.log.read_span import ReadSpan
from penstock.wire.records import Column, batches, decode, is_control

APPLIED_AT_ONCE = 1_000
"""Records between two yields to the loop."""
EMPTY_READS_MAX = 100
"""Empty reads in a row that count as damage; the log may be truncated or compacted meanwhile."""


async def replay(
    log: Log,
    workers: Workers,
    chunk_bytes: int,
    until_offset: int,
    apply: Callable[[bytes, bytes | None], None],
) -> int:
    """Applies every record below `until_offset`, in order, and returns how many there were.

    Raises Corrupt, Refused or OSError where the log cannot be read.
    """
    count = 0
    following = _read_on(log, workers, chunk_bytes, log.start_offset, until_offset)
    records, offset = await following
    while records or offset < until_offset:
        ahead = asyncio.ensure_future(_read_on(log, workers, chunk_bytes, offset, until_offset))
        try:
            await _apply_all(records, apply)
            count += len(records)
            records, offset = await ahead
        finally:
            ahead.cancel()
    return count


async def _apply_all(
    records: Sequence[Record], apply: Callable[[bytes, bytes | None], None]
) -> None:
    for start in range(0, len(records), APPLIED_AT_ONCE):
        for key, value in records[start : start + APPLIED_AT_ONCE]:
            apply(key, value)
        await asyncio.sleep(0)


async def _read_on(
    log: Log, workers: Workers, chunk_bytes: int, offset: int, until_offset: int
) -> tuple[list[Record], int]:
    """Returns the records of the next chunk, and the offset after it."""
    for _ in range(EMPTY_READS_MAX):
        offset = max(offset, log.start_offset)
        if offset >= until_offset:
            return [], until_offset
        span = log.locate(offset, chunk_bytes, until_offset)
        if span is None:
            return [], until_offset
        records, following = await workers.run(_decode_all, span)
        if following > offset:
            return records, following
    raise Corrupt(f"{log.path}: nothing can be read at offset {offset}")


def _decode_all(span: ReadSpan) -> tuple[list[Record], int]:
    """Decodes a span. Blocks; runs on a worker."""
    view = memoryview(span.read())
    found: list[Record] = []
    following = -1
    for position, header in batches(view):
        following = header.next_offset
        if is_control(header.attributes):
            continue
        columns = decode(view[position:], columns=Column.KEYS | Column.VALUES)
        found += [
            (key, value)
            for key, value in zip(columns.keys(), columns.values(), strict=True)
            if key is not None
        ]
    return found, following
