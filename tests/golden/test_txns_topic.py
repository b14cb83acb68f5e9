"""Records of `__transaction_state`."""

from collections.abc import Iterator
from typing import Final

import pytest

from penstock.state.transactions import records
from penstock.state.transactions.records import TxnRecord, TxnState
from tests.golden.book import Book, Sample
from tests.golden.filling import full, minimal
from tests.golden.structs import structs_of


def _samples() -> Iterator[Sample]:
    for size, value in (("full", full(TxnRecord)), ("minimal", minimal(TxnRecord))):
        key, data = records.encode_record("payments", value)
        assert data is not None
        yield Sample(f"value: {size}", data, value, records.decode_value)
        if size == "full":
            yield Sample("key", key, "payments", records.decode_key)
    for number, state in enumerate(TxnState):
        value = TxnRecord(state, 1, 2, 3, 4)
        _, data = records.encode_record("payments", value)
        assert data is not None
        yield Sample(f"value: state {number}", data, value, records.decode_value)


BOOK: Final = Book("txns_topic", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_every_struct_has_a_sample() -> None:
    assert structs_of(records.__name__) == {TxnRecord}
