"""Number of records in a reply, estimated without parsing it."""

from types import SimpleNamespace
from typing import Any

from penstock.broker.api.data.fetch_reply import FetchedPartition, _records


def found(offset: int, end: int, *, is_last: bool = True) -> FetchedPartition:
    """A segment of 1,000 bytes with the offsets 100 to 199, in a log that ends at 250."""
    segment = SimpleNamespace(base_offset=100, size=1_000)
    segments = SimpleNamespace(
        active=segment if is_last else None, end_of=lambda one, end_offset: 200
    )
    log = SimpleNamespace(segments=segments, end_offset=250)
    followed: Any = SimpleNamespace(offset=offset)
    made = FetchedPartition(followed)
    partition: Any = SimpleNamespace(log=log)
    span: Any = SimpleNamespace(segment=segment, end=end)
    made.partition, made.span = partition, span
    return made


def test_records_up_to_a_segment_end_are_counted_by_offset() -> None:
    assert _records(found(240, 1_000), 50) == 10
    assert _records(found(190, 1_000, is_last=False), 100) == 10


def test_records_inside_a_segment_are_estimated_by_bytes() -> None:
    assert _records(found(100, 300, is_last=False), 300) == 30
    whole = sum(_records(found(0, end, is_last=False), 250) for end in (250, 500, 750))
    assert whole + 25 == 100
