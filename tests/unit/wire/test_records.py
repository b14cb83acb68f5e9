"""Batch headers, what a client may append, records as columns."""

import struct
from typing import Any

import crc32c
import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.wire.records import (
    APPEND_TIME,
    BATCH_OVERHEAD,
    CONTROL,
    DELETE_HORIZON,
    Codec,
    Column,
    Record,
    batches,
    check_batch,
    check_stored,
    codec_of,
    decode,
    encode,
    is_append_time,
    is_compressed,
    is_control,
    is_transactional,
    read_header,
    stamp,
    stamp_append_time,
)

SOME = [
    Record(0, 1_700_000_000_000, b"a", b"apple", (("trace", b"1"), ("empty", b""), ("null", None))),
    Record(1, 1_700_000_000_007, None, b"no key"),
    Record(2, 1_699_999_999_990, b"gone", None),
    Record(3, 1_700_000_000_001, b"", b"", (("größe", "groß".encode()),)),
    Record(4, 1_700_000_000_001, b"k" * 300, b"v" * 70_000),
]


def batch(records: list[Record] = SOME, **options: Any) -> bytearray:
    return encode(records, **options)


def changed(offset: int, layout: str, number: int, *, good_crc: bool = True) -> memoryview:
    """A batch with one header field replaced."""
    content = batch()
    struct.pack_into(layout, content, offset, number)
    if good_crc:
        struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[21:])))
    return memoryview(content)


def code_of(view: memoryview) -> ErrorCode:
    with pytest.raises(Refused) as refusal:
        check_batch(view)
    return refusal.value.code


def with_payload(payload: bytes, count: int, *, last_delta: int | None = None) -> memoryview:
    """A batch around records that are written by hand, with a good checksum."""
    content = bytearray(batch(SOME[:1]))[:BATCH_OVERHEAD] + payload
    struct.pack_into(">i", content, 8, len(content) - 12)
    struct.pack_into(">i", content, 23, count - 1 if last_delta is None else last_delta)
    struct.pack_into(">i", content, 57, count)
    struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[21:])))
    return memoryview(content)


def test_header_round_trips() -> None:
    content = batch(
        base_offset=42, producer_id=7, producer_epoch=3, base_sequence=11, leader_epoch=5
    )
    header = check_batch(memoryview(content))
    assert header == read_header(content)
    assert header.base_offset == 42
    assert header.length == len(content) - 12
    assert header.size_bytes == len(content)
    assert header.leader_epoch == 5
    assert header.magic == 2
    assert (header.last_offset_delta, header.count) == (4, 5)
    assert (header.last_offset, header.next_offset) == (46, 47)
    assert header.base_timestamp == 1_700_000_000_000
    assert header.max_timestamp == 1_700_000_000_007
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)


def test_attributes_name_codec_and_kind() -> None:
    header = read_header(batch(codec=Codec.LZ4, transactional=True, attributes=CONTROL))
    assert codec_of(header.attributes) == Codec.LZ4
    assert is_transactional(header.attributes)
    assert is_control(header.attributes)
    assert not is_append_time(header.attributes)


def test_permanent_error_is_refused_as_invalid_record() -> None:
    """Kafka's code for it: clients send again what was corrupt on its way, and not this."""
    assert code_of(memoryview(batch())[:60]) is ErrorCode.INVALID_RECORD
    assert code_of(memoryview(b"")) is ErrorCode.INVALID_RECORD
    assert code_of(memoryview(batch() + batch())) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("off_by", [-1, 1])
