"""Offset ranges of a batch and their distribution over tasks. Pure: numbers in, numbers out.

Invariant, which the exactly-once sink may rely on: `plan` depends only on its arguments, so a batch
that Spark repeats after a crash has the same tasks with the same ranges.

Offsets in checkpoints are JSON as Spark's Kafka source writes it, `{"topic": {"0": 5}}`, sorted,
because Spark compares the text. `@topicIds`, which is not a valid topic name, holds the topic ids:
a topic that was deleted and created again has another one. Checkpoints of earlier releases, and of
brokers without topic ids, lack it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.client.metadata import TopicPartition

PartitionOffsets = dict[TopicPartition, int]
TopicIds = Mapping[str, str]
"""Topic id by topic, as Kafka's tools show it."""

TOPIC_IDS: Final = "@topicIds"

_TASKS_MAX = 1 << 20
"""Maximum tasks of a batch, above any scheduler's limit: bounds a mistyped minPartitions."""
_TASK_RECORDS_MIN = 500
"""Records below which a task takes more ranges: starting a task costs more than a few records."""


class Range(NamedTuple):
    """Offsets of one partition: `start` inclusive, `end` exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}] {self.start} to {self.end}"


class ForeignOffsets(ValueError):
    """The checkpoint holds offsets of another source or query."""


def to_json(
    offsets: Mapping[TopicPartition, int], topic_ids: TopicIds | None = None
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for where in sorted(offsets):
        found.setdefault(where.topic, {})[str(where.partition)] = offsets[where]
    ids = {topic: topic_ids[topic] for topic in found if topic in topic_ids} if topic_ids else {}
    return {**found, TOPIC_IDS: ids} if ids else found


def from_json(written: Any) -> PartitionOffsets:
    """Raises ForeignOffsets for a value that `to_json` cannot have written."""
    offsets: PartitionOffsets = {}
    try:
        for topic, partitions in written.items():
            if topic == TOPIC_IDS:
                continue
            for partition, offset in partitions.items():
                if type(offset) is not int:
                    raise ValueError(offset)
                offsets[TopicPartition(topic, int(partition))] = offset
    except (AttributeError, ValueError, TypeError):
        raise ForeignOffsets(
            f"the checkpoint holds {str(written)[:100]!r}, which are not offsets of this source; "
            "it belongs to another query: choose another checkpointLocation"
        ) from None
    return offsets


def topic_ids_of(written: Mapping[str, Any]) -> dict[str, str]:
    """Topic ids in offsets of `to_json`; empty if they lack them."""
    return dict(written.get(TOPIC_IDS, {}))


def replaced_topics(before: TopicIds, after: TopicIds) -> set[str]:
    """Topics that were deleted and created again in between, as far as their ids are known."""
    return {topic for topic in after if before.get(topic, after[topic]) != after[topic]}


def without_topics(
    offsets: Mapping[TopicPartition, int], topics: Collection[str]
) -> PartitionOffsets:
    return {where: at for where, at in offsets.items() if where.topic not in topics}


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[Range]:
    """Ranges between two offsets, sorted. A partition missing in `start` begins at offset 0."""
    found = [
        Range(where.topic, where.partition, start.get(where, 0), end[where])
        for where in sorted(end)
    ]
    return [span for span in found if span.size > 0]


def plan(
    spans: Sequence[Range], *, tasks_min: int | None = None, task_records_max: int | None = None
) -> list[list[Range]]:
    """Ranges of each task. Without limits for tasks, small ranges share a task."""
    if tasks_min is None and task_records_max is None:
        return pack(spans)
    parts = divide(spans, tasks_min=tasks_min, task_records_max=task_records_max)
    return [[part] for part in parts]


def divide(
    spans: Sequence[Range], *, tasks_min: int | None = None, task_records_max: int | None = None
) -> list[Range]:
    """Ranges split so that there are at least `tasks_min`, none above `task_records_max`."""
    if task_records_max is not None:
        spans = [part for span in spans for part in split(span, _ceil(span.size, task_records_max))]
    total = sum(span.size for span in spans)
    if tasks_min is None or len(spans) >= tasks_min or not total:
        return list(spans)
    # As in Spark's Kafka source: large ranges are split first, in proportion to their size.
    wanted = min(tasks_min, _TASKS_MAX, total)
    average = total / wanted
    small = [span for span in spans if span.size < average]
    rest = max(1, wanted - len(small))
    large_total = sum(span.size for span in spans if span.size >= average)
    tasks: list[Range] = []
    for span in spans:
        parts = 1 if span.size < average else max(1, round(span.size / large_total * rest))
        tasks += split(span, parts)
    return tasks


def pack(spans: Sequence[Range]) -> list[list[Range]]:
    """Ranges of each task, small ones together.

    A task takes the next ranges while it has fewer than `_TASK_RECORDS_MIN` records.
    """
    tasks: list[list[Range]] = []
    size = _TASK_RECORDS_MIN
    for span in spans:
        if size >= _TASK_RECORDS_MIN:
            tasks.append([])
            size = 0
        tasks[-1].append(span)
        size += span.size
    return tasks


def split(span: Range, parts: int) -> list[Range]:
    """Splits a range into consecutive, non-empty ranges of nearly equal size."""
    parts = max(1, min(parts, span.size, _TASKS_MAX))
    cuts = [span.start + span.size * index // parts for index in range(parts + 1)]
    return [span._replace(start=cuts[i], end=cuts[i + 1]) for i in range(parts)]


def admit(
    start: Mapping[TopicPartition, int], available: Mapping[TopicPartition, int], records_max: int
) -> PartitionOffsets:
    """Ends of a batch of about `records_max` records, in proportion to each partition's backlog.

    A partition with a backlog gets at least one record, so that none starves. So the batch may
    exceed the limit by the number of partitions, as in Spark's Kafka source.
    """
    backlog = {w: max(0, available[w] - start.get(w, 0)) for w in available}
    total = sum(backlog.values())
    if total <= records_max:
        return dict(available)
    ends: PartitionOffsets = {}
    for where in sorted(available):
        share = records_max * backlog[where] // total
        if share == 0 and backlog[where]:
            share = 1
        ends[where] = start.get(where, 0) + min(share, backlog[where])
    return ends


def count_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, end[where] - start.get(where, 0)) for where in end)


def _ceil(size: int, unit: int) -> int:
    return -(-size // unit)
