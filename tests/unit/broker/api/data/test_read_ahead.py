"""Read-ahead decrypts the next range for sequential readers only."""

import asyncio
from collections.abc import Iterator

import pytest

from penstock.broker.api.data import read_ahead
from penstock.broker.api.data.read_ahead import KEPT_SECONDS, ReadAhead
from penstock.log import files
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.read_span import ReadSpan
from simulation.loop import SimLoop, run
from tests.run_with import run_with
from tests.unit.log.building import (
    NOW_MS,
    Mode,
    disk_of,
    fill,
    make_disk,
    make_keyring,
    open_log,
)

MIB = 1 << 20
VALUE = b"v" * 300_000
"""Batches of which three fit into a megabyte."""


@pytest.fixture(autouse=True)
def _encrypted() -> Iterator[None]:
    Mode.keyring = make_keyring()
    yield
    Mode.keyring = None


@pytest.fixture
def log() -> Log:
    made = open_log(make_disk(), LogConfig(segment_bytes=100 * MIB))
    fill(made, 12, value=VALUE)
    return made


def span_at(log: Log, offset: int, bytes_max: int = MIB, limit: int | None = None) -> ReadSpan:
    span = log.locate(offset, bytes_max, log.end_offset if limit is None else limit)
    assert span is not None
    return span


def follow(ahead: ReadAhead, span: ReadSpan) -> None:
    ahead.follow(span, span.end)
    ahead.sent()


async def opened() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@run_with(run)
async def test_next_range_is_decrypted_before_it_is_requested(loop: SimLoop, *, log: Log) -> None:
    ahead = ReadAhead()
    for offset in (0, 3, 6):
        follow(ahead, span_at(log, offset))
        await opened()
        following = span_at(log, offset + 3)
        found = ahead.take(following)
        assert found is not None
        assert found.end == following.end
        assert bytes(found.content) == following.read()
        assert ahead.bytes_held == 0
        assert ahead.take(following) is None, "it is given once"


@run_with(run)
async def test_read_ahead_starts_after_the_previous_range_was_sent(
    loop: SimLoop, *, log: Log
) -> None:
    ahead = ReadAhead()
    first = span_at(log, 0)
    ahead.follow(first, first.end)
    await opened()
    assert ahead.take(span_at(log, 3)) is None, "who comes too early opens it itself"
    assert ahead.bytes_held == 0
    ahead.sent()
    await opened()
    assert ahead.take(span_at(log, 3)) is None, "and no other reader does any more"


@run_with(run)
async def test_range_beyond_the_read_limit_is_not_returned(loop: SimLoop, *, log: Log) -> None:
    ahead = ReadAhead()
    follow(ahead, span_at(log, 0))
    await opened()
    assert ahead.take(span_at(log, 3, limit=5)) is None


@run_with(run)
async def test_truncated_range_is_not_returned(loop: SimLoop, *, log: Log) -> None:
    ahead = ReadAhead()
    follow(ahead, span_at(log, 0))
    await opened()
    following = span_at(log, 3)
    log.truncate_to(5, NOW_MS)
    assert ahead.take(following) is None


@run_with(run)
async def test_read_ahead_is_limited_in_bytes_and_time(
    loop: SimLoop, *, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "BYTES_MAX", 2 * MIB)
    ahead = ReadAhead()
    for offset in (0, 3, 6):
        follow(ahead, span_at(log, offset))
    await opened()
    assert MIB < ahead.bytes_held <= 2 * MIB
    assert ahead.take(span_at(log, 9)) is None, "it exceeded the limit"
    await asyncio.sleep(3 * KEPT_SECONDS)
    assert ahead.bytes_held == 0
    assert ahead.take(span_at(log, 3)) is None


@run_with(run)
async def test_small_and_very_large_reads_are_not_read_ahead(loop: SimLoop, *, log: Log) -> None:
    ahead = ReadAhead()
    small = span_at(log, 0)
    ahead.follow(small, small.position + 1000)
    ahead.follow(span_at(log, 0, 100 * MIB), log.segments.active.size // 2)
    last = span_at(log, 9)
    ahead.follow(last, last.end)
    assert ahead.bytes_held == 0


@run_with(run)
async def test_damaged_range_is_left_to_the_reader(loop: SimLoop, *, log: Log) -> None:
    ahead = ReadAhead()
    first, following = span_at(log, 0), span_at(log, 3)
    path = log.segments.active.path
    disk_of(log).flip_bit(path + files.LOG, 8 * (following.position + 1000))
    follow(ahead, first)
    await opened()
    assert ahead.bytes_held == 0
    assert ahead.take(following) is None
