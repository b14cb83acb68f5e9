"""The compiled codecs: hand-made bytes, hostile lengths, and what tracebacks show."""

import linecache
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.base.errors import PeerError
from penstock.wire.codec import reader, source, writer
from penstock.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.schema import (
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    string,
    struct,
    uint16,
    uuid,
)


@struct()
class Leaf:
    """A leaf."""

    number: int = int32()
    label: str | None = string(nullable=True, default=None)
    extra: int = int16(since=3, default=5, tag=2)


@message(key=98, versions=(0, 4), flexible=2)
class EverythingRequest:
    """Every kind there is."""

    flag: bool = boolean()
    tiny: int = int8()
    port: int = uint16()
    ratio: float = float64()
    ident: bytes = uuid()
    text: str | None = string(nullable=1)
    blob: bytes | None = bytes_(nullable=True)
    data: Any = records(nullable=True)
    numbers: Sequence[int] | None = array(int64, nullable=True)
    idents: Sequence[bytes] = array(uuid)
    words: Sequence[str] = array(string)
    leaves: Sequence[Leaf] = array(Leaf)
    leaf: Leaf | None = nested(Leaf, since=1, nullable=True, default=None)
    always: Leaf | None = nested(Leaf, since=4, default=None)
    late: Sequence[str] | None = array(string, since=2, nullable=3, default=(), tag=0)
    named: str = string(since=2, default="x", tag=1)
    inner: Leaf | None = nested(Leaf, since=3, default=None, tag=9)


def everything(**given: Any) -> EverythingRequest:
    values: dict[str, Any] = {
        "flag": True,
        "tiny": -7,
        "port": 65535,
        "ratio": 2.5,
        "ident": bytes(range(16)),
        "text": "héllo",
        "blob": b"blob",
        "data": b"records",
        "numbers": [1, -2],
        "idents": [bytes(16), b"i" * 16],
        "words": ["", "w"],
        "leaves": [Leaf(number=1, label="one"), Leaf(number=2)],
        "always": Leaf(number=3),
    }
    return EverythingRequest(**{**values, **given})


def encode(message: Any, version: int) -> bytes:
    parts: list[Any] = []
    writer(type(message), version)(message, parts)
    return b"".join(parts)


def decode(declared: type[Any], version: int, data: bytes) -> Any:
    message, position = reader(declared, version)(memoryview(data), 0, len(data))
    assert position == len(data)
    return message


def refuses(declared: type[Any], version: int, data: bytes, match: str) -> None:
    with pytest.raises(PeerError, match=match):
        reader(declared, version)(memoryview(data), 0, len(data))


@pytest.mark.parametrize("version", range(5))
def test_every_kind_survives_a_round_trip(version: int) -> None:
    sent = everything(leaf=Leaf(number=9, label="nine") if version else None)
    if version < 4:
        sent.always = None
    assert decode(EverythingRequest, version, encode(sent, version)) == sent


@pytest.mark.parametrize("version", range(1, 5))
def test_every_null_survives_a_round_trip(version: int) -> None:
    nulls = dict.fromkeys(("text", "blob", "data", "numbers", "leaf"))
    sent = everything(**nulls)
    if version < 4:
        sent.always = None
    assert decode(EverythingRequest, version, encode(sent, version)) == sent


def test_tagged_fields_are_written_only_when_they_differ() -> None:
    plain = encode(everything(), 4)
    assert plain.endswith(b"\x00")
    leaf = Leaf(number=1, label="in", extra=6)
    for tagged in ({"late": ["a"]}, {"late": None}, {"named": ""}, {"inner": leaf}):
        sent = everything(**tagged)
        assert len(encode(sent, 4)) > len(plain)
        assert decode(EverythingRequest, 4, encode(sent, 4)) == sent


def test_tags_are_written_in_ascending_order() -> None:
    every = everything(inner=Leaf(number=1), named="n", late=["l"])
    tail = encode(every, 4)[len(encode(everything(), 4)) - 1 :]
    assert tail == b"\x03" + b"\x00\x03\x02\x02l" + b"\x01\x02\x02n" + b"\x09\x06\0\0\0\1\0\0"


def test_heartbeat_has_the_bytes_of_the_protocol_guide() -> None:
    sent = HeartbeatRequest(group_id="g", generation_id=5, member_id="m", group_instance_id=None)
    assert encode(sent, 0) == b"\0\x01g\0\0\0\5\0\x01m"
    assert encode(sent, 3) == b"\0\x01g\0\0\0\5\0\x01m\xff\xff"
    assert encode(sent, 4) == b"\x02g\0\0\0\5\x02m\0\0"


def test_records_are_a_view_of_the_frame_and_not_a_copy() -> None:
    frame = bytearray(b"\0\xff\xff\0\0\0\1\x02\x02t\x02\0\0\0\3\x04abc\0\0\0")
    request, _ = reader(ProduceRequest, 12)(memoryview(frame), 0, len(frame))
    taken = request.topic_data[0].partition_data[0].records
    assert taken is not None
    assert bytes(taken) == b"abc"
    frame[-6:-3] = b"xyz"
    assert bytes(taken) == b"xyz"


