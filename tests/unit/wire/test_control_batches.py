"""Transaction markers, against Kafka's layout byte for byte."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.wire.control_batches import ControlMarker, decode_marker, encode_marker
from penstock.wire.records import (
    CONTROL,
    Record,
    check_stored,
    decode,
    encode,
    is_control,
    is_transactional,
)


def marker(*, committed: bool) -> memoryview:
    return memoryview(
        encode_marker(
            committed=committed,
            producer_id=77,
            producer_epoch=3,
            coordinator_epoch=12,
            timestamp=1_700_000_000_000,
            base_offset=500,
        )
    )


@pytest.mark.parametrize("committed", [True, False])
def test_marker_is_one_control_record(committed: bool) -> None:
    view = marker(committed=committed)
    header = check_stored(view)
    assert is_control(header.attributes)
    assert is_transactional(header.attributes)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    [record] = decode(view)
    assert record.offset == 500
    assert record.key == b"\x00\x00" + (b"\x00\x01" if committed else b"\x00\x00")
    assert record.value == b"\x00\x00\x00\x00\x00\x0c"
    assert decode_marker(view) == ControlMarker(committed, 12)


def test_other_control_records_are_no_markers() -> None:
    leader_change = encode([Record(0, 0, b"\x00\x00\x00\x02", b"\x00\x00")], attributes=CONTROL)
    assert decode_marker(memoryview(leader_change)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"\x00" * 6), (b"\x00", b"\x00" * 6), (b"\x00" * 4, None), (b"\x00" * 4, b"\x00" * 5)],
)
def test_malformed_marker_is_refused(key: bytes | None, value: bytes | None) -> None:
    view = memoryview(encode([Record(0, 0, key, value)], attributes=CONTROL))
    with pytest.raises(Refused) as refusal:
        decode_marker(view)
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_empty_control_batch_is_not_a_marker() -> None:
    with pytest.raises(Refused):
        decode_marker(memoryview(encode([], last_offset=0, attributes=CONTROL)))
