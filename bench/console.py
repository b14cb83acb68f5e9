"""Cost of console viewers: the broker's CPU with no, one and fifty viewers.

    python -m bench.console --partitions 1000 --viewers 50

A broker has a topic with many partitions and a continuous producer. Viewers follow the
live overview, or a topic's live tail, over their own connections. The broker's CPU time is
read from /proc, without that of the viewers.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tests.brokers import PenstockProcess

TICKS = os.sysconf("SC_CLK_TCK")
LIVE, TAIL = "/console/api/live", "/console/api/topics/t/tail"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def post(http: str, path: str, body: object) -> None:
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(http + path, data, headers), timeout=60).close()


async def view(http: str, path: str) -> tuple[int, int]:
    """Follows a stream until cancelled; returns its events and bytes."""
    where = urlsplit(http)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nx-penstock-console: 1\r\n\r\n".encode())
    events = size = 0
    try:
        while data := await reader.read(1 << 16):
            events += data.count(b"event: ")
            size += len(data)
    except asyncio.CancelledError:
        pass
    writer.close()
    return events, size


async def write_on(http: str, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    messages = {"messages": [{"payload": {"n": at}, "key": str(at)} for at in range(20)]}
    while loop.time() < end:
        await asyncio.to_thread(post, http, "/topics/t/messages", messages)
        await asyncio.sleep(0.2)


async def measure(process: PenstockProcess, path: str, viewers: int, seconds: float) -> None:
    tasks = [asyncio.create_task(view(process.http, path)) for _ in range(viewers)]
    await asyncio.sleep(3)
    before, began = cpu_seconds(process.pid), time.monotonic()
    await write_on(process.http, seconds)
    used, took = cpu_seconds(process.pid) - before, time.monotonic() - began
    for task in tasks:
        task.cancel()
    seen = await asyncio.gather(*tasks)
    events = min((count for count, _ in seen), default=0)
    size = sum(count for _, count in seen)
    print(
        f"{path if viewers else 'none':32} {viewers:4} viewers: {used / took:6.1%} of a core, "
        f"at least {events} events each, {size / 1024 / took:,.0f} KiB/s in all",
        flush=True,
    )


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        process = PenstockProcess(Path(folder) / "data")
        try:
            post(process.http, "/topics", {"name": "t", "partitions": 3})
            post(process.http, "/topics", {"name": "many", "partitions": options.partitions})
            for path, viewers in ((LIVE, 0), (LIVE, 1), (LIVE, options.viewers),
                                  (TAIL, 1), (TAIL, options.viewers)):  # fmt: skip
                await measure(process, path, viewers, options.seconds)
        finally:
            process.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
