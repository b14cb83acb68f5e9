"""Hostile clients, as a process of their own: `python -m tests.scenarios.hostile`.

Five kinds, as many of each, from several addresses of this machine, all at once and for as long as
standard input is open: unfinished TLS handshakes, requests that arrive byte by byte, frames that
claim to be huge, frames full of tagged fields, and decompression bombs. A disconnected client
returns. Prints a line when all are connected, and a count at the end.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import resource
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import cramjam
import crc32c

from bench import probe

ADDRESSES = 20
BOMB_BYTES = 256 << 20
TAGS = 20_000
FRAME_BYTES = 100 << 20
HOLD_SECONDS = 2.0
OPENING = 100
"""Connections that one attacker opens at the same time."""
SERVED_MAX = 2
"""Requests that unpack to much are sent this often on a connection."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
seen: Counter[str] = Counter()


class Gate:
    """Limit of concurrent connects, and whether all have tried."""

    def __init__(self, count: int) -> None:
        self.opening = asyncio.Semaphore(OPENING)
        self.all_came = asyncio.Event()
        self._left = count

    def came(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.all_came.set()


async def half_open(streams: Streams) -> None:
    """The head of a ClientHello whose rest never comes."""
    reader, writer = streams
    writer.write(bytes.fromhex("16030102000100"))
    await reader.read()


async def slow_bytes(streams: Streams) -> None:
    """A request for the versions, one byte a second."""
    _, writer = streams
    frame = probe.frame(18, 0, 1, b"")
    for byte in itertools.cycle(frame):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1.0)
        if writer.is_closing():
            return


async def huge_lengths(streams: Streams) -> None:
    """The beginning of a frame of a hundred megabytes."""
    reader, writer = streams
    writer.write(struct.pack(">i", FRAME_BYTES) + bytes(2_000))
    await reader.read()


async def tagged_fields(streams: Streams) -> None:
    """A flexible header with more tags than any client ever had."""
    reader, writer = streams
    tags = b"".join(_varint(number) + b"\0" for number in range(TAGS))
    body = struct.pack(">hhih", 18, 3, 1, -1) + _varint(TAGS) + tags + b"\1\1\0"
    writer.write(struct.pack(">i", len(body)) + body)
    await writer.drain()
    await reader.read()


def bombs(topic: str) -> Callable[[Streams], Awaitable[None]]:
    frame = _bomb(topic)

    async def bomb(streams: Streams) -> None:
        reader, writer = streams
        for _ in range(SERVED_MAX):
            writer.write(frame)
            await writer.drain()
            await reader.read(4096)
        await reader.read()

    return bomb


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _bomb(topic: str) -> bytes:
    """A produce request with one batch of zstd that unpacks to `BOMB_BYTES`."""
    press = cramjam.zstd.Compressor()
    for _ in range(BOMB_BYTES >> 20):
        press.compress(bytes(1 << 20))
    # Built piece by piece, it does not declare its size, so the receiver cannot know it beforehand.
    packed = bytes(press.finish())
    rest = struct.pack(">hiqqqhii", 4, 0, 0, 0, -1, -1, -1, 1) + packed
    head = struct.pack(">iBI", -1, 2, crc32c.crc32c(rest))
    batch = struct.pack(">qi", 0, len(head) + len(rest)) + head + rest
    name = topic.encode()
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return probe.frame(0, 7, 7, body)


async def attack(
    kind: Callable[[Streams], Awaitable[None]], name: str, port: int, source: str, gate: Gate
) -> None:
    """Comes back for as long as it lasts."""
    while True:
        try:
            async with gate.opening:
                streams = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        except OSError:
            seen[f"{name} not let in"] += 1
            gate.came()
            await asyncio.sleep(HOLD_SECONDS)
            continue
        seen[f"{name} opened"] += 1
        gate.came()
        try:
            await kind(streams)
        except OSError:
            pass
        finally:
            streams[1].transport.abort()
        seen[f"{name} thrown out"] += 1
        await asyncio.sleep(HOLD_SECONDS)


async def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("plain", "tls", "count"):
        parser.add_argument(f"--{option}", type=int, required=True)
    parser.add_argument("--topic", required=True)
    given = parser.parse_args()
    kinds: list[tuple[Callable[[Streams], Awaitable[None]], str, int]] = [
        (half_open, "half-open TLS", given.tls),
        (slow_bytes, "slow bytes", given.plain),
        (huge_lengths, "huge lengths", given.plain),
        (tagged_fields, "tagged fields", given.plain),
        (bombs(given.topic), "bombs", given.plain),
    ]
    gate = Gate(given.count)
    tasks = []
    for number in range(given.count):
        kind, name, port = kinds[number % len(kinds)]
        source = f"127.0.7.{1 + number % ADDRESSES}"
        tasks.append(asyncio.create_task(attack(kind, name, port, source, gate)))
    await gate.all_came.wait()
    print("all are there", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for what, count in sorted(seen.items()):
        print(f"{what}: {count}", flush=True)


if __name__ == "__main__":
    # Attackers would have their own machines: here they run at low priority unless told otherwise.
    os.nice(int(os.environ.get("PENSTOCK_HOSTILE_NICE", "10")))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
