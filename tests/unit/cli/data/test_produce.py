"""Records that `produce` reads from lines and options, and its report."""

import asyncio
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cli.data import produce
from penstock.cli.data.produce import (
    InputLine,
    confirm_all,
    file_of,
    parse_header,
    queue_headers,
    read_lines,
    report,
    split_line,
)
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat
from tests.run_with import in_new_loop, run_with


@pytest.mark.parametrize(
    ("raw", "delimiter", "tombstone", "expected"),
    [
        (b"a:1", None, False, InputLine(b"fixed", b"a:1")),
        (b"a:1:2", b":", False, InputLine(b"a", b"1:2")),
        (b"no delimiter", b":", False, InputLine(b"fixed", b"no delimiter")),
        (b"a:", b":", False, InputLine(b"a", b"")),
        (b"a:", b":", True, InputLine(b"a", None)),
        (b"a--b", b"--", False, InputLine(b"a", b"b")),
        (b"", None, False, InputLine(b"fixed", b"")),
    ],
)
def test_line_is_split_into_key_and_value(
    raw: bytes, delimiter: bytes | None, tombstone: bool, expected: InputLine
) -> None:
    assert split_line(raw, b"fixed", delimiter, tombstone) == expected


def test_headers_have_the_syntax_of_curl() -> None:
    assert parse_header("a:b:c") == ("a", b"b:c")
    assert parse_header("a:") == ("a", b"")
    assert parse_header("a") == ("a", None)
    with pytest.raises(UserError, match="has no name"):
        parse_header(":x")


def test_delay_and_priority_become_record_headers() -> None:
    assert queue_headers(None, None) == []
    assert queue_headers("1h30m", 0) == [
        ("penstock-delay-ms", b"5400000"),
        ("penstock-priority", b"0"),
    ]
    with pytest.raises(UserError, match="--delay 'soon' is not a duration; try 500ms"):
        queue_headers("soon", None)


@run_with(in_new_loop)
async def test_file_is_sent_as_one_record(*, tmp_path: Path) -> None:
    photo = tmp_path / "photo"
    photo.write_bytes(b"two\nlines\x00\n")

    assert [line async for line in file_of(str(photo), b"k")] == [
        InputLine(b"k", b"two\nlines\x00\n")
    ]


def test_refusal_counts_the_missing_records() -> None:
    async def confirm(*outcomes: int | Refused) -> dict[int, list[int]]:
        waiting: list[Any] = []
        for outcome in outcomes:
            future = asyncio.get_running_loop().create_future()
            if isinstance(outcome, Refused):
                future.set_exception(outcome)
            else:
                future.set_result(SimpleNamespace(partition=0, offset=outcome))
            waiting.append(future)
        written: dict[int, list[int]] = {}
        await confirm_all(waiting, written)
        return written

    assert asyncio.run(confirm(3, 4)) == {0: [3, 4, 2]}
    large = Refused(ErrorCode.MESSAGE_TOO_LARGE, "too large.")
    with pytest.raises(Refused, match=r"^too large \(1 of 3 records were not written\)$") as said:
        asyncio.run(confirm(3, large, 4))
    assert said.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(Refused, match=r"^too large\.$"):
        asyncio.run(confirm(large))


def test_report_counts_records_by_partition(capsys: pytest.CaptureFixture[str]) -> None:
    report("t", {1: [5, 9, 5], 0: [3, 3, 1]}, OutputFormat.text)
    assert capsys.readouterr().out == (
        "produced 6 records to t: partition 0 offset 3, partition 1 offsets 5-9\n"
    )
    report("t", {0: [3, 3, 1]}, OutputFormat.text)
    assert capsys.readouterr().out.startswith("produced 1 record to t")
    report("t", {0: [3, 4, 2]}, OutputFormat.json)
    assert json.loads(capsys.readouterr().out) == {
        "topic": "t",
        "count": 2,
        "partitions": [{"partition": 0, "first_offset": 3, "last_offset": 4, "count": 2}],
    }


class _Input:
    """Standard input over a descriptor of the test's choice."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


async def _all() -> list[bytes]:
    return [line async for line in read_lines()]


def test_line_of_a_pipe_is_read_before_the_next_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, into = os.pipe()
    monkeypatch.setattr(sys, "stdin", _Input(out))

    async def main() -> None:
        reader = read_lines()
        os.write(into, b"one\ntw")
        assert await anext(reader) == b"one"
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        os.write(into, b"o\n\nlast")
        assert await waiting == b"two"
        assert await anext(reader) == b""
        os.close(into)
        assert [line async for line in reader] == [b"last"]

    asyncio.run(main())
    os.close(out)


def test_file_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(50_000)))
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", _Input(file.fileno()))
        assert asyncio.run(_all()) == [b"%d" % n for n in range(50_000)]


def test_empty_input_has_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "rb") as file:
        monkeypatch.setattr(sys, "stdin", _Input(file.fileno()))
        assert asyncio.run(_all()) == []


def test_input_that_is_not_a_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))
    assert asyncio.run(_all()) == [b"a", b"b"]


def test_oversized_line_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(produce, "LINE_BYTES_MAX", 100_000)
    path = tmp_path / "binary"
    path.write_bytes(b"x" * 300_000)
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", _Input(file.fileno()))
        with pytest.raises(UserError, match="send binary data with --file"):
            asyncio.run(_all())
