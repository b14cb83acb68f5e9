"""Grouping of ranges into fetches."""

from penstock.spark.range_planning import Range
from penstock.spark.source.read_offsets import GAP_RECORDS_MAX, group_nearby


def span(start: int, end: int, partition: int = 0) -> Range:
    return Range("jobs", partition, start, end)


def test_nearby_ranges_are_fetched_together() -> None:
    near, far = span(15, 20), span(20 + GAP_RECORDS_MAX + 1, 30 + GAP_RECORDS_MAX + 1)
    assert group_nearby([near, span(0, 10), far]) == [[span(0, 10), near], [far]]


def test_ranges_of_different_partitions_are_not_grouped() -> None:
    assert group_nearby([span(0, 5, 1), span(0, 5)]) == [[span(0, 5)], [span(0, 5, 1)]]
    assert group_nearby([]) == []
