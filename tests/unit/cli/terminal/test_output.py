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


def test_narrow_terminal_truncates_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    name = "a-topic-with-a-very-long-name-indeed"
    print_table(["name", "partitions ", "replicas "], [(name, 3, 1)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 30
    assert "".join(line[:10].strip() for line in lines[4:]) == name


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
