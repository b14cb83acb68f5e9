"""Receipts: round trip, and refusal of all other text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.core.receipts import MEMBER_BYTES, Receipt, Receipts, new_member
from penstock.state.queues.state_shard import QueueKey

RECEIPTS = Receipts("a cluster")
KEY = QueueKey("group", b"t" * 16, 3)
MEMBER = new_member(b"\x00\xff" * (MEMBER_BYTES // 2))


def refused(text: str, receipts: Receipts = RECEIPTS) -> None:
    with pytest.raises(Refused) as error:
        receipts.read(text)
    assert error.value.code is ErrorCode.INVALID_REQUEST
    assert "receipt" in str(error.value.message)


@given(
    st.text(min_size=1, max_size=60),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**31 - 1),
    st.binary(min_size=MEMBER_BYTES, max_size=MEMBER_BYTES),
    st.integers(0, 2**63 - 1),
)
def test_receipt_round_trips(
    group: str, topic_id: bytes, partition: int, chance: bytes, offset: int
) -> None:
    key = QueueKey(group, topic_id, partition)
    member = new_member(chance)
    text = RECEIPTS.write(key, member, offset)
    assert text.isascii()
    assert RECEIPTS.read(text) == Receipt(key, member, offset)


@given(st.integers(0, 70), st.sampled_from("AQZaz09-_="))
def test_changed_receipt_is_refused(at: int, character: str) -> None:
    text = RECEIPTS.write(KEY, MEMBER, 7)
    changed = text[: at % len(text)] + character + text[at % len(text) + 1 :]
    # The last character has unused bits.
    if changed != text and changed[:-2] != text[:-2]:
        refused(changed)


@given(st.text(max_size=100))
def test_text_that_is_not_a_receipt_is_refused(text: str) -> None:
    refused(text)


def test_receipt_of_another_cluster_is_refused() -> None:
    refused(RECEIPTS.write(KEY, MEMBER, 7), Receipts("another cluster"))


def test_truncated_or_extended_receipt_is_refused() -> None:
    text = RECEIPTS.write(KEY, MEMBER, 7)
    for other in (text[:-4], text + "AAAA", text[4:], "A" * 5_000):
        refused(other)
