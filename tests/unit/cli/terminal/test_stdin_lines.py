"""Standard input line by line: from pipes as lines come, from files, from nothing."""

import asyncio
import io
import os
import sys
from pathlib import Path

import pytest

from penstock.cli.terminal import stdin_lines
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.stdin_lines import read_lines


class _Input:
    """Standard input over a descriptor of the test's choice."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


async def _all() -> list[bytes]:
    return [line async for line in read_lines()]


def test_a_line_of_a_pipe_comes_before_the_next_is_written(
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


def test_a_file_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(50_000)))
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", _Input(file.fileno()))
        assert asyncio.run(_all()) == [b"%d" % n for n in range(50_000)]


def test_nothing_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "rb") as file:
        monkeypatch.setattr(sys, "stdin", _Input(file.fileno()))
        assert asyncio.run(_all()) == []


def test_input_that_is_no_file_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb")))
    assert asyncio.run(_all()) == [b"a", b"b"]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stdin_lines, "LINE_BYTES_MAX", 100_000)
    path = tmp_path / "binary"
    path.write_bytes(b"x" * 300_000)
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", _Input(file.fileno()))
        with pytest.raises(UserError, match="send binary data with --file"):
            asyncio.run(_all())
