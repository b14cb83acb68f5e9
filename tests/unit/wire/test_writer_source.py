"""`penstock.wire.writer_source`: the parts of a generated writer."""

import struct

import pytest

from penstock.wire.codec import writer
from penstock.wire.messages.classic_groups import HeartbeatResponse
from penstock.wire.messages.produce import ProduceResponse
from penstock.wire.writer_source import WriterText, count_bytes, write_uvarint


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16384, b"\x80\x80\x01"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
    ],
)
def test_varints_are_little_endian_groups_of_seven(value: int, data: bytes) -> None:
    assert write_uvarint(value) == data


@pytest.mark.parametrize("value", [-1, 2**31])
def test_length_we_could_not_mean_is_our_bug(value: int) -> None:
    with pytest.raises(AssertionError):
        write_uvarint(value)


def test_records_are_counted_in_one_buffer_or_several() -> None:
    assert count_bytes(b"abc") == 3
    assert count_bytes(memoryview(b"abc")) == 3
    assert count_bytes([b"abc", bytearray(4), memoryview(b"x")]) == 8


def test_value_out_of_range_is_our_bug_and_not_the_peers() -> None:
    with pytest.raises(struct.error):
        writer(HeartbeatResponse, 0)(HeartbeatResponse(error_code=40_000), [])


def test_fixed_fields_and_the_next_length_are_one_call() -> None:
    assert "pack_ihqqqB(" in WriterText(ProduceResponse, 12).text
