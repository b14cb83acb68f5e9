"""Outgoing messages: encoding as a record, rejected values."""

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.app.outgoing import Outgoing, encode_headers, encode_key, encode_payload


def test_payload_is_bytes_text_or_json() -> None:
    assert encode_payload(b"raw") == b"raw"
    assert encode_payload(bytearray(b"raw")) == b"raw"
    assert encode_payload("text é") == "text é".encode()
    assert encode_payload({"a": [1, None]}) == b'{"a":[1,null]}'
    assert encode_payload(7) == b"7"
    assert encode_payload(None) is None
    with pytest.raises(TypeError, match="of type object is neither"):
        encode_payload(object())


def test_key_is_bytes_or_text() -> None:
    assert encode_key("ann") == encode_key(b"ann") == b"ann"
    assert encode_key(None) is None
    with pytest.raises(TypeError, match="key"):
        encode_key(7)  # type: ignore[arg-type]


def test_headers_are_pairs_or_a_mapping() -> None:
    assert encode_headers({"a": "x", "b": 1, "c": None}) == (
        ("a", b"x"),
        ("b", b"1"),
        ("c", None),
    )
    assert encode_headers([("a", b"1"), ("a", b"2")]) == (("a", b"1"), ("a", b"2"))
    assert encode_headers(None) == ()
    with pytest.raises(TypeError, match="header name"):
        encode_headers({1: "x"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="header"):
        encode_headers({"a": 1.5})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="headers"):
        encode_headers("a")  # type: ignore[arg-type]


def test_delivery_options_become_headers_after_the_callers() -> None:
    message = Outgoing(
        payload=b"x",
        headers={"mine": "1"},
        delay="2s",
        deliver_at=datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC),
        priority=9,
        expires_in=60,
        dedup_id="a-1",
    )
    assert message.record_headers() == (
        ("mine", b"1"),
        ("penstock-delay-ms", b"2000"),
        ("penstock-deliver-at", b"5000"),
        ("penstock-priority", b"9"),
        ("penstock-ttl-ms", b"60000"),
        ("penstock-dedup-id", b"a-1"),
    )
    assert Outgoing(payload=b"x").record_headers() == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 10},
        {"priority": -1},
        {"delay": -1},
        {"delay": "20000d"},
        {"dedup_id": ""},
        {"dedup_id": "x" * 257},
        {"deliver_at": datetime(2026, 1, 1)},
        {"expires_in": -5},
    ],
)
def test_invalid_options_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"priority|duration|delay|dedup_id|zone"):
        Outgoing(payload=b"x", **wrong).record_headers()
