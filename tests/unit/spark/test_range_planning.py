"""Range planning: covers every record exactly once, and is deterministic."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.metadata import TopicPartition
from penstock.spark.range_planning import (
    ForeignOffsets,
    Range,
    admit,
    count_between,
    divide,
    from_json,
    plan,
    ranges_between,
    split,
    to_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SPANS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 1000), st.integers(1, 5000)),
    max_size=6,
    unique_by=lambda row: row[0],
).map(lambda rows: [Range("t", p, start, start + size) for p, start, size in sorted(rows)])


def test_offsets_are_sorted_and_round_trip() -> None:
    offsets = {A1: 5, TopicPartition("a", 10): 1, A0: 3, B0: 0}
    written = to_json(offsets)
    assert json.dumps(written) == '{"a": {"0": 3, "1": 5, "10": 1}, "b": {"0": 0}}'
    assert from_json(json.loads(json.dumps(written))) == offsets


@pytest.mark.parametrize("foreign", [5, {"a": 5}, {"a": {"x": 1}}, {"a": {"0": "1"}}, [1], None])
def test_offsets_of_another_source_are_refused(foreign: object) -> None:
    with pytest.raises(ForeignOffsets, match="another query"):
        from_json(foreign)


def test_ranges_cover_only_new_offsets() -> None:
    spans = ranges_between({A0: 5, A1: 9}, {A0: 7, A1: 9, B0: 3})
    assert spans == [Range("a", 0, 5, 7), Range("b", 0, 0, 3)]
    assert ranges_between({A0: 7}, {A0: 5}) == []


@given(SPANS, st.none() | st.integers(1, 50), st.none() | st.integers(1, 2000))
def test_plan_covers_every_record_once(
    spans: list[Range], tasks_min: int | None, task_records_max: int | None
) -> None:
    tasks = divide(spans, tasks_min=tasks_min, task_records_max=task_records_max)
    assert tasks == divide(spans, tasks_min=tasks_min, task_records_max=task_records_max)
    assert all(task.size > 0 for task in tasks)
    joined: list[Range] = []
    for task in tasks:
        if joined and joined[-1].where == task.where:
            assert joined[-1].end == task.start
            joined[-1] = joined[-1]._replace(end=task.end)
        else:
            joined.append(task)
    assert joined == spans
    if task_records_max is not None:
        assert all(task.size <= task_records_max for task in tasks)


def test_large_partitions_are_split_to_reach_the_minimum_of_tasks() -> None:
    tasks = divide([Range("t", 0, 0, 10), Range("t", 1, 0, 990)], tasks_min=10)
    assert len(tasks) == 10
    assert tasks[0] == Range("t", 0, 0, 10)
    assert len(divide([Range("t", 0, 0, 3)], tasks_min=1000)) == 3


def test_split_ranges_have_nearly_equal_sizes() -> None:
    sizes = [part.size for part in split(Range("t", 0, 100, 110), 3)]
    assert sum(sizes) == 10
    assert max(sizes) - min(sizes) <= 1


@given(
    st.dictionaries(
        st.integers(0, 8), st.tuples(st.integers(0, 100), st.integers(0, 1000)), max_size=8
    ),
    st.integers(1, 3000),
)
def test_limited_batch_starves_no_partition(
    rows: dict[int, tuple[int, int]], records_max: int
) -> None:
    start = {TopicPartition("t", p): at for p, (at, _) in rows.items()}
    available = {TopicPartition("t", p): at + more for p, (at, more) in rows.items()}
    ends = admit(start, available, records_max)
    assert ends.keys() == available.keys()
    assert count_between(start, ends) <= max(records_max, 0) + len(rows)
    for where, end in ends.items():
        assert start[where] <= end <= available[where]
        assert (end > start[where]) == (available[where] > start[where])
    if count_between(start, available) <= records_max:
        assert ends == available


@given(SPANS)
def test_small_ranges_share_a_task(spans: list[Range]) -> None:
    tasks = plan(spans)
    assert [span for task in tasks for span in task] == spans
    for task in tasks[:-1]:
        assert sum(span.size for span in task) >= 500
    for task in tasks:
        assert sum(span.size for span in task[:-1]) < 500


def test_task_limits_disable_shared_tasks() -> None:
    spans = [Range("t", 0, 0, 10), Range("t", 1, 0, 10)]
    assert plan(spans) == [spans]
    assert plan(spans, tasks_min=2) == [[spans[0]], [spans[1]]]
    assert len(plan(spans, task_records_max=5)) == 4
