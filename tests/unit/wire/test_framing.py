"""Headers and length prefixes around messages."""

import pytest

from penstock.base.errors import PeerError
from penstock.wire.framing import (
    PART_BYTES_JOINED,
    read_response_header,
    request_frame,
    response_frame,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.classic_groups import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.messages.sasl import SaslHandshakeRequest
from penstock.wire.request_header import read_request_header


def header(data: bytes) -> tuple[int, int, int, str | None, int]:
    return read_request_header(memoryview(data), 0, len(data))


def test_old_version_has_a_header_without_tags() -> None:
    assert header(b"\0\x0c\0\x03\0\0\0\x09\0\x02me") == (12, 3, 9, "me", 12)


def test_flexible_version_has_tags_after_a_legacy_client_id() -> None:
    assert header(b"\0\x0c\0\x04\0\0\0\x09\0\x02me\0body") == (12, 4, 9, "me", 13)
    assert header(b"\0\x0c\0\x04\0\0\0\x09\xff\xff\x01\x07\x02zzbody") == (12, 4, 9, None, 15)


def test_api_that_was_never_flexible_has_no_tags() -> None:
    assert header(b"\0\x11\0\x01\0\0\0\x09\xff\xff")[4] == 10
    assert request_frame(1, None, SaslHandshakeRequest, 1, []) == [
        b"\0\0\0\x0a\0\x11\0\x01\0\0\0\x01\xff\xff"
    ]


def test_unknown_api_or_version_still_yields_its_correlation_id() -> None:
    assert header(b"\0\x12\0\x63\0\0\0\x09\0\x02me\0\x01") == (18, 99, 9, "me", 12)
    assert header(b"\x7f\xff\0\x00\0\0\0\x09\xff\xff") == (32767, 0, 9, None, 10)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\x0c\0\x04\0\0\0\x09\0",
        b"\0\x0c\0\x03\0\0\0\x09\0\x03me",
        b"\0\x0c\0\x03\0\0\0\x09\xff\xfe",
        b"\0\x0c\0\x03\0\0\0\x09\0\x02\xff\xff",
        b"\0\x0c\0\x04\0\0\0\x09\xff\xff",
        b"\0\x0c\0\x04\0\0\0\x09\xff\xff\x01",
        b"\0\x0c\0\x04\0\0\0\x09\xff\xff\x01\x80\x80",
        b"\0\x0c\0\x04\0\0\0\x09\xff\xff\x01\x00\x09z",
    ],
)
def test_broken_header_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(PeerError):
        header(data)
    # The same bytes with more behind them, which belong to the next frame.
    with pytest.raises(PeerError):
        read_request_header(memoryview(data + bytes(64)), 0, len(data))


def test_request_frame_reads_back() -> None:
    (frame,) = request_frame(77, "client", HeartbeatRequest, 4, [b"bo", b"dy"])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    key, version, correlation_id, client_id, position = read_request_header(
        memoryview(frame), 4, len(frame)
    )
    assert (key, version, correlation_id, client_id) == (12, 4, 77, "client")
    assert bytes(frame[position:]) == b"body"


def test_response_header_has_tags_from_the_flexible_version_on() -> None:
    assert response_frame(7, HeartbeatResponse, 3, [b"x"]) == [b"\0\0\0\x05\0\0\0\x07x"]
    assert response_frame(7, HeartbeatResponse, 4, [b"x"]) == [b"\0\0\0\x06\0\0\0\x07\0x"]
    for version in (3, 4):
        (frame,) = response_frame(7, HeartbeatResponse, version, [b"x"])
        view = memoryview(frame)
        assert read_response_header(view, 4, len(view), HeartbeatResponse, version) == (
            7,
            len(view) - 1,
        )


def test_api_versions_answers_keep_the_oldest_header() -> None:
    assert response_frame(7, ApiVersionsResponse, 4, [b"x"]) == [b"\0\0\0\x05\0\0\0\x07x"]
    (request,) = request_frame(7, "c", ApiVersionsRequest, 3, [])
    assert bytes(request[-2:]) == b"c\0"


@pytest.mark.parametrize(
    "data", [b"\0\0\0", b"\0\0\0\x07", b"\0\0\0\x07\x01", b"\0\0\0\x07\x7f\0\0"]
)
def test_broken_response_header_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(PeerError):
        read_response_header(memoryview(data), 0, len(data), HeartbeatResponse, 4)


def test_small_parts_are_joined_and_large_ones_leave_uncopied() -> None:
    large = memoryview(bytes(PART_BYTES_JOINED))
    frame = response_frame(7, FetchResponse, 17, [b"a", b"b", large, b"c", large, large])
    assert [len(part) for part in frame] == [4 + 5 + 2, len(large), 1, len(large), len(large)]
    assert frame[1] is large
    assert int.from_bytes(frame[0][:4], "big") == sum(map(len, frame)) - 4
    small = response_frame(7, FetchResponse, 17, [b"a", b"b", b"c"])
    assert len(small) == 1


def test_many_small_parts_are_joined_however_large_together() -> None:
    frame = response_frame(7, FetchResponse, 17, [b"x" * 10_000] * 4)
    assert len(frame) == 1
    assert len(frame[0]) == 9 + 40_000
