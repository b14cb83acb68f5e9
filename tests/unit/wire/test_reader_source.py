"""`penstock.wire.reader_source`: varints, tags, and the minimum size of an element."""

from typing import Any

import pytest

from penstock.base.errors import PeerError
from penstock.wire.messages.api_versions import ApiVersion
from penstock.wire.messages.fetch import FetchPartition
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.reader_source import (
    TAGS_MAX,
    ReaderText,
    read_string_length,
    read_tag,
    read_uvarint,
    size_min,
    skip_tags,
)
from penstock.wire.schema import int64, nested, string
from penstock.wire.writer_source import write_uvarint


@pytest.mark.parametrize("value", [128, 300, 16383, 16384, 2**21, 2**28, 2**31 - 1])
def test_long_varint_reads_back(value: int) -> None:
    data = memoryview(write_uvarint(value))
    assert read_uvarint(data, 1, data[0]) == (value, len(data))


def test_varint_may_waste_bytes_but_not_more_than_five() -> None:
    assert read_uvarint(memoryview(b"\x81\x80\x00"), 1, 0x81) == (1, 3)
    with pytest.raises(PeerError):
        read_uvarint(memoryview(b"\x80" * 5 + b"\x00"), 1, 0x80)


def test_string_length_stops_at_kafkas_limit() -> None:
    data = memoryview(write_uvarint(32768))
    assert read_string_length(data, 1, data[0])[0] == 32768
    data = memoryview(write_uvarint(32769))
    with pytest.raises(PeerError, match="32768 bytes"):
        read_string_length(data, 1, data[0])


def test_tags_are_skipped_by_their_size() -> None:
    data = memoryview(b"\x01\x02ab" + b"\x80\x01\x80\x01" + bytes(128) + b"rest")
    assert read_tag(data, 0, len(data)) == (1, 2, 4)
    assert read_tag(data, 4, len(data)) == (128, 8, 136)
    assert skip_tags(data, 0, len(data), 2) == 136
    with pytest.raises(PeerError):
        skip_tags(data, 0, 135, 2)


def test_more_tags_than_the_limit_are_refused_unread() -> None:
    """Each costs a step, and outsiders may send some (CVE-2026-111115 of Kafka)."""
    for count, does in ((TAGS_MAX, True), (TAGS_MAX + 1, False)):
        written = write_uvarint(count)
        data = memoryview(written[1:] + bytes(2 * count))
        if does:
            assert skip_tags(data, 0, len(data), written[0]) == len(data)
        else:
            with pytest.raises(PeerError, match="1001 tagged fields"):
                skip_tags(data, 0, len(data), written[0])


@pytest.mark.parametrize(
    ("of", "version", "flexible", "size"),
    [
        (int64(), 0, False, 8),
        (string(), 0, False, 2),
        (string(), 9, True, 1),
        (nested(ApiVersion, nullable=True), 0, True, 1),
        (nested(ApiVersion), 0, True, 7),
        (ApiVersion, 0, False, 6),
        (PartitionProduceData, 3, False, 8),
        (PartitionProduceData, 9, True, 6),
        (TopicProduceData, 12, True, 3),
        (TopicProduceData, 13, True, 18),
        (FetchPartition, 17, True, 33),
    ],
)
def test_least_an_element_takes(of: Any, version: int, flexible: bool, size: int) -> None:
    assert size_min(of, version, flexible) == size


def test_fixed_fields_and_the_next_length_are_one_call() -> None:
    text = ReaderText(ProduceRequest, 12).text
    assert "m.acks, m.timeout_ms, n = unpack_hiB(view, p)" in text
