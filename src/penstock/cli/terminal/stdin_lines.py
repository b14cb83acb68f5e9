"""Asynchronous lines of standard input, each as soon as it is complete.

`tail -f log | penstock produce t` must send a line when it is written, not when a buffer is full.
Ctrl-C must end the command although the terminal sends no input. So the event loop waits for
terminals and pipes; files are always ready and are read directly.
"""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator

from penstock.cli.terminal.errors import UserError

_CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 64 << 20


async def read_lines() -> AsyncIterator[bytes]:
    """Yields the lines without line ends; the last line may lack one."""
    rest = b""
    async for chunk in _chunks():
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LINE_BYTES_MAX:
            raise UserError(
                f"a line is longer than {LINE_BYTES_MAX >> 20} MiB; send binary data with --file"
            )
    if rest:
        yield rest


async def _chunks() -> AsyncIterator[bytes]:
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):
        # Not a real file, as when a program replaces sys.stdin.
        yield sys.stdin.buffer.read()
        return
    while True:
        await _readable(descriptor)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        await asyncio.sleep(0)  # A file or /dev/null is always ready. Let the sender run.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
