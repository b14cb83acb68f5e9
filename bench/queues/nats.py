"""NATS JetStream, one server with file storage and a work queue, through nats-py.

The publisher waits for the server's acknowledgements with at most `UNCONFIRMED` outstanding; each
consumer pulls from one durable consumer over its own connection and acknowledges each message.
JetStream syncs to disk every two minutes by default, so it acknowledges messages in memory.
"""

import asyncio
import multiprocessing
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.kafka import PeerMissing, free_port
from bench.queues.cycles import (
    LATENCY_SECONDS,
    MESSAGES,
    PACE,
    SIZE,
    UNCONFIRMED,
    Cycles,
    percentile,
)

READY_S = 30
PULLED = 100
"""Maximum messages in one pull request of a consumer."""
PATIENCE_S = 120.0


@contextmanager
def running(programs: Path) -> Iterator[str]:
    """Separate server, stopped and deleted at the end; yields its URL."""
    path = shutil.which("nats-server", path=str(programs)) or shutil.which("nats-server")
    if path is None:
        raise PeerMissing("NATS is not installed (sh bench/queues/fetch_peers.sh)")
    directory = tempfile.mkdtemp(prefix="nats")
    port = free_port()
    server = subprocess.Popen(
        [path, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", directory],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        _wait(port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def _wait(port: int) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise PeerMissing("NATS did not start") from None
            time.sleep(0.05)


def cycles(url: str, consumers: int, messages: int = MESSAGES) -> Cycles:
    rate, _ = asyncio.run(_measure(url, consumers, messages, None))
    _, ages_ms = asyncio.run(_measure(url, consumers, PACE * LATENCY_SECONDS, PACE))
    return Cycles(rate, percentile(ages_ms[len(ages_ms) // 4 :], 0.99))


async def _measure(
    url: str, consumers: int, count: int, pace: int | None
) -> tuple[float, list[float]]:
    import nats
    from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

    stream = f"cycles{time.monotonic_ns()}"
    connection = await nats.connect(url)
    js = connection.jetstream()
    await js.add_stream(
        StreamConfig(
            stream,
            subjects=[stream],
            storage=StorageType.FILE,
            retention=RetentionPolicy.WORK_QUEUE,
        )
    )
    await js.add_consumer(stream, ConsumerConfig(durable_name="workers", max_ack_pending=100_000))
    ages_ms: list[float] = []
    done = asyncio.Event()
    connections = [await nats.connect(url) for _ in range(consumers)]
    tasks = [
        asyncio.create_task(_consume(one, stream, ages_ms, count, done)) for one in connections
    ]
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    publisher = context.Process(
        target=_publish, args=(url, stream, count, pace, ready, go), daemon=True
    )
    publisher.start()
    while not ready.is_set():
        await asyncio.sleep(0.01)
    began = time.monotonic()
    go.set()
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    rate = count / (time.monotonic() - began)
    await asyncio.gather(*tasks)
    publisher.join(PATIENCE_S)
    for one in connections:
        await one.close()
    await js.delete_stream(stream)
    await connection.close()
    return rate, ages_ms


async def _consume(
    connection: Any, stream: str, ages_ms: list[float], count: int, done: asyncio.Event
) -> None:
    js = connection.jetstream()
    pulled = await js.pull_subscribe_bind(durable="workers", stream=stream)
    while not done.is_set():
        try:
            found = await pulled.fetch(PULLED, timeout=1)
        except TimeoutError:
            continue
        now = time.time()
        for message in found:
            ages_ms.append((now - float(message.data[:20])) * 1000)
            await message.ack()
        if len(ages_ms) >= count:
            await connection.flush()
            done.set()


def _publish(url: str, stream: str, count: int, pace: int | None, ready: Any, go: Any) -> None:
    asyncio.run(_publish_all(url, stream, count, pace, ready, go))


async def _publish_all(
    url: str, stream: str, count: int, pace: int | None, ready: Any, go: Any
) -> None:
    import nats

    connection = await nats.connect(url)
    js = connection.jetstream(publish_async_max_pending=UNCONFIRMED)
    ready.set()
    go.wait(PATIENCE_S)
    began = time.monotonic()
    for n in range(count):
        if pace:
            await asyncio.sleep(max(0.0, began + n / pace - time.monotonic()))
        payload = f"{time.time():020.6f}".encode().ljust(SIZE, b".")
        await js.publish_async(stream, payload, wait_stall=PATIENCE_S)
    await js.publish_async_completed()
    await connection.close()
