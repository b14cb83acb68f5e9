"""Output of all commands: tables for people, JSON and YAML for programs.

Declares `--format`. `json` and `yaml` print one document per listing. `text` prints a table; `wide`
adds columns and does not fit them to the terminal. A table that is too wide for the terminal has
its widest columns wrapped between words; where that does not suffice, each row is a block of lines,
so that no name is broken. When standard output is not a terminal, tables
are plain: no frames, colours or wrapping, so that `grep` and `awk` see whole rows.

On a terminal, control characters in data from the cluster are escaped. Pipes and files receive the
data unchanged.
"""

from __future__ import annotations

import enum
import io
import json
import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

WIDE = "+"
WIDTH_MAX = 10_000
GAPS = (2, 1)
"""Spaces between two columns of a table: the first that fits the terminal."""


class OutputFormat(enum.StrEnum):
    text = "text"
    json = "json"
    yaml = "yaml"
    wide = "wide"

    @property
    def is_data(self) -> bool:
        """True for the formats that programs read."""
        return self in (OutputFormat.json, OutputFormat.yaml)


format_option = click.option(
    "--format",
    type=click.Choice(OutputFormat),
    default="text",
    show_default=True,
    help="Output format; wide has more columns than text.",
)


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Returns a rich console; with NO_COLOR it writes no escapes at all, not even for bold."""
    from rich.console import Console

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(
        stderr=stderr, highlight=False, soft_wrap=True, width=width, color_system=colours
    )


def whole(stream: TextIO) -> TextIO:
    """Returns a stream that completes partial writes.

    With PYTHONUNBUFFERED, Python does not retry the rest of a write that a full pipe took in part.
    The returned stream is still line-buffered.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


def print_data(value: Any, format: OutputFormat) -> None:
    """Prints one JSON or YAML document."""
    if format is OutputFormat.yaml:
        from penstock.cli.terminal.yaml import dumped

        print(dumped(value), end="")
    else:
        print(shown_json(value, indent=2, is_seen=sys.stdout.isatty()))


def print_listing(
    format: OutputFormat, document: Any, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    """Prints the document in data formats, the table otherwise."""
    if format.is_data:
        print_data(document, format)
    else:
        print_table(columns, rows, format)


def print_rows(
    format: OutputFormat,
    keys: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
) -> None:
    """Prints a listing whose document holds the table's cells under these keys."""
    print_listing(format, [dict(zip(keys, row, strict=True)) for row in rows], columns, rows)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    format: OutputFormat = OutputFormat.text,
) -> None:
    """Prints a table.

    A trailing space in a column's name aligns it to the right, for numbers; a leading plus shows
    it in `wide` only.
    """
    shown = [
        index
        for index, name in enumerate(columns)
        if format is OutputFormat.wide or not name.startswith(WIDE)
    ]
    columns = [columns[index].removeprefix(WIDE) for index in shown]
    cells = [[_show(row[index]) for index in shown] for row in rows]
    if not sys.stdout.isatty():
        _print_plain(columns, cells)
        return
    limit = WIDTH_MAX if format is OutputFormat.wide else console().width
    names = [name.strip() for name in columns]
    for gap in GAPS:
        widths = _fitted(names, cells, limit - gap * len(names) - 1)
        if widths is not None:
            _print_framed(columns, cells, widths, gap)
            return
    _print_blocks(names, cells)


def _print_framed(
    columns: Sequence[str], cells: list[list[str]], widths: Sequence[int], gap: int
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=(0, gap - 1, 0, 0))
    for name, width in zip(columns, widths, strict=True):
        justify: Literal["right", "left"] = "right" if name.endswith(" ") else "left"
        # Long names wrap: a truncated name cannot be copied.
        table.add_column(name.strip(), justify=justify, overflow="fold", width=width)
    for row in cells:
        table.add_row(*(_escape(cell) for cell in row))
    console(width=sum(widths) + gap * len(widths) + 1).print(table)


def _fitted(names: Sequence[str], cells: list[list[str]], space: int) -> list[int] | None:
    """Returns widths of columns whose sum is within `space`; None if words would be broken.

    The widest columns become narrower, but none narrower than its heading's words and than the
    longest word of nine of ten rows.
    """
    widths, floors = [], []
    for index, name in enumerate(names):
        column = [row[index] for row in cells]
        words = sorted(map(_longest_word, column))
        usual = words[(len(words) * 9 + 9) // 10 - 1] if words else 0
        widths.append(max(map(len, (name, *column))))
        floors.append(max(usual, _longest_word(name)))
    if sum(floors) > space:
        return None
    while sum(widths) > space:
        spare = [index for index, width in enumerate(widths) if width > floors[index]]
        widths[max(spare, key=lambda index: widths[index])] -= 1
    return widths


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _print_blocks(names: Sequence[str], cells: list[list[str]]) -> None:
    """Prints each row as lines of name and value; the terminal wraps long values."""
    indent = max(map(len, names)) + 2
    for row in cells:
        print()
        for name, cell in zip(names, row, strict=True):
            print(f"{name:<{indent}}{cell}")


def _print_plain(columns: Sequence[str], cells: list[list[str]]) -> None:
    header = [name.strip().upper() for name in columns]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for row in [header, *cells]:
        parts = [
            cell.rjust(width) if name.endswith(" ") else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ]
        print("  ".join(parts).rstrip())


def _show(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, (list, tuple)):
        return printable(",".join(map(str, cell)))
    return printable(str(cell))


def printable(text: str, keep: str = "") -> str:
    """Escapes line breaks and control characters, except those in `keep`.

    Error messages and keys come from outside and must not control the terminal.
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() or c in keep else _escaped(c) for c in text])


def harmless(data: bytes) -> bytes:
    """Escapes invalid UTF-8 and control characters, for a terminal."""
    return printable(data.decode(errors="backslashreplace"), "\n\t").encode()


def shown_json(value: Any, *, indent: int | None = None, is_seen: bool) -> str:
    """Returns JSON. With `is_seen`, for a terminal, control characters are escaped as well."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not is_seen or text.isprintable():
        return text
    return "".join([c if c.isprintable() or c == "\n" else _json_escaped(c) for c in text])


def _json_escaped(char: str) -> str:
    # DEL is the one control character that json leaves unescaped.
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def _escaped(char: str) -> str:
    # Python calls Unicode spaces not printable; they are harmless.
    return char if unicodedata.category(char) == "Zs" else repr(char)[1:-1]


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def show_bytes(count: float) -> str:
    """1536 as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def show_count(count: float) -> str:
    """1234567 as `1,234,567`."""
    return f"{count:,.0f}"


def show_duration(duration_ms: int) -> str:
    """The two largest units: 95 000 as `1m35s`, 350 as `350ms`."""
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    seconds = duration_ms // 1000
    for size, unit, rest_size, rest_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // rest_size
            return f"{seconds // size}{unit}" + (f"{rest}{rest_unit}" if rest else "")
    return f"{seconds}s"


def show_time(at_ms: int) -> str:
    """A moment in UTC, as `2026-11-01T12:00:00.250Z`."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
