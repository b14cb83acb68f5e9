"""Reads the records at given offsets of one partition, in log order.

Seeks over ranges that are not wanted. Offsets that the log no longer has, control records and
records of aborted transactions are skipped.

Bounds: one fetch, decoded in pieces of `PIECE_RECORDS` records or `PIECE_BYTES`, but at least one
batch. With workers, the event loop is free between two pieces.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, Fetched, FetchedRecord, process_fetched
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
    """Yields the committed records at these offsets."""
    return select_at(cluster, where, wanted, _identity)


async def select_at(
    cluster: Cluster,
    where: TopicPartition,
    wanted: IntervalSet,
    pick: Callable[[FetchedRecord], T | None],
) -> AsyncGenerator[T, None]:
    """Works like `read_at`, but yields the results of `pick` except None; workers call `pick`."""
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
                    for one in await process_fetched(cluster.workers, fetched, pieces.next):
                        yield one
            position = consumer.positions[where]
            while runs[at][1] < position:
                at += 1
                if at == len(runs):
                    return
            if runs[at][0] > position:
                consumer.seek(where, runs[at][0])


class _Pieces(Generic[T]):
    """Results of `pick` for a fetch, piece by piece. Used by one thread at a time."""

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


def _identity(message: FetchedRecord) -> FetchedRecord:
    return message
