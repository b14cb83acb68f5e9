"""Lists offsets (ListOffsets) and resolves ranges of the offset grammar to numbers.

A time resolves to the offset of the first record at or after it, or to the end if there is none.
The end is the high watermark, or the last stable offset for read_committed.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition, by_topic
from penstock.client.offset_syntax import Anchor, OffsetPosition, OffsetRange
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


class FoundOffset(NamedTuple):
    """Offset and timestamp of a record; -1 if there is none."""

    offset: int
    timestamp: int


class OffsetSpan(NamedTuple):
    """Offsets to read: from `start` to `end`, excluded; None: no end."""

    start: int
    end: int | None


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
) -> dict[TopicPartition, FoundOffset]:
    """Asks the leaders; `wanted` is a timestamp, or LATEST, EARLIEST, MAX_TIMESTAMP."""
    found: dict[TopicPartition, FoundOffset] = {}

    async def ask(node_id: int, places: list[TopicPartition]) -> None:
        rows = by_topic(
            (where, ListOffsetsPartition(partition_index=where.partition, timestamp=wanted[where]))
            for where in places
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=rows[name]) for name in rows],
            timeout_ms=cluster.config.request_timeout_ms,
        )
        reply = await cluster.call(request, ListOffsetsResponse, node_id=node_id)
        for topic in reply.topics:
            for answer in topic.partitions:
                where = TopicPartition(topic.name, answer.partition_index)
                check(answer.error_code, about=str(where))
                found[where] = FoundOffset(answer.offset, answer.timestamp)

    async def attempt() -> None:
        missing = [where for where in wanted if where not in found]
        groups = await cluster.by_leader(missing)
        results = await asyncio.gather(
            *(ask(node_id, places) for node_id, places in groups.items()),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    await cluster.retrying(attempt, topics={where.topic for where in wanted})
    return {where: found[where] for where in wanted}


async def resolve(
    cluster: Cluster,
    places: list[TopicPartition],
    wanted: OffsetRange,
    *,
    isolation_level: int = 0,
    must_end: bool = False,
) -> dict[TopicPartition, OffsetSpan]:
    """Resolves the range to offsets of each partition.

    The range never starts before the log. An exact end may be in the future, and no end means
    without limit; with `must_end`, the current end of the log limits both.
    """
    starts = await list_offsets(
        cluster, dict.fromkeys(places, EARLIEST), isolation_level=isolation_level
    )
    ends = await list_offsets(
        cluster, dict.fromkeys(places, LATEST), isolation_level=isolation_level
    )

    async def locate(position: OffsetPosition) -> dict[TopicPartition, int]:
        if position.anchor is Anchor.TIME:
            times = await list_offsets(
                cluster, dict.fromkeys(places, position.value), isolation_level=isolation_level
            )
            return {
                where: times[where].offset if times[where].offset >= 0 else ends[where].offset
                for where in places
            }
        compute = _DISTANCES[position.anchor]
        return {
            where: compute(position.value, starts[where].offset, ends[where].offset)
            for where in places
        }

    first = await locate(wanted.start)
    last = None if wanted.end is None else await locate(wanted.end)
    spans = {}
    for where in places:
        low, high = starts[where].offset, ends[where].offset
        start = max(first[where], low)
        end = None if last is None else last[where]
        if must_end or (wanted.end is not None and wanted.end.anchor is not Anchor.EXACT):
            end = high if end is None else min(end, high)
        spans[where] = OffsetSpan(start, None if end is None else max(start, end))
    return spans


_DISTANCES: Mapping[Anchor, Callable[[int, int, int], int]] = {
    Anchor.EXACT: lambda value, start, end: value,
    Anchor.START: lambda value, start, end: start + value,
    Anchor.END: lambda value, start, end: max(start, end - value),
}


async def partitions_of(
    cluster: Cluster, topic: str, partitions: list[int] | None = None
) -> list[TopicPartition]:
    """Returns all partitions of the topic, or checks and returns the given ones."""
    info = await cluster.topic(topic)
    if partitions is None:
        return [TopicPartition(topic, index) for index in info.partitions]
    places = []
    for index in partitions:
        if index not in info.partitions:
            count = len(info.partitions)
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has {count} partitions, 0-{count - 1}: "
                f"there is no partition {index}",
            )
        places.append(TopicPartition(topic, index))
    return places
