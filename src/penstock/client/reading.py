"""Reads the records at given offsets of one partition, in the order of the log.

Stretches that nobody asked for are leapt over; what the log no longer has, markers and records of
aborted transactions are left out. Holds no more than what one fetch brings.
"""

from collections.abc import AsyncGenerator

from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer, ConsumerConfig
from penstock.client.fetching import READ_COMMITTED, Message
from penstock.client.lookup import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.queues.intervals import IntervalSet

_WAIT_MS = 100


async def read_at(
    cluster: Cluster, where: TopicPartition, wanted: IntervalSet
) -> AsyncGenerator[Message, None]:
    """The records at these offsets, those that are there and committed now."""
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
            for message in await consumer.poll(_WAIT_MS):
                if runs[0][0] <= message.offset <= runs[-1][1] and message.offset in wanted:
                    yield message
            position = consumer.positions[where]
            while runs[at][1] < position:
                at += 1
                if at == len(runs):
                    return
            if runs[at][0] > position:
                consumer.seek(where, runs[at][0])
