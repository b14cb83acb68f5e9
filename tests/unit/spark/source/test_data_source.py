"""Pushed filters narrow ranges; Spark rechecks all but the exact ones."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from penstock.spark.range_planning import Range
from penstock.spark.source.data_source import RangeFilter

SPAN = Range("t", 3, 10, 100)


@pytest.mark.parametrize(
    ("pushed", "left"),
    [
        (GreaterThan(("offset",), 20), (21, 100)),
        (GreaterThanOrEqual(("offset",), 20), (20, 100)),
        (LessThan(("offset",), 20), (10, 20)),
        (LessThanOrEqual(("offset",), 20), (10, 21)),
        (EqualTo(("offset",), 20), (20, 21)),
        (EqualTo(("partition",), 3), (10, 100)),
        (In(("partition",), (1, 3)), (10, 100)),
        (EqualTo(("topic",), "t"), (10, 100)),
        (IsNotNull(("offset",)), (10, 100)),
        (EqualTo(("offset",), 100), None),
        (EqualTo(("partition",), 4), None),
        (In(("topic",), ("a", "b")), None),
        (LessThan(("offset",), 10), None),
    ],
)
def test_exact_filter_narrows_the_range(pushed: Filter, left: tuple[int, int] | None) -> None:
    range_filter = RangeFilter()
    assert range_filter.take([pushed]) == []
    found = range_filter.apply(SPAN)
    assert (None if found is None else (found.start, found.end)) == left


@pytest.mark.parametrize(
    "pushed",
    [
        Not(EqualTo(("offset",), 5)),
        EqualTo(("value",), b"x"),
        StringContains(("topic",), "t"),
        IsNotNull(("key",)),
        GreaterThan(("partition",), 5),
        EqualTo(("headers", "key"), "x"),
        LessThan(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_unsupported_filter_is_left_to_spark(pushed: Filter) -> None:
    range_filter = RangeFilter()
    assert range_filter.take([pushed]) == [pushed]
    assert range_filter.apply(SPAN) == SPAN
    assert range_filter.timestamp_low_ms is None


def test_timestamp_filter_moves_the_start_and_is_rechecked() -> None:
    range_filter = RangeFilter()
    pushed = [
        GreaterThanOrEqual(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
        GreaterThan(("timestamp",), datetime(2026, 1, 2, tzinfo=UTC)),
    ]
    assert range_filter.take(pushed) == pushed
    assert range_filter.timestamp_low_ms == 1_767_312_000_000


def test_filters_are_combined() -> None:
    range_filter = RangeFilter()
    range_filter.take([GreaterThan(("offset",), 20), GreaterThan(("offset",), 15)])
    range_filter.take([LessThan(("offset",), 40), LessThan(("offset",), 50)])
    assert range_filter.apply(SPAN) == Range("t", 3, 21, 40)