def test_length_that_does_not_fill_the_view_is_invalid(off_by: int) -> None:
    length = len(batch()) - 12
    assert code_of(changed(8, ">i", length + off_by)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_length_that_no_batch_has_is_corrupt(length: int) -> None:
    assert code_of(changed(8, ">i", length)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_invalid(magic: int) -> None:
    assert code_of(changed(16, ">b", magic)) is ErrorCode.INVALID_RECORD


def test_unknown_magic_is_corrupt() -> None:
    assert code_of(changed(16, ">b", 3)) is ErrorCode.CORRUPT_MESSAGE


def test_any_flipped_bit_under_the_checksum_is_corrupt() -> None:
    content = batch(SOME[:4])
    for position in range(17, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        assert code_of(memoryview(damaged)) is ErrorCode.CORRUPT_MESSAGE, position


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_unsupported(codec: int) -> None:
    assert code_of(changed(21, ">h", codec)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("count", [0, -1, 4, 6, 2**31 - 1, -(2**31)])
def test_count_other_than_the_offsets_is_invalid(count: int) -> None:
    assert code_of(changed(57, ">i", count)) is ErrorCode.INVALID_RECORD


def test_empty_batch_from_a_client_is_invalid() -> None:
    assert code_of(memoryview(encode([], last_offset=-1))) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("attributes", [CONTROL, DELETE_HORIZON])
def test_broker_attributes_of_a_client_batch_are_refused(attributes: int) -> None:
    assert code_of(changed(21, ">h", attributes)) is ErrorCode.INVALID_RECORD


def test_client_may_not_set_the_append_time() -> None:
    assert code_of(changed(21, ">h", APPEND_TIME)) is ErrorCode.INVALID_TIMESTAMP


def test_idempotent_producer_needs_a_sequence() -> None:
    content = memoryview(batch(producer_id=5, producer_epoch=0, base_sequence=-1))
    assert code_of(content) is ErrorCode.INVALID_RECORD
    check_batch(memoryview(batch(producer_id=5, producer_epoch=0, base_sequence=0)))


def test_stored_batch_may_be_control_compacted_or_empty() -> None:
    control = batch(SOME[:1], attributes=CONTROL)
    gaps = batch([SOME[0], SOME[4]], keep_offsets=True)
    empty = batch([], base_offset=10, last_offset=19, producer_id=3)
    for content in (control, gaps, empty):
        check_stored(memoryview(content))
        with pytest.raises(Refused):
            check_batch(memoryview(content))


def test_stored_batch_is_still_checked() -> None:
    for view in (
        changed(57, ">i", 6),
        changed(57, ">i", -1),
        changed(21, ">h", 5),
        changed(16, ">b", 1),
        changed(8, ">i", 5),
        changed(57, ">i", 5, good_crc=False)[:-1],
        memoryview(b"short"),
    ):
        with pytest.raises(Refused):
            check_stored(view)


def test_stamping_keeps_the_checksum() -> None:
    content = batch()
    stamp(memoryview(content), 1 << 40, 9)
    header = check_batch(memoryview(content))
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert list(decode(memoryview(content)).offsets) == [(1 << 40) + i for i in range(5)]


@pytest.mark.parametrize("codec", list(Codec))
def test_append_time_is_the_time_of_every_record(codec: Codec) -> None:
    content = batch(codec=codec)
    stamp_append_time(memoryview(content), 1_800_000_000_000)
    header = check_stored(memoryview(content))
    assert is_append_time(header.attributes)
    assert header.max_timestamp == 1_800_000_000_000
    columns = decode(memoryview(content))
    assert list(columns.timestamps) == [1_800_000_000_000] * 5
    without = decode(memoryview(content), columns=Column.OFFSETS)
    assert not without.timestamps


def test_batches_walks_whole_batches_and_leaves_the_partial_one() -> None:
    first, second, third = batch(), batch(base_offset=5), batch(base_offset=10)
    whole = memoryview(first + second + third)
    starts = [(0, 0), (len(first), 5), (len(first) + len(second), 10)]
    assert [(at, header.base_offset) for at, header in batches(whole)] == starts
    for cut in (1, len(third) - 61, len(third) - 60, len(third) - 1):
        found = [(at, header.base_offset) for at, header in batches(whole[:-cut])]
        assert found == starts[:2]
    assert not list(batches(whole[:0]))


def test_one_compressed_batch_is_noticed() -> None:
    plain, packed = batch(), batch(codec=Codec.GZIP)
    assert not is_compressed(memoryview(plain + plain))
    assert is_compressed(memoryview(plain + packed + plain))
    assert not is_compressed(memoryview(plain + packed)[:-1]), "it is not there yet"


@pytest.mark.parametrize(("at", "layout", "number"), [(8, ">i", 48), (8, ">i", -1), (16, ">b", 1)])
def test_batches_refuses_an_impossible_layout(at: int, layout: str, number: int) -> None:
    with pytest.raises(Refused) as refusal:
        list(batches(changed(at, layout, number)))
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_back_as_they_went(codec: Codec) -> None:
    content = memoryview(batch(codec=codec))
    columns = decode(content)
    assert len(columns) == 5
    assert list(columns) == SOME
    assert [columns.record(index) for index in range(5)] == SOME
    assert columns.keys() == [record.key for record in SOME]
    assert columns.values() == [record.value for record in SOME]
    assert check_batch(content).attributes == codec


def test_only_selected_columns_are_kept() -> None:
    content = memoryview(batch())
    values = decode(content, columns=Column.VALUES)
    assert values.values() == [record.value for record in SOME]
    assert not any((values.offsets, values.timestamps, values.key_starts, values.header_starts))
    assert next(iter(values)) == Record(value=b"apple") == values.record(0)
    keys = decode(content, columns=Column.KEYS | Column.OFFSETS)
    assert keys.has_null_key
    assert not keys.value_ends
    assert list(keys)[4] == Record(4, key=b"k" * 300)


def test_missing_key_is_seen() -> None:
    assert decode(memoryview(batch())).has_null_key
    assert not decode(memoryview(batch([SOME[0], SOME[2]]))).has_null_key


def test_empty_batch_has_no_records() -> None:
    for codec in Codec:
        content = memoryview(batch([], base_offset=10, last_offset=19, codec=codec))
        columns = decode(content)
        assert len(columns) == 0
        assert not list(columns)
        assert columns.header.next_offset == 20


def test_kept_offsets_leave_gaps() -> None:
    content = memoryview(batch([SOME[1], SOME[3]], keep_offsets=True, base_offset=0, last_offset=4))
    assert list(decode(content)) == [SOME[1], SOME[3]]
    assert read_header(content).last_offset == 4


@pytest.mark.parametrize("offsets", [(3, 3), (3, 2), (-1, 0), (0, 1 << 31)])
def test_kept_offsets_must_increase_within_the_batch(offsets: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="offset deltas"):
        batch([Record(offset) for offset in offsets], keep_offsets=True)


def test_empty_batch_needs_its_last_offset() -> None:
    with pytest.raises(AssertionError):
        batch([])


def test_decode_reads_the_batch_at_the_start_of_a_longer_view() -> None:
    assert list(decode(memoryview(batch() + b"next batch"))) == SOME


def test_decode_refuses_bytes_that_are_not_a_batch() -> None:
    for view in (memoryview(batch())[:-1], memoryview(batch())[:20], changed(8, ">i", 30)):
        with pytest.raises(Refused) as refusal:
            decode(view)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", list(Codec))
def test_decode_stops_at_its_budget(codec: Codec) -> None:
    content = memoryview(batch(codec=codec))
    size = len(decode(content).payload)
    assert len(decode(content, bytes_max=size)) == 5
    with pytest.raises(Refused) as refusal:
        decode(content, bytes_max=size - 1)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_base_offset_near_the_end_of_int64_is_refused() -> None:
    content = batch()
    stamp(content, 2**63 - 3, 0)
    with pytest.raises(Refused, match="base offset 9223372036854775805 is above"):
        decode(memoryview(content))


@pytest.mark.parametrize(
    ("payload", "count", "reason"),
    [
        (b"", 1, "the record count"),
        (b"\x0c" + b"\x00\x00\x00\x01\x01\x00", 2, "the record count"),
        (b"\x0c" + b"\x00\x00\x00\x01\x01\x00" + b"x", 1, "left over"),
        (b"\x0e" + b"\x00\x00\x00\x01\x01\x00", 1, "record 0: the record's length"),
        (b"\x0b" + b"\x00\x00\x00\x01\x01\x00", 1, "record 0: the record's length"),
        (b"\x00" + b"\x00\x00\x00\x01\x01\x00", 1, "record 0: a number runs past"),
        (b"\x0c" + b"\x00\x00\x02\x01\x01\x00", 1, "record 0: offset deltas"),
        (b"\x0c" + b"\x00\x00\x01\x01\x01\x00", 1, "record 0: offset deltas"),
        (b"\x0c" + b"\x00\x00\x00\x08\x01\x00", 1, "record 0: the key"),
        (b"\x0c" + b"\x00\x00\x00\x01\x04\x00", 1, "record 0: the value"),
        (b"\x0c" + b"\x00\x00\x00\x01\x01\x02", 1, "record 0: the header count"),
        (b"\x0c" + b"\x00\x00\x00\x01\x01\x01", 1, "record 0: the header count"),
        (b"\x10" + b"\x00\x00\x00\x01\x01\x02\x01\x01", 1, "record 0: a header key"),
        (b"\x10" + b"\x00\x00\x00\x01\x01\x02\x00\x02", 1, "record 0: a header value"),
        (b"\x0e" + b"\x00\x00\x00\x01\x01\x00x", 1, "record 0: the record is longer"),
        (b"\x14" + b"\x00\x00\x80\x80\x80\x80\x80\x00\x01\x01", 1, "record 0: a number has more"),
        (b"\x14" + b"\x00\x00\x80\x80\x80\x80\x10\x01\x01\x00", 1, "record 0: a number has more"),
        (b"\x20" + b"\x00" + b"\xff" * 9 + b"\x02\x00\x01\x01\x00\x00", 1, "a number has more"),
        (b"\x1e" + b"\x00" + b"\xfe" + b"\xff" * 8 + b"\x01\x00\x01\x01\x00", 1, "the timestamp"),
    ],
)
def test_malformed_record_is_invalid(payload: bytes, count: int, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refusal:
        decode(with_payload(payload, count))
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_huge_count_allocates_nothing() -> None:
    view = with_payload(b"\x0c\x00\x00\x00\x01\x01\x00", 2**31 - 1, last_delta=2**31 - 2)
    with pytest.raises(Refused, match="the record count"):
        decode(view)


def test_header_key_that_is_not_utf8_is_read_with_replacements() -> None:
    payload = b"\x16" + b"\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x02v"
    payload = bytes([2 * (len(payload) - 1)]) + payload[1:]
    assert decode(with_payload(payload, 1)).headers(0) == (("\ufffd\ufffd", b"v"),)


def test_keys_and_values_may_be_any_buffer() -> None:
    records: list[Any] = [
        (0, 5, bytearray(b"key"), memoryview(b"value"), [("h", bytearray(b"x"))]),
    ]
    [record] = decode(memoryview(encode(records)))
    assert record == Record(0, 5, b"key", b"value", (("h", b"x"),))


@pytest.mark.parametrize(
    "record", [(0, 0, "text", None, ()), (0, 0, None, 7, ()), (0, "now", None, None, ())]
)
def test_record_of_the_wrong_types_is_a_type_error(record: Any) -> None:
    with pytest.raises(TypeError):
        encode([record])
