"""Reads the records at given offsets of one partition, in the order of the log.

Stretches that nobody asked for are leapt over; what the log no longer has, markers and records of
aborted transactions are left out.

Bounds: what one fetch brings, of which `PIECE_RECORDS` records or `PIECE_BYTES` are unpacked at a
time, though never less than one batch. Between two pieces a loop that has workers is free.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, Fetched, FetchedRecord, opened
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.state.queues.intervals import IntervalSet

T = TypeVar("T")

PIECE_RECORDS = 500
PIECE_BYTES = 1 << 20
_WAIT_MS = 100


def read_at(
    cluster: Cluster, where: TopicPartition, wanted: IntervalSet
) -> AsyncGenerator[FetchedRecord, None]:
    """The records at these offsets, those that are there and committed now."""
    return pick_at(cluster, where, wanted, _itself)


async def pick_at(
    cluster: Cluster,
    where: TopicPartition,
    wanted: IntervalSet,
    pick: Callable[[FetchedRecord], T | None],
) -> AsyncGenerator[T, None]:
    """As `read_at`, what `pick` makes of each; None is left out. Workers call it, if there are."""
    low = (await list_offsets(cluster, {where: EARLIEST}))[where].offset
    ends = await list_offsets(cluster, {where: LATEST}, isolation_level=READ_COMMITTED)
    runs = list(wanted.within(low, ends[where].offset - 1))
    if not runs:
        return
    config = ConsumerConfig(isolation_level=READ_COMMITTED, reset=EARLIEST, max_wait_ms=_WAIT_MS)
    at = 0
    async with Consumer(cluster, config) as consumer:
        consumer.assign({where: runs[0][0]})
        while True:
            for fetched in await consumer.fetch(_WAIT_MS):
                pieces = _Pieces(fetched, wanted, runs, pick)
                while pieces.has_more:
                    for one in await opened(cluster.workers, fetched, pieces.next):
                        yield one
            position = consumer.positions[where]
            while runs[at][1] < position:
                at += 1
                if at == len(runs):
                    return
            if runs[at][0] > position:
                consumer.seek(where, runs[at][0])


class _Pieces(Generic[T]):
    """What is picked of a fetch, piece by piece. One thread at a time has it."""

    def __init__(
        self,
        fetched: Fetched,
        wanted: IntervalSet,
        runs: list[tuple[int, int]],
        pick: Callable[[FetchedRecord], T | None],
    ) -> None:
        self.has_more = True
        self._messages = fetched.messages()
        self._wanted = wanted
        self._first, self._last = runs[0][0], runs[-1][1]
        self._pick = pick

    def next(self) -> list[T]:
        found: list[T] = []
        size = 0
        for count, message in enumerate(self._messages, 1):
            if self._first <= message.offset <= self._last and message.offset in self._wanted:
                picked = self._pick(message)
                if picked is not None:
                    found.append(picked)
            if message.offset >= self._last:
                break
            size += len(message.key or b"") + len(message.value or b"")
            if count >= PIECE_RECORDS or size >= PIECE_BYTES:
                return found
        self.has_more = False
        return found


def _itself(message: FetchedRecord) -> FetchedRecord:
    return message
