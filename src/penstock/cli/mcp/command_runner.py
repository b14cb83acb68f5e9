"""Runs commands of this command line for tools: bounded in time, in output and in number.

A command gets its brokers, profile and security settings from this process's own options, so the
cluster checks the same permissions, and writes the same audit log, as for the user at a terminal.
Names that callers choose cannot become options: options are written as `--name=value`, and
arguments follow `--`.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

COMMAND: Final = (sys.executable, "-c", "from penstock.cli.main import main; main()")
TIMEOUT_SECONDS: Final = 60.0
OUTPUT_BYTES_MAX: Final = 1 << 20
"""A model reads a small part of this; more than it is a question that is too wide."""
RUNNING_MAX: Final = 4

Options = Mapping[str, str | int | float | bool | Sequence[str] | None]


class CommandFailed(Exception):
    """A command that ended with an error; the text is what it printed."""


class CommandRunner:
    """Runs commands with one environment; further ones wait while `RUNNING_MAX` run."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**os.environ, **environment, "NO_COLOR": "1"}
        self._free = asyncio.Semaphore(RUNNING_MAX)

    async def json(
        self, command: str, arguments: Iterable[str] = (), options: Options | None = None
    ) -> Any:
        """Runs a command with `--format=json` and returns what it printed, parsed."""
        text = await self.text(command, arguments, {"format": "json", **(options or {})})
        return json.loads(text) if text.strip() else None

    async def json_lines(
        self, command: str, arguments: Iterable[str] = (), options: Options | None = None
    ) -> list[Any]:
        """Same as `json`, for a command that prints one object by line."""
        text = await self.text(command, arguments, {"format": "json", **(options or {})})
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    async def text(
        self, command: str, arguments: Iterable[str] = (), options: Options | None = None
    ) -> str:
        """Runs a command and returns what it printed; raises CommandFailed."""
        words = [*command.split(), *flags(options or {}), "--", *arguments]
        async with self._free:
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                limit=OUTPUT_BYTES_MAX,
            )
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    told, complaint = await asyncio.gather(
                        _read(process.stdout), _read(process.stderr)
                    )
                    code = await process.wait()
            except TimeoutError:
                raise CommandFailed(
                    f"`penstock {command}` did not end within {TIMEOUT_SECONDS:.0f} s; ask for less"
                ) from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        if code != 0:
            raise CommandFailed(complaint.strip() or f"`penstock {command}` ended with {code}")
        return told


def flags(options: Options) -> list[str]:
    """Options as words; None and False are left out, sequences repeat the option."""
    words = []
    for name, value in options.items():
        dashed = "--" + name.replace("_", "-")
        if value is True:
            words.append(dashed)
        elif isinstance(value, str | int | float) and value is not False:
            words.append(f"{dashed}={value}")
        elif isinstance(value, Sequence):
            words += [f"{dashed}={item}" for item in value]
    return words


async def _read(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    parts, size = [], 0
    while part := await stream.read(1 << 16):
        size += len(part)
        if size > OUTPUT_BYTES_MAX:
            raise CommandFailed(
                f"the answer is larger than {OUTPUT_BYTES_MAX} bytes; narrow the question by a "
                "name, a filter or a limit"
            )
        parts.append(part)
    return b"".join(parts).decode(errors="replace")
