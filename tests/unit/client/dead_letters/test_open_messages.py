"""Settled offsets: commit metadata that says which dead letters a transaction has settled."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.committed_offsets import Committed
from penstock.client.dead_letters.open_messages import (
    decode_settled_offsets,
    encode_settled_offsets,
)

TOPIC_ID, OTHER_ID = b"\1" * 16, b"\2" * 16
sorted_offsets = st.sets(st.integers(0, 1 << 40), min_size=1, max_size=50).map(sorted)


def offsets_of(runs: list[tuple[int, int]]) -> list[int]:
    return [offset for first, last in runs for offset in range(first, last + 1)]


@given(sorted_offsets)
def test_settled_offsets_round_trip(offsets: list[int]) -> None:
    note = encode_settled_offsets(TOPIC_ID, offsets)
    assert offsets_of(decode_settled_offsets(Committed(0, metadata=note), TOPIC_ID)) == offsets


def test_settled_offsets_of_a_recreated_topic_are_ignored() -> None:
    note = encode_settled_offsets(TOPIC_ID, [1, 2, 3])
    assert decode_settled_offsets(Committed(4, metadata=note), OTHER_ID) == []


def test_position_without_settled_offsets_decodes_to_none() -> None:
    assert decode_settled_offsets(None, TOPIC_ID) == []
    assert decode_settled_offsets(Committed(4), TOPIC_ID) == []
    assert decode_settled_offsets(Committed(4, metadata="text of another client"), TOPIC_ID) == []


def test_oversized_settled_offsets_are_not_encoded() -> None:
    assert encode_settled_offsets(TOPIC_ID, range(1_900)) is not None
    assert encode_settled_offsets(TOPIC_ID, [number << 30 for number in range(1_000)]) is None
