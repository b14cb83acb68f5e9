"""Lag of a group, in records and in time.

Lag in records is the distance between the committed offset and the end, as in all Kafka tools. Lag
in time is the age of the first unread record, which must be fetched: a control record or a gap of
compaction may be at the committed offset, so reading continues to the first data record. The age is
that of the record's timestamp, which its producer may have set.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition

PROBE_TIMEOUT_MS = 10_000
"""Limits the search for first unread records; the age of others is unknown."""

_PROBE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a partition. None is unknown: no commit, no leader or no record."""

    where: TopicPartition
    committed: int | None
    start_offset: int | None
    end_offset: int | None
    first_unread_ms: int | None
    """Timestamp of the first unread record."""
    metadata: str | None = None

    @property
    def records(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed)

    def age_ms(self, now_ms: int) -> int | None:
        """Returns the age of the first unread record; 0 if all records are read."""
        if self.records == 0:
            return 0
        return None if self.first_unread_ms is None else max(0, now_ms - self.first_unread_ms)


async def measure_lag(
    cluster: Cluster,
    committed: Mapping[TopicPartition, Committed],
    assigned: Collection[TopicPartition] = (),
) -> list[Lag]:
    """Measures the lag of all committed and assigned partitions, sorted."""
    places = sorted({*committed, *assigned})
    await cluster.refresh({where.topic for where in places})
    led = [where for where in places if cluster.metadata.leader_of(where) >= 0]
    starts = await list_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(led, LATEST))
    unread = {
        where: max(committed[where].offset, starts[where].offset)
        for where in led
        if where in committed and committed[where].offset < ends[where].offset
    }
    stamps = await first_timestamps(
        cluster, unread, {where: ends[where].offset for where in unread}
    )
    return [
        Lag(
            where=where,
            committed=committed[where].offset if where in committed else None,
            start_offset=starts[where].offset if where in starts else None,
            end_offset=ends[where].offset if where in ends else None,
            first_unread_ms=stamps.get(where),
            metadata=committed[where].metadata if where in committed else None,
        )
        for where in places
    ]


async def first_timestamps(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    timeout_ms: int = PROBE_TIMEOUT_MS,
) -> dict[TopicPartition, int]:
    """Returns the timestamp of the first record at or after each offset, if there is one."""
    stamps: dict[TopicPartition, int] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    # A record may be deleted meanwhile: then the first remaining one counts.
    config = ConsumerConfig(
        partition_bytes=_PROBE_BYTES, reset=EARLIEST, retry_timeout_ms=timeout_ms
    )
    async with Consumer(cluster, config) as consumer:
        consumer.assign(starts)
        while consumer.positions and loop.time() < deadline:
            for fetched in await consumer.fetch():
                first = next(fetched.messages(), None)
                if first is not None:
                    stamps[fetched.where] = first.timestamp
                if first is not None or fetched.next_offset >= ends[fetched.where]:
                    consumer.unassign(fetched.where)
    return stamps