def test_records_are_written_uncopied_and_may_come_in_pieces() -> None:
    batch = bytes(1000)
    row = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[row])]
    )
    parts: list[Any] = []
    writer(ProduceRequest, 12)(request, parts)
    assert any(part is row.records for part in parts)
    whole = encode(request, 12)
    row.records = [batch[:400], b"", batch[400:]]  # type: ignore[assignment]
    assert encode(request, 12) == whole


def test_message_may_lie_inside_a_larger_buffer() -> None:
    body = encode(HeartbeatResponse(error_code=3), 4)
    buffer = memoryview(b"before" + body + b"\x7fafter")
    message, position = reader(HeartbeatResponse, 4)(buffer, 6, 6 + len(body))
    assert (message.error_code, position) == (3, 6 + len(body))
    with pytest.raises(PeerError):
        reader(HeartbeatResponse, 4)(buffer, 6, 6 + len(body) - 1)


def test_unknown_tags_are_skipped() -> None:
    data = b"\0\0\0\0\0\3" + b"\x02" + b"\x05\x03abc" + b"\x80\x01\x00"
    assert decode(HeartbeatResponse, 4, data) == HeartbeatResponse(error_code=3)
    data = encode(everything(), 4)[:-1] + b"\x02" + b"\x01\x02\x02n" + b"\x64\x01z"
    assert decode(EverythingRequest, 4, data).named == "n"


def test_known_tag_must_fill_its_size() -> None:
    data = encode(everything(), 4)[:-1] + b"\x01" + b"\x01\x03\x02n?"
    refuses(EverythingRequest, 4, data, "named")


def test_tag_larger_than_the_message_is_refused() -> None:
    refuses(HeartbeatResponse, 4, b"\0\0\0\0\0\3\x01\x05\x7f", "tagged field 5")
    refuses(HeartbeatResponse, 4, b"\0\0\0\0\0\3\x7f\x05\x00", "127 tagged fields")
    refuses(HeartbeatResponse, 4, b"\0\0\0\0\0\3\xff\xff\xff\xff\x07", "tagged fields")


def test_count_that_cannot_fit_is_refused_before_it_is_believed() -> None:
    head = b"\0\xff\xff\0\0\0\1"
    refuses(ProduceRequest, 12, head + b"\x7f" + bytes(20), "topic_data: length 126")
    refuses(ProduceRequest, 12, head + b"\xff\xff\xff\xff\x07", "topic_data")
    refuses(ProduceRequest, 12, head + b"\x00", "topic_data: length -1")
    legacy = b"\xff\xff\xff\xff\0\0\0\1"
    refuses(ProduceRequest, 3, legacy + b"\x7f\xff\xff\xff", "topic_data: length 2147483647")
    refuses(ProduceRequest, 3, legacy + b"\xff\xff\xff\xff", "topic_data: length -1")


def test_lengths_out_of_range_are_refused() -> None:
    refuses(HeartbeatRequest, 0, b"\xff\xff", "group_id: length -1")
    refuses(HeartbeatRequest, 0, b"\x7f\xff", "group_id: length 32767")
    refuses(HeartbeatRequest, 3, b"\0\0\0\0\0\0\0\0\xff\xfe", "group_instance_id: length -2")
    refuses(HeartbeatRequest, 4, b"\0", "group_id: length -1")


def test_string_beyond_kafkas_limit_is_refused() -> None:
    longest = encode(HeartbeatRequest(group_id="g" * 32767, generation_id=0, member_id=""), 4)
    assert len(decode(HeartbeatRequest, 4, longest).group_id) == 32767
    too_long = encode(HeartbeatRequest(group_id="g" * 32768, generation_id=0, member_id=""), 4)
    refuses(HeartbeatRequest, 4, too_long, "32768 bytes")


def test_varint_is_at_most_five_bytes_and_31_bits() -> None:
    refuses(HeartbeatRequest, 4, b"\xff\xff\xff\xff\xff\x01", "five bytes")
    refuses(HeartbeatRequest, 4, b"\xff\xff\xff\xff\x0f", "is above")


def test_invalid_utf8_is_the_peers_fault() -> None:
    refuses(HeartbeatRequest, 0, b"\0\x01\xff\0\0\0\0\0\0", "HeartbeatRequest v0.*utf-8")


def test_missing_version_is_our_fault() -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest has versions 0-4, not 5"):
        reader(HeartbeatRequest, 5)
    with pytest.raises(ValueError, match="not -1"):
        writer(HeartbeatRequest, -1)
    with pytest.raises(ValueError, match="FetchResponse has versions 4-18"):
        source(FetchResponse, 3)


def test_codecs_are_compiled_once() -> None:
    assert reader(HeartbeatRequest, 4) is reader(HeartbeatRequest, 4)
    assert writer(HeartbeatRequest, 4) is writer(HeartbeatRequest, 4)


def test_generated_source_is_shown_and_quoted_by_tracebacks() -> None:
    text = source(HeartbeatRequest, 4)
    assert "def read(view, p, end):" in text
    assert "def write(m, parts):" in text
    reader(HeartbeatRequest, 4)
    assert "def read" in linecache.getline("<read HeartbeatRequest v4>", 1)
    linecache.checkcache()
    assert "def read" in linecache.getline("<read HeartbeatRequest v4>", 1)
