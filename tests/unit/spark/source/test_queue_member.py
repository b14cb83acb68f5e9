"""Queue offsets in a checkpoint: repeatable batches, and detection of another query."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.metadata import TopicPartition
from penstock.spark.range_planning import ForeignOffsets, Range
from penstock.spark.source.queue_member import (
    QueueOffset,
    add,
    add_all,
    count,
    read_offset,
    tasks_of,
)

HERE = TopicPartition("jobs", 0)


def test_queue_offset_round_trips() -> None:
    offset = QueueOffset(3)
    for at in (5, 6, 7, 12):
        add(offset.taken, HERE, at, at)
    add(offset.unacknowledged, TopicPartition("jobs", 1), 1, 2)
    written = offset.to_json()
    assert written == {
        "batch": 3,
        "taken": {"jobs": {"0": [5, 7, 12, 12]}},
        "owed": {"jobs": {"1": [1, 2]}},
    }
    assert read_offset(written, ["jobs"]) == offset
    assert offset.spans() == [Range("jobs", 0, 5, 8), Range("jobs", 0, 12, 13)]


@pytest.mark.parametrize(
    "written",
    [
        {"jobs": {"0": 5}},
        {"batch": "1", "taken": {}, "owed": {}},
        {"batch": 1, "taken": [], "owed": {}},
        {"batch": 1, "taken": {"jobs": {"0": [1]}}, "owed": {}},
        {"batch": 1, "taken": {"jobs": {"0": [5, 4]}}, "owed": {}},
        None,
    ],
)
def test_invalid_queue_offset_is_refused(written: Any) -> None:
    with pytest.raises(ForeignOffsets, match="choose another checkpointLocation"):
        read_offset(written, ["jobs"])


def test_checkpoint_of_another_queue_is_refused() -> None:
    written = {"batch": 1, "taken": {"users": {"0": [1, 2]}}, "owed": {}}
    with pytest.raises(ForeignOffsets, match="queue 'users'"):
        read_offset(written, ["jobs"])


def test_overlapping_offsets_are_counted_once() -> None:
    one: dict[Any, Any] = {}
    add(one, HERE, 1, 3)
    two: dict[Any, Any] = {}
    add(two, HERE, 3, 5)
    add_all(one, two)
    assert count(one) == 5


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 500)), unique=True, max_size=80),
    st.one_of(st.none(), st.integers(1, 12)),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_tasks_cover_every_record_once_within_one_partition(
    records: list[tuple[int, int]], tasks_min: int | None, records_max: int | None
) -> None:
    offset = QueueOffset(1)
    for partition, at in records:
        add(offset.taken, TopicPartition("jobs", partition), at, at)
    tasks = list(tasks_of(offset.spans(), tasks_min=tasks_min, task_records_max=records_max))
    found = [(s.partition, at) for task in tasks for s in task for at in range(s.start, s.end)]
    assert sorted(found) == sorted(records)
    for task in tasks:
        assert len({span.where for span in task}) == 1
        if records_max is not None:
            assert sum(span.size for span in task) <= records_max
    if tasks_min is not None and len(records) >= tasks_min:
        assert len(tasks) >= tasks_min // 2
