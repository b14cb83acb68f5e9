"""Which offsets a batch takes and which task reads them. Pure: numbers in, numbers out.

Invariant, which the exactly-once sink may have to rely on: `plan` depends on nothing but its
arguments, so a batch that Spark runs again after a crash has the same tasks with the same ranges.

Offsets in checkpoints are JSON as Spark's Kafka source writes it, `{"topic": {"0": 5}}`, sorted,
because Spark compares the text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.client.metadata import TopicPartition

PartitionOffsets = dict[TopicPartition, int]

_TASKS_MAX = 1 << 20
"""More tasks than any scheduler takes: a bound against minPartitions with a zero too many."""


_TASK_RECORDS_MIN = 500


class Range(NamedTuple):
    """Offsets of one partition, from `start` up to, not including, `end`."""

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
    """The checkpoint holds offsets of something else."""


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for where in sorted(offsets):
        found.setdefault(where.topic, {})[str(where.partition)] = offsets[where]
    return found


def from_json(written: Any) -> PartitionOffsets:
    """Raises ForeignOffsets for what `to_json` cannot have written."""
    offsets: PartitionOffsets = {}
    try:
        for topic, partitions in written.items():
            for partition, offset in partitions.items():
                if type(offset) is not int:
                    raise ValueError(offset)
                offsets[TopicPartition(topic, int(partition))] = offset
    except (AttributeError, ValueError, TypeError):
        raise ForeignOffsets(
            f"the checkpoint holds {str(written)[:100]!r}, which are no offsets of this source; "
            "it belongs to another query: choose another checkpointLocation"
        ) from None
    return offsets


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[Range]:
    """What lies between two offsets, sorted. A partition that start does not know begins at 0."""
    found = [
        Range(where.topic, where.partition, start.get(where, 0), end[where])
        for where in sorted(end)
    ]
    return [span for span in found if span.size > 0]


def plan(
    spans: Sequence[Range], *, tasks_min: int | None = None, task_records_max: int | None = None
) -> list[list[Range]]:
    """The ranges of each task. Where nothing is said of tasks, small ranges share one."""
    if tasks_min is None and task_records_max is None:
        return pack(spans)
    parts = divide(spans, tasks_min=tasks_min, task_records_max=task_records_max)
    return [[part] for part in parts]


def divide(
    spans: Sequence[Range], *, tasks_min: int | None = None, task_records_max: int | None = None
) -> list[Range]:
    """Ranges split until there are enough and none is too large."""
    if task_records_max is not None:
        spans = [part for span in spans for part in split(span, _ceil(span.size, task_records_max))]
    total = sum(span.size for span in spans)
    if tasks_min is None or len(spans) >= tasks_min or not total:
        return list(spans)
    # As Spark's Kafka source does: large ranges give way first, in proportion to their size.
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
    """The ranges of each task, small ones together: a task costs more than a few records.

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
    """Consecutive ranges of nearly equal size, none of them empty."""
    parts = max(1, min(parts, span.size, _TASKS_MAX))
    cuts = [span.start + span.size * index // parts for index in range(parts + 1)]
    return [span._replace(start=cuts[i], end=cuts[i + 1]) for i in range(parts)]


def admit(
    start: Mapping[TopicPartition, int], available: Mapping[TopicPartition, int], records_max: int
) -> PartitionOffsets:
    """At most about `records_max` records beyond start, shared out by what each partition has.

    A partition that has any gets at least one, so that none is starved; so there may be as many
    more as there are partitions, as in Spark's Kafka source.
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
