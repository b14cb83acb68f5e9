"""Finds and reads the open messages of a dead-letter topic.

A dead-lettered message is open until it is settled: redriven or purged. Two places say so. The
share group `DEAD_LETTERS` has finished settled messages. For a transaction that was just
committed, the committed offset of the redriver's group names the messages it settled in its
metadata (`decode_settled_offsets`). A message is settled if either says so.

Messages are read partition by partition, in log order, so memory holds only what one fetch
returned. They are parsed and filtered where records are unpacked: in workers, if there are any,
because both take longer than unpacking.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing

from penstock.client.admin.queues import unfinished
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed, committed_offsets
from penstock.client.consumer.fetched import READ_COMMITTED, FetchedRecord
from penstock.client.consumer.record_reader import select_at
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.message import DeadLetterMessage, dead_letter_of
from penstock.client.list_offsets import LATEST, list_offsets, partitions_of
from penstock.client.metadata import TopicPartition
from penstock.state.queues.intervals import IntervalSet

DEAD_LETTERS = "__dead_letters"
"""Share group that tracks settled messages; the coordinator knows it by this name."""
SUFFIX = ".dlq"
CURSOR_PREFIX = "penstock-redrive."
_METADATA_VERSION = "v1"
_METADATA_CHARS_MAX = 4_000
"""Limits the metadata of a committed offset; brokers accept 4,096 (`offset.metadata.max.bytes`)."""


# -- reading ----------------------------------------------------------------------------------


def cursor_group(topic: str) -> str:
    """Returns the consumer group whose committed offsets track the progress of a redrive."""
    return CURSOR_PREFIX + topic


async def end_offsets(
    cluster: Cluster, places: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the current end offset of each partition, as read_committed readers see it."""
    ends = await list_offsets(
        cluster, dict.fromkeys(places, LATEST), isolation_level=READ_COMMITTED
    )
    return {where: ends[where].offset for where in places}


async def open_dead_letters(
    cluster: Cluster,
    topic: str,
    chosen: DeadLetterFilter | None = None,
    *,
    ends: dict[TopicPartition, int] | None = None,
) -> AsyncGenerator[DeadLetterMessage, None]:
    """Yields the open messages that match the filter, partition by partition."""
    chosen = chosen or DeadLetterFilter()

    def pick(message: FetchedRecord) -> DeadLetterMessage | None:
        found = dead_letter_of(message)
        return found if chosen.matches(found) else None

    async with aclosing(open_offsets(cluster, topic, chosen, ends=ends)) as places:
        async for where, wanted in places:
            async with aclosing(select_at(cluster, where, wanted, pick)) as messages:
                async for message in messages:
                    yield message


async def open_offsets(
    cluster: Cluster,
    topic: str,
    chosen: DeadLetterFilter | None = None,
    *,
    ends: dict[TopicPartition, int] | None = None,
) -> AsyncGenerator[tuple[TopicPartition, IntervalSet], None]:
    """Yields the offsets of open messages; if the filter names ids, only those."""
    places = await partitions_of(cluster, topic)
    ids = frozenset() if chosen is None else chosen.ids
    if ids:
        named = {partition for partition, _ in ids}
        places = [where for where in places if where.partition in named]
    ends = ends if ends is not None else await end_offsets(cluster, places)
    committed = await committed_offsets(cluster, cursor_group(topic), is_stable=True)
    topic_id = (await cluster.topic(topic)).topic_id
    for where in places:
        runs = [(run.first, run.last) async for run in unfinished(cluster, DEAD_LETTERS, where)]
        wanted = IntervalSet()
        for first, last in runs:
            if first < ends[where]:
                wanted.add(first, min(last, ends[where] - 1))
        for first, last in decode_settled_offsets(committed.get(where), topic_id):
            wanted.remove(first, last)
        if ids:
            wanted = _only(wanted, (offset for index, offset in ids if index == where[1]))
        yield where, wanted


def _only(wanted: IntervalSet, offsets: Iterable[int]) -> IntervalSet:
    left = IntervalSet()
    for offset in offsets:
        if offset in wanted:
            left.add(offset, offset)
    return left


# -- settled by a transaction -----------------------------------------------------------------


def encode_settled_offsets(topic_id: bytes, offsets: Sequence[int]) -> str | None:
    """Encodes offsets as metadata of a committed offset, which settles them when it is committed.

    None: they do not fit; the caller must settle fewer in one transaction.
    """
    parts, before = [], 0
    for offset in offsets:
        parts.append(format(offset - before, "x"))
        before = offset
    metadata = f"{_METADATA_VERSION} {topic_id.hex()} {' '.join(parts)}"
    return metadata if len(metadata) <= _METADATA_CHARS_MAX else None


def decode_settled_offsets(committed: Committed | None, topic_id: bytes) -> list[tuple[int, int]]:
    """Decodes runs of settled offsets; empty if they belong to a deleted topic of the same name."""
    words = (committed.metadata or "").split() if committed is not None else []
    if len(words) < 2 or words[0] != _METADATA_VERSION or words[1] != topic_id.hex():
        return []
    runs = IntervalSet()
    offset = 0
    for word in words[2:]:
        offset += int(word, 16)
        runs.add(offset, offset)
    return list(runs)
