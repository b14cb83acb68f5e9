"""Which dead letters are still open, and reading them.

A letter is open until it was redriven or purged. Which are is kept by the share group
`DEAD_LETTERS`, and, for those of a transaction that was just committed, in the position of the
redriver's group (`noted_in`): what either says is settled is settled.

Letters are read partition by partition, in the order of the log, so nothing is held in memory but
what one fetch brought. They are made and chosen where records are unpacked: by workers, if there
are some, for that takes longer than unpacking.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing

from penstock.client.admin.queues import unfinished
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed, committed_offsets
from penstock.client.consumer.fetched import READ_COMMITTED, FetchedRecord
from penstock.client.consumer.record_reader import pick_at
from penstock.client.dead_letters.letter import DeadLetterFilter, DeadLetterMessage, letter_of
from penstock.client.list_offsets import LATEST, list_offsets, places_of
from penstock.client.metadata import TopicPartition
from penstock.state.queues.intervals import IntervalSet

DEAD_LETTERS = "__dead_letters"
"""The share group that keeps which letters are settled; the coordinator knows it by this name."""
SUFFIX = ".dlq"
CURSOR_PREFIX = "penstock-redrive."
_NOTE = "v1"
_NOTE_CHARS_MAX = 4_000
"""Of the word beside a position; brokers take 4096 (`offset.metadata.max.bytes`)."""


# -- reading ----------------------------------------------------------------------------------


def cursor_group(topic: str) -> str:
    """The consumer group whose positions say what a redrive has done."""
    return CURSOR_PREFIX + topic


async def ends_of(
    cluster: Cluster, places: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the letters end that are there now."""
    ends = await list_offsets(
        cluster, dict.fromkeys(places, LATEST), isolation_level=READ_COMMITTED
    )
    return {where: ends[where].offset for where in places}


async def open_letters(
    cluster: Cluster,
    topic: str,
    chosen: DeadLetterFilter | None = None,
    *,
    ends: dict[TopicPartition, int] | None = None,
) -> AsyncGenerator[DeadLetterMessage, None]:
    """Letters that nobody has seen to and that agree with the filter, partition by partition."""
    chosen = chosen or DeadLetterFilter()

    def pick(message: FetchedRecord) -> DeadLetterMessage | None:
        letter = letter_of(message)
        return letter if chosen.matches(letter) else None

    async with aclosing(open_runs(cluster, topic, chosen, ends=ends)) as places:
        async for where, wanted in places:
            async with aclosing(pick_at(cluster, where, wanted, pick)) as letters:
                async for letter in letters:
                    yield letter


async def open_runs(
    cluster: Cluster,
    topic: str,
    chosen: DeadLetterFilter | None = None,
    *,
    ends: dict[TopicPartition, int] | None = None,
) -> AsyncGenerator[tuple[TopicPartition, IntervalSet], None]:
    """The offsets of letters that nobody has seen to; only those that the filter names, if any."""
    places = await places_of(cluster, topic)
    ids = frozenset() if chosen is None else chosen.ids
    if ids:
        named = {partition for partition, _ in ids}
        places = [where for where in places if where.partition in named]
    ends = ends if ends is not None else await ends_of(cluster, places)
    noted = await committed_offsets(cluster, cursor_group(topic), is_stable=True)
    topic_id = (await cluster.topic(topic)).topic_id
    for where in places:
        runs = [(run.first, run.last) async for run in unfinished(cluster, DEAD_LETTERS, where)]
        wanted = IntervalSet()
        for first, last in runs:
            if first < ends[where]:
                wanted.add(first, min(last, ends[where] - 1))
        for first, last in noted_in(noted.get(where), topic_id):
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


# -- what a transaction has settled -----------------------------------------------------------


def note_of(topic_id: bytes, offsets: Sequence[int]) -> str | None:
    """Offsets as a word beside a position, so that they are settled with the transaction.

    None: they do not fit, and fewer must go together.
    """
    parts, before = [], 0
    for offset in offsets:
        parts.append(format(offset - before, "x"))
        before = offset
    note = f"{_NOTE} {topic_id.hex()} {' '.join(parts)}"
    return note if len(note) <= _NOTE_CHARS_MAX else None


def noted_in(committed: Committed | None, topic_id: bytes) -> list[tuple[int, int]]:
    """The runs of offsets in such a word; none of another topic by the same name."""
    words = (committed.metadata or "").split() if committed is not None else []
    if len(words) < 2 or words[0] != _NOTE or words[1] != topic_id.hex():
        return []
    runs = IntervalSet()
    offset = 0
    for word in words[2:]:
        offset += int(word, 16)
        runs.add(offset, offset)
    return list(runs)
