"""`penstock.state.transactions.records`."""

import msgspec
import pytest

from penstock.base.errors import Corrupt
from penstock.state.transactions.records import (
    NO_ID,
    ProducerEpoch,
    TxnRecord,
    TxnState,
    decode_key,
    decode_value,
    each_partition,
    encode_record,
    group_partitions,
)

RECORD = TxnRecord(
    state=TxnState.PREPARE_COMMIT,
    producer_id=2**40,
    producer_epoch=32_767,
    timeout_ms=60_000,
    updated_ms=1_700_000_000_123,
    previous_id=2**40,
    previous_epoch=32_766,
    next_id=2**41,
    start_ms=1_700_000_000_000,
    number=12,
    version=2,
    partitions=(("a", (0, 3)), ("b", (1,))),
)


def test_record_comes_back_as_it_went() -> None:
    key, value = encode_record("orders", RECORD)
    assert value is not None
    assert decode_key(key) == "orders"
    assert decode_value(value) == RECORD
    assert encode_record("orders", RECORD) == (key, value)


def test_missing_record_is_a_tombstone_of_the_same_key() -> None:
    assert encode_record("orders", None) == (encode_record("orders", RECORD)[0], None)


def test_key_of_another_kind_or_version_is_not_ours() -> None:
    for key in ((2, 0, "t"), (1, 1, "t"), (1, 0), (1, 0, "t", 1)):
        assert decode_key(msgspec.msgpack.encode(key)) is None
    assert decode_key(b"") is None


def test_value_with_more_fields_than_we_know_can_be_read() -> None:
    _, value = encode_record("t", RECORD)
    assert value is not None
    fields = [*msgspec.msgpack.decode(value), "something new"]
    assert decode_value(msgspec.msgpack.encode(fields)) == RECORD


def test_value_with_the_first_fields_only_gets_the_defaults() -> None:
    short = msgspec.msgpack.encode(["t", 0, 1, 2, 3, 4])
    record = decode_value(short)
    assert record.producer == ProducerEpoch(1, 2)
    assert (record.next_id, record.partitions) == (NO_ID, ())


def test_value_that_is_none_of_ours_is_corrupt() -> None:
    for value in (b"", b"\xff", msgspec.msgpack.encode(["t", 99, 1, 2, 3, 4])):
        with pytest.raises(Corrupt):
            decode_value(value)


def test_same_partitions_give_the_same_bytes_in_any_order() -> None:
    pairs = [("b", 1), ("a", 3), ("a", 0)]
    assert group_partitions(pairs) == RECORD.partitions == group_partitions(pairs[::-1])
    assert each_partition(RECORD) == sorted(pairs)


def test_successor_is_the_next_id_once_the_epochs_are_used_up() -> None:
    assert RECORD.successor == ProducerEpoch(2**41, 0)
    assert msgspec.structs.replace(RECORD, next_id=NO_ID).successor == RECORD.producer
