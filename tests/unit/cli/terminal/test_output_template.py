"""Templates of `consume -f`: each field, each form, and mistakes named."""

import json

import pytest

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output_template import as_json, compile_template, show_time
from penstock.client.consumer.fetched import FetchedRecord

MESSAGE = FetchedRecord(
    topic="orders",
    partition=3,
    offset=42,
    timestamp=1_700_000_000_123,
    key=b"k",
    value=b"\xff\x00v",
    headers=(("a", b"1"), ("b", None)),
)
EMPTY = MESSAGE._replace(key=None, value=None, headers=(), timestamp=-1)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%t %p %o\\n", b"orders 3 42\n"),
        ("%k=%v", b"k=\xff\x00v"),
        ("%s", b"\xff\x00v"),
        ("%T %d", b"1700000000123 2023-11-14T22:13:20.123Z"),
        ("%h %H", b"a=1,b= 2"),
        ("%K %V %S", b"1 3 3"),
        ("%v{hex}|%v{base64}|%k{json}", b'ff0076|/wB2|"k"'),
        ("100%%\\t\\x41\\\\\\r\\0", b"100%\tA\\\r\0"),
        ("{%k}", b"{k}"),
        ("", b""),
        ("é%k", "ék".encode()),
    ],
)
def test_each_template_field_is_replaced(template: str, expected: bytes) -> None:
    assert compile_template(template)(MESSAGE) == expected


def test_template_controls_the_terminal_and_the_message_does_not() -> None:
    hostile = MESSAGE._replace(key=b"\x1b[2J", value=b"\r\x9b\n", headers=(("h\x07", b"\x1b"),))
    template = "\\x1b[31m%k|%v|%v{json}|%h|%o"
    shown = compile_template(template, is_seen=True)(hostile)
    assert shown == b"\x1b[31m\\x1b[2J|\\r\\x9b\n|" + rb'"\r\ufffd\n"|h\x07=\x1b|42'
    piped = compile_template(template)(hostile)
    assert piped == b"\x1b[31m\x1b[2J|\r\x9b\n|" + rb'"\r\ufffd\n"' + b"|h\x07=\x1b|42"
    hostile = MESSAGE._replace(key="\x9b\x7f".encode(), value=b"v", headers=())
    assert b"\xc2\x9b" in as_json(hostile)
    seen = as_json(hostile, is_seen=True)
    assert seen.strip().decode().isprintable()
    assert json.loads(seen) == json.loads(as_json(hostile))


def test_null_is_empty_with_length_minus_one() -> None:
    assert compile_template("[%k|%v{hex}|%K|%V|%h|%d]")(EMPTY) == b"[||-1|-1||]"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("%x", "unknown field %x"),
        ("%", "unknown field %"),
        ("\\q", "unknown escape"),
        ("\\xZZ", "two hexadecimal digits"),
        ("%v{rot13}", "unknown form"),
        ("%v{hex", "no closing brace"),
    ],
)
def test_template_errors_are_named(template: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compile_template(template)


def test_json_is_one_line_and_marks_base64() -> None:
    line = as_json(MESSAGE)
    assert line.count(b"\n") == 1
    row = json.loads(line)
    assert row["key"] == "k"
    assert row["value_base64"] == "/wB2"
    assert row["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]
    assert json.loads(as_json(EMPTY))["value"] is None


def test_value_can_be_omitted() -> None:
    row = json.loads(as_json(MESSAGE, has_value=False))
    assert (row["key"], row["value_bytes"]) == ("k", 3)
    assert not {"value", "value_base64"} & set(row)
    assert json.loads(as_json(EMPTY, has_value=False))["value_bytes"] is None


def test_time_outside_the_calendar_is_shown_as_a_number() -> None:
    assert show_time(10**17) == "100000000000000000"
