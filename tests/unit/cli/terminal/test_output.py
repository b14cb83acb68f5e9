"""Tables that `awk` can read, numbers that people can."""

import io
import json
from typing import Any, cast

import pytest

from penstock.cli.terminal.output import (
    OutputFormat,
    harmless,
    print_data,
    print_table,
    printable,
    show_bytes,
    show_count,
    whole,
)


def test_table_in_a_pipe_is_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count ", "flag"], [("a", 5, True), ("long [name]", 1234, None)])
    assert capsys.readouterr().out == (
        "NAME         COUNT  FLAG\na                5  yes\nlong [name]   1234  -\n"
    )


class Pipe(io.RawIOBase):
    """Takes little at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.taken += bytes(data[:100])
        return min(len(data), 100)


def test_partial_writes_to_a_pipe_lose_nothing() -> None:
    pipe = Pipe()
    unbuffered = io.TextIOWrapper(cast("Any", pipe), encoding="utf-8", write_through=True)
    out = whole(unbuffered)
    print("x" * 1000, file=out)
    assert pipe.taken == b"x" * 1000 + b"\n", "at once, and all of it"
    out.buffer.write(b"y" * 1000)
    out.flush()
    assert pipe.taken.endswith(b"y" * 1000)


def test_buffered_output_is_unchanged() -> None:
    out = io.TextIOWrapper(io.BytesIO())
    assert whole(out) is out
    text = io.StringIO()
    assert whole(text) is text


def test_table_without_rows_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "count "], [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


def test_external_text_breaks_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["key", "headers"], [("two\nlines", ["\x1b[2J", "\t"]), ("Größe\u3000✓", [])])
    assert capsys.readouterr().out == (
        "KEY         HEADERS\ntwo\\nlines  \\x1b[2J,\\t\nGröße\u3000✓\n"
    )


HOSTILE = "a\x1b]0;title\x07\x9b2J\x7f\u202eé\n\tz"


def test_control_characters_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = harmless(HOSTILE.encode() + b"\x9b\xff").decode()
    assert shown == "a\\x1b]0;title\\x07\\x9b2J\\x7f\\u202eé\n\tz\\x9b\\xff"


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize("format", [OutputFormat.json, OutputFormat.yaml])
def test_documents_are_equal_on_a_terminal_and_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_seen: bool,
    format: OutputFormat,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_seen)
    print_data({"a": [HOSTILE]}, format)
    said = capsys.readouterr().out
    if format is OutputFormat.json:
        assert json.loads(said) == {"a": [HOSTILE]}
        assert ("\x9b" in said) is not is_seen, "into a pipe it goes as it is"
    if is_seen:
        assert said.replace("\n", "").isprintable()
    assert "é" in said


def test_line_breaks_are_kept_on_request() -> None:
    assert printable("a\n\tb\r\x07", "\n\t") == "a\n\tb\\r\\x07"


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the output a terminal of 80 columns."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def test_wide_table_wraps_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    text = "unknown postcode for Lyon, which is not a city that the carrier knows"
    at = "2026-11-19T05:44:18.189Z"
    print_table(["error", "message", "count ", "first"], [("ValueError", text, 36, at)] * 3)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(at in line for line in lines) == 3
    assert " ".join(lines[3][11:].split()[:3]) == "unknown postcode for"


def test_wide_table_breaks_no_heading(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    names = "partition ,start ,end ,unfinished ,ready ,in flight ,delayed ,given up ,oldest ,open"
    print_table(names.split(","), [(0, 45, 676, 502, 0, 0, 11, 0, "21s", True)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for word in names.replace(" ,", " ").replace(",", " ").split():
        assert any(word in line for line in lines), word


def test_table_that_cannot_fit_becomes_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    name = "a-topic-with-a-very-long-name-indeed"
    print_table(["name", "source", "partitions "], [(name, name, 3), ("b", name, 1)])
    assert capsys.readouterr().out == (
        f"\nname        {name}\nsource      {name}\npartitions  3\n"
        f"\nname        b\nsource      {name}\npartitions  1\n"
    )


def test_wide_format_is_not_fitted_to_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    print_table(["a", "b"], [("x" * 60, "y" * 60)], OutputFormat.wide)
    assert any(
        "x" * 60 in line and "y" * 60 in line for line in capsys.readouterr().out.split("\n")
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert show_bytes(count) == text


def test_counts_are_grouped() -> None:
    assert show_count(1234567.4) == "1,234,567"
