"""The queue in front of a socket: what leaves, in which order, and how little memory it takes."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.base.ports import Buffer, Slice
from penstock.broker.server.send_queue import CHUNK_BYTES, SendQueue
from penstock.broker.server.writable_poller import WritablePoller
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.log.read_span import FileSlice
from penstock.node.config import NodeConfig
from penstock.node.node import Node
from penstock.runtime.disk import LocalDisk
from penstock.wire.records import Record, encode, read_header
from tests.run_with import run_with
from tests.unit.broker.server.loops import in_loop, on_both_loops
from tests.unit.broker.server.world import (
    correlation_of,
    fetch_frame,
    fetched,
    produce_frame,
    versions_frame,
)
from tests.unit.log.building import make_keyring

KIB, MIB = 1 << 10, 1 << 20


class Sender(asyncio.Protocol):
    """An outbox on a real socket, pumped as a connection does."""

    def __init__(self) -> None:
        self.outbox: SendQueue
        self.poller = WritablePoller()
        self.transport: Any
        self.failure: Exception | None = None
        self.is_lost = asyncio.Event()
        self.buffered_max = 0
        self.pumped = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=256 * KIB, low=0)
        self.outbox = SendQueue(self.transport, self.poller, self.pump)

    def pause_writing(self) -> None:
        self.outbox.is_paused = True

    def resume_writing(self) -> None:
        self.outbox.is_paused = False
        asyncio.get_running_loop().call_soon(self.pump)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost.set()
        self.outbox.clear()
        self.poller.close()

    def send(self, *parts: Buffer | Slice) -> None:
        self.outbox.put(parts)
        self.pump()

    def pump(self) -> None:
        self.pumped += 1
        if self.is_lost.is_set():
            return
        try:
            self.outbox.pump()
        except (OSError, EOFError) as error:
            self.failure = error
            self.transport.abort()
        self.buffered_max = max(self.buffered_max, self.transport.get_write_buffer_size())


def never() -> None:
    raise AssertionError("no wait for a writable socket")


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[Sender, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * KIB)
    for end in (near, far):
        end.setblocking(False)
    _, sender = await asyncio.get_running_loop().create_connection(Sender, sock=near)
    try:
        yield sender, far
    finally:
        far.close()
        sender.transport.abort()
        await sender.is_lost.wait()


async def received(far: socket.socket, size: int, step: int = 64 * KIB) -> bytes:
    """Reads in small steps, letting the sender run in between."""
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < size:
        part = await loop.sock_recv(far, step)
        if not part:
            break
        data += part
        await asyncio.sleep(0)
    return bytes(data)


def log_of(path: Path, sizes: list[int]) -> Log:
    """A log on the real disk with one batch for each size."""
    log = Log.open(LocalDisk(), str(path / "log"), LogConfig(), 0)
    for size in sizes:
        batch = memoryview(encode([Record(0, 1000, None, os.urandom(size), ())]))
        log.append(batch, read_header(batch), 0, 0)
    return log


def slice_of(log: Log, offset: int = 0) -> FileSlice:
    span = log.locate(offset, 1 << 30, log.end_offset)
    assert span is not None
    part = span.slice()
    assert part is not None
    return part


def content_of(log: Log) -> bytes:
    segment = log.segments.active
    return segment.file.read(0, segment.size)


@on_both_loops
@pytest.mark.parametrize("step", [3 * KIB, 300 * KIB])
@run_with(in_loop, fixtures=["new_loop"])
async def test_slow_reader_gets_file_bytes_with_little_memory(*, tmp_path: Path, step: int) -> None:
    log = log_of(tmp_path, [MIB, 10, MIB, 2 * MIB, 100])
    async with connected() as (sender, far):
        sender.send(b"head", slice_of(log))
        expected = b"head" + content_of(log)
        assert await received(far, len(expected), step) == expected
        assert not sender.outbox.parts
        assert sender.buffered_max <= CHUNK_BYTES + 256 * KIB


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_slow_reader_gets_decrypted_bytes_though_buffers_are_reused(
    *, tmp_path: Path
) -> None:
    """Encrypted batches are decrypted into pooled buffers, reused once they are released."""
    ring = make_keyring()
    config = LogConfig(encrypted=True)
    log = Log.open(LocalDisk(), str(tmp_path / "log"), config, 0, None, ring)
    made = [memoryview(encode([Record(0, 1000, None, os.urandom(MIB), ())])) for _ in range(3)]
    for batch in made:
        log.append(batch, read_header(batch), 0, 0)
    span = log.locate(0, 1 << 30, log.end_offset)
    assert span is not None
    expected = bytes(span.read())
    part = span.sealed_slice()
    assert part is not None
    async with connected() as (sender, far):
        sender.send(b"head", part)
        got = bytearray()
        while len(got) < 4 + len(expected):
            pooled = ring.buffers.take(MIB)
            pooled[:] = bytes(MIB)
            del pooled
            got += await received(far, 1, 64 * KIB)
        assert got == b"head" + expected
        assert not sender.outbox.parts


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_decrypted_data_is_sent_without_a_copy() -> None:
    content = os.urandom(3 * MIB)
    async with connected() as (sender, far):
        sender.send(b"head", memoryview(content), b"foot", memoryview(content), b"end")
        expected = b"head" + content + b"foot" + content + b"end"
        assert await received(far, len(expected), 100 * KIB) == expected
        assert sender.buffered_max <= KIB, "nothing of it is copied into the transport"


def test_decrypted_data_is_sent_in_chunks_without_a_socket() -> None:
    class Hungry(asyncio.Transport):
        taken: ClassVar[list[int]] = []

        def write(self, data: Any) -> None:
            self.taken.append(len(data))

    outbox = SendQueue(Hungry(), WritablePoller(), never)
    outbox.put([b"head", memoryview(bytes(2 * CHUNK_BYTES + 5))])
    outbox.pump()
    assert Hungry.taken == [4, CHUNK_BYTES, CHUNK_BYTES, 5]


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_headers_file_ranges_and_small_replies_keep_their_order(*, tmp_path: Path) -> None:
    log = log_of(tmp_path, [100 * KIB, 50 * KIB])
    content = content_of(log)
    second = content[-len(slice_of(log, 1)) :]
    async with connected() as (sender, far):
        expected = bytearray()
        reading = asyncio.ensure_future(received(far, 20 * (len(content) + len(second)), 10 * KIB))
        for number in range(20):
            head, small = b"<%d>" % number, b"(%d)" % number * 100
            # Replies of one kind also go straight to the transport, as a connection does.
            sender.send(head, slice_of(log), head, slice_of(log, 1), small)
            expected += head + content + head + second + small
            if number % 3 == 0:
                await asyncio.sleep(0.001)
        data = await reading
        data += await received(far, len(expected) - len(data))
        assert data == expected


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_buffered_bytes_are_sent_before_a_file_range(*, tmp_path: Path) -> None:
    log = log_of(tmp_path, [40 * KIB])
    async with connected() as (sender, far):
        written = 0
        while not sender.transport.get_write_buffer_size():
            sender.transport.write(b"e" * KIB)
            written += KIB
        # The peer reads, and the transport has not noticed yet.
        earlier = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                earlier += far.recv(64 * KIB)
        sender.send(b"head", slice_of(log))
        expected = b"e" * written + b"head" + content_of(log)
        rest = await received(far, len(expected) - len(earlier))
        assert earlier + rest == expected


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_partially_sent_header_is_completed(*, tmp_path: Path) -> None:
    log = log_of(tmp_path, [40 * KIB])
    async with connected() as (sender, far):
        head = os.urandom(3 * MIB)
        sender.send(head, slice_of(log))
        expected = head + content_of(log)
        assert await received(far, len(expected)) == expected


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_transfer_of_a_file_reports_progress_without_callbacks(*, tmp_path: Path) -> None:
    log = log_of(tmp_path, [4 * MIB])
    async with connected() as (sender, far):
        sender.send(b"head", slice_of(log), b"tail")
        pumped = sender.pumped
        assert not sender.outbox.has_moved
        expected = b"head" + content_of(log) + b"tail"
        assert await received(far, len(expected)) == expected
        assert sender.outbox.has_moved
        assert sender.pumped - pumped <= 2, "once when the file is through"


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_lost_peer_ends_the_queue_with_an_error(*, tmp_path: Path) -> None:
    log = log_of(tmp_path, [MIB] * 4)
    async with connected() as (sender, far):
        far.close()
        sender.send(b"head", slice_of(log))
        await asyncio.wait_for(sender.is_lost.wait(), 10)


@on_both_loops
@run_with(in_loop, fixtures=["new_loop"])
async def test_log_truncated_during_a_transfer_closes_the_connection(*, tmp_path: Path) -> None:
    log = log_of(tmp_path, [MIB] * 4)
    async with connected() as (sender, far):
        sender.send(b"head", slice_of(log))
        log.sync()
        log.truncate_to(1, 0)
        reading = asyncio.ensure_future(received(far, 5 * MIB))
        await asyncio.wait_for(sender.is_lost.wait(), 10)
        assert isinstance(sender.failure, EOFError)
        assert len(await reading) < 4 * MIB


def test_transport_without_a_socket_gets_all_bytes(tmp_path: Path) -> None:
    class Plain(asyncio.Transport):
        """Transport that accepts everything at once, as TLS would: there is no descriptor."""

        def __init__(self) -> None:
            super().__init__()
            self.data = bytearray()

        def write(self, data: Any) -> None:
            self.data += data

        def get_write_buffer_size(self) -> int:
            return 0

    log = log_of(tmp_path, [MIB, 10])
    transport = Plain()
    outbox = SendQueue(transport, WritablePoller(), never)
    outbox.put([b"head", slice_of(log), b"tail"])
    assert outbox.parts
    outbox.pump()
    assert not outbox.parts
    assert transport.data == b"head" + content_of(log) + b"tail"


def test_cleared_queue_sends_nothing() -> None:
    outbox = SendQueue(asyncio.Transport(), WritablePoller(), never)
    outbox.put([b"never"])
    outbox.clear()
    outbox.pump()
    assert not outbox.parts


# -- the whole way, through a real broker -----------------------------------------------------


def on_broker(
    test: Callable[[str, int, Node], Awaitable[None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    tmp_path: Path,
) -> None:
    async def main() -> None:
        node = Node(NodeConfig(data_dir=str(tmp_path / "data"), kafka_port=0, http_port=0))
        kafka, _ = await node.start()
        try:
            host, _, port = kafka.rpartition(":")
            await test(host, int(port), node)
        finally:
            await node.stop()

    in_loop(main, new_loop)


async def reply(reader: asyncio.StreamReader) -> bytes:
    length = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(length)


@on_both_loops
@run_with(on_broker, fixtures=["new_loop", "tmp_path"])
async def test_fetch_from_a_broker_equals_the_file_for_a_slow_reader(
    host: str, port: int, node: Node
) -> None:
    reader, writer = await asyncio.open_connection(host, port, limit=16 * KIB)
    values = [os.urandom(700 * KIB) for _ in range(8)]
    await create_topic(node)
    for number, value in enumerate(values):
        writer.write(produce_frame(number, value=value))
    for number in range(8):
        assert correlation_of(await reply(reader)) == number
    partition = node.partitions.get("t", 0)
    assert partition is not None
    segment = partition.log.segments.active
    content = segment.file.read(0, segment.size)
    for number in range(4):
        writer.write(fetch_frame(2 * number, offset=2) + versions_frame(2 * number + 1))
    await asyncio.sleep(0.2)  # Meanwhile the socket is full and nothing is read.
    for number in range(4):
        large, small = await reply(reader), await reply(reader)
        assert correlation_of(large) == 2 * number
        assert correlation_of(small) == 2 * number + 1
        assert fetched(large) == content[-6 * (segment.size // 8) :]
    writer.close()


async def create_topic(node: Node) -> None:
    from penstock.cluster.metadata import topics

    new = topics.NewTopic("t", 1)
    plan = topics.plan_topic(new, node.ctx.image, node.configs, node.random)
    await node.ctx.reached(await topics.create_topic(node.store, plan))
