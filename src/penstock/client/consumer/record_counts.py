"""Counts the records at given offsets: not every offset has one.

Control records take an offset each, records of aborted transactions do not count, and a compacted
log has gaps. So the range is read. Batches entirely inside it are counted by their headers, others
are decoded, in workers if there are any. Above `OFFSETS_MAX` offsets the log is not read, and the
result is the number of offsets.

Number of unread records of a group in whole topics.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import committed_offsets
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, Fetched, process_fetched
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets, partitions_of
from penstock.client.metadata import TopicPartition
from penstock.state.queues.intervals import IntervalSet
from penstock.wire.records import Column, decode, read_header


async def count_unread(cluster: Cluster, group: str, topics: Iterable[str]) -> int:
    """Counts offsets after the committed one, or all offsets of a partition without commit."""
    places = [where for topic in topics for where in await partitions_of(cluster, topic)]
    kept = await committed_offsets(cluster, group)
    starts = await list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(
        cluster, dict.fromkeys(places, LATEST), isolation_level=READ_COMMITTED
    )
    begun = {w: kept[w].offset if w in kept else starts[w].offset for w in places}
    return sum(max(0, ends[w].offset - begun[w]) for w in places)


OFFSETS_MAX = 200_000
_WAIT_MS = 100


class RecordCount(NamedTuple):
    """Number of records by partition."""

    records: dict[TopicPartition, int]
    is_exact: bool
    """False if offsets were counted: an upper bound of the records."""

    @property
    def total(self) -> int:
        return sum(self.records.values())


async def count_records(
    cluster: Cluster, wanted: Mapping[TopicPartition, IntervalSet]
) -> RecordCount:
    """Counts the committed records at these offsets."""
    offsets = {where: len(runs) for where, runs in wanted.items()}
    if sum(offsets.values()) > OFFSETS_MAX:
        return RecordCount(offsets, is_exact=False)
    return RecordCount(
        {where: await _count(cluster, where, runs) for where, runs in wanted.items()}, True
    )


async def _count(cluster: Cluster, where: TopicPartition, wanted: IntervalSet) -> int:
    low = (await list_offsets(cluster, {where: EARLIEST}))[where].offset
    ends = await list_offsets(cluster, {where: LATEST}, isolation_level=READ_COMMITTED)
    runs = list(wanted.within(low, ends[where].offset - 1))
    if not runs:
        return 0
    config = ConsumerConfig(isolation_level=READ_COMMITTED, reset=EARLIEST, max_wait_ms=_WAIT_MS)
    found = 0
    async with Consumer(cluster, config) as consumer:
        consumer.assign({where: runs[0][0]})
        while consumer.positions[where] <= runs[-1][1]:
            for fetched in await consumer.fetch(timeout_ms=_WAIT_MS):
                found += await process_fetched(cluster.workers, fetched, _within, fetched, wanted)
    return found


def _within(fetched: Fetched, wanted: IntervalSet) -> int:
    found = 0
    for view, _ in fetched.data_batches():
        header = read_header(view)
        first, last = header.base_offset, header.last_offset
        run = wanted.run_at(first)
        if run is not None and run[1] >= last and first >= fetched.offset:
            found += header.count
        else:
            offsets = decode(view, columns=Column.OFFSETS).offsets
            found += sum(at >= fetched.offset and at in wanted for at in offsets)
    return found
