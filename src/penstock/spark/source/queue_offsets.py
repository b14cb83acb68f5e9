"""Progress of a query in a queue, as stored in Spark's checkpoint. Pure.

A queue has no single offset, so the checkpoint stores the number of each batch and the offsets of
its records. After a crash, the repeated batch reads the same records in the same tasks, as the
exactly-once sink requires.

`unacknowledged` are records of finished earlier batches whose acknowledgement the queue may not
have; the query acknowledges them on redelivery. JSON: `{"batch": 3, "taken": {"jobs": {"0":
[5, 9, 12, 12]}}, "owed": {}}`, first and last offset of every run.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.client.metadata import TopicPartition
from penstock.spark.range_planning import ForeignOffsets, Range
from penstock.state.queues.intervals import IntervalSet

UNACKNOWLEDGED_MAX: Final = 100_000
"""Maximum tracked records; beyond it, the query forgets some and would read them again."""

RecordOffsets = dict[TopicPartition, IntervalSet]


@dataclass(slots=True)
class QueueOffset:
    batch: int = 0
    taken: RecordOffsets = field(default_factory=dict)
    unacknowledged: RecordOffsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "taken": _written(self.taken),
            "owed": _written(self.unacknowledged),
        }

    def spans(self) -> list[Range]:
        """Records of the batch as ranges, sorted."""
        return [
            Range(where.topic, where.partition, first, last + 1)
            for where in sorted(self.taken)
            for first, last in self.taken[where]
        ]


def read_offset(written: Any, topics: Iterable[str]) -> QueueOffset:
    """Raises ForeignOffsets for the checkpoint of another query."""
    try:
        if set(written) != {"batch", "taken", "owed"} or type(written["batch"]) is not int:
            raise ValueError(written)
        offset = QueueOffset(written["batch"], _read(written["taken"]), _read(written["owed"]))
    except (AttributeError, AssertionError, KeyError, ValueError, TypeError):
        raise ForeignOffsets(
            f"the checkpoint holds {str(written)[:100]!r}, which is not an offset of a queue; "
            "it belongs to another query: choose another checkpointLocation"
        ) from None
    known = set(topics)
    for where in offset.taken:
        if where.topic not in known:
            raise ForeignOffsets(
                f"the checkpoint has records of queue {where.topic!r}, which this query does not "
                f"read: it reads {', '.join(sorted(known))}; the checkpoint belongs to another "
                "query: choose another checkpointLocation"
            )
    return offset


def add(picked: RecordOffsets, where: TopicPartition, first: int, last: int) -> None:
    picked.setdefault(where, IntervalSet()).add(first, last)


def add_all(picked: RecordOffsets, more: Mapping[TopicPartition, IntervalSet]) -> None:
    for where, runs in more.items():
        for first, last in runs:
            add(picked, where, first, last)


def count(picked: Mapping[TopicPartition, IntervalSet]) -> int:
    return sum(len(runs) for runs in picked.values())


def tasks_of(
    spans: list[Range], *, tasks_min: int | None, task_records_max: int | None
) -> Iterator[list[Range]]:
    """Ranges of each task, all of one partition and limited to the task's share."""
    total = sum(span.size for span in spans)
    share = task_records_max or total
    if tasks_min is not None and total:
        share = min(share, max(1, -(-total // tasks_min)))
    task: list[Range] = []
    size = 0
    for span in spans:
        if task and task[-1].where != span.where:
            yield task
            task, size = [], 0
        while size + span.size > share:
            cut = span.start + share - size
            yield [*task, span._replace(end=cut)]
            task, size, span = [], 0, span._replace(start=cut)
        if span.size:
            task.append(span)
            size += span.size
    if task:
        yield task


def _written(picked: RecordOffsets) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for where in sorted(picked):
        runs = [offset for run in picked[where] for offset in run]
        if runs:
            found.setdefault(where.topic, {})[str(where.partition)] = runs
    return found


def _read(written: Any) -> RecordOffsets:
    picked: RecordOffsets = {}
    for topic, partitions in written.items():
        for partition, numbers in partitions.items():
            for first, last in zip(numbers[::2], numbers[1::2], strict=True):
                add(picked, TopicPartition(topic, int(partition)), first, last)
    return picked
