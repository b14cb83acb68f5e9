"""A listener on the simulated network with a node behind it, and peers that speak in bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.broker.server.connection import KafkaConnection
from penstock.broker.server.listener import Listener, ListenerLimits
from penstock.wire.codec import reader, writer
from penstock.wire.framing import read_response_header, request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record, encode
from simulation.loop import SimLoop, run
from simulation.network import host_context
from simulation.transport import SimTransport
from tests.unit.broker.api.harness import Node

PRODUCE_VERSION, FETCH_VERSION = 9, 12
LIMITS = ListenerLimits(
    connections_max=100,
    connections_per_ip_max=50,
    idle_ms_max=600_000,
    frame_bytes_max=10 << 20,
    buffered_bytes_max=64 << 20,
)


# -- requests as bytes ------------------------------------------------------------------------


def framed(request: Any, version: int, correlation_id: int) -> bytes:
    parts: list[Any] = []
    writer(type(request), version)(request, parts)
    frame = request_frame(correlation_id, "tester", type(request), version, parts)
    return b"".join(bytes(part) for part in frame)


def versions_frame(correlation_id: int) -> bytes:
    return framed(ApiVersionsRequest(), 0, correlation_id)


def metadata_frame(correlation_id: int) -> bytes:
    return framed(MetadataRequest(topics=[]), 9, correlation_id)


def produce_frame(
    correlation_id: int, topic: str = "t", value: bytes = b"v", acks: int = -1, index: int = 0
) -> bytes:
    batch = memoryview(encode([Record(0, -1, b"k", value, ())]))
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=index, records=batch)]
    )
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    return framed(request, PRODUCE_VERSION, correlation_id)


def fetch_frame(
    correlation_id: int,
    topic: str = "t",
    offset: int = 0,
    *,
    wait_ms: int = 0,
    bytes_max: int = 8 << 20,
) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    return framed(request, FETCH_VERSION, correlation_id)


# -- replies ----------------------------------------------------------------------------------


def correlation_of(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big")


def decoded(frame: bytes, declared: type[Any], version: int) -> Any:
    view = memoryview(frame)
    _, position = read_response_header(view, 0, len(view), declared, version)
    return reader(declared, version)(view, position, len(view))[0]


def produced(frame: bytes) -> tuple[int, int]:
    """Error code and offset of the only row."""
    response: ProduceResponse = decoded(frame, ProduceResponse, PRODUCE_VERSION)
    row = response.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


def fetched(frame: bytes) -> bytes:
    response: FetchResponse = decoded(frame, FetchResponse, FETCH_VERSION)
    row = response.responses[0].partitions[0]
    assert row.error_code == 0
    assert isinstance(row.records, memoryview)
    return bytes(row.records)


def spoken(frame: bytes) -> int:
    """Number of APIs in an ApiVersions response."""
    response: ApiVersionsResponse = decoded(frame, ApiVersionsResponse, 0)
    return len(response.api_keys)


# -- peers ------------------------------------------------------------------------------------


class Peer(asyncio.Protocol):
    """The other end of a connection: cuts what it receives into frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.received = 0
        self.is_lost = False
        self.transport: SimTransport
        self._unread = b""
        self._news = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self._unread += data
        while len(self._unread) >= 4:
            end = 4 + int.from_bytes(self._unread[:4], "big")
            if len(self._unread) < end:
                break
            self.frames.append(self._unread[4:end])
            self._unread = self._unread[end:]
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._news.set()

    def send(self, *frames: bytes) -> None:
        self.transport.write(b"".join(frames))

    async def replies(self, count: int) -> list[bytes]:
        """The first `count` replies, without their lengths."""
        while len(self.frames) < count and not self.is_lost:
            self._news.clear()
            await self._news.wait()
        assert len(self.frames) >= count, "the connection was lost"
        return self.frames[:count]

    async def lost(self) -> None:
        while not self.is_lost:
            self._news.clear()
            await self._news.wait()


class World:
    """One node, one listener, and the clients that connect."""

    def __init__(self, loop: SimLoop, node: Node, listener: Listener, port: int) -> None:
        self.loop = loop
        self.node = node
        self.listener = listener
        self.port = port

    async def connect(self, host: str = "peer") -> Peer:
        made = self.loop.create_task(
            self.loop.create_connection(Peer, "broker", self.port), context=host_context(host)
        )
        _, peer = await made
        assert isinstance(peer, Peer)
        return peer

    def only_connection(self) -> KafkaConnection:
        (connection,) = self.listener._connections
        return connection


def in_world(
    test: Callable[[World], Awaitable[None]],
    seed: int = 0,
    limits: ListenerLimits = LIMITS,
    configs: dict[str, str] | None = None,
) -> None:
    """Runs `test(world)` on a simulated loop; the topic `t` is there."""

    async def main(loop: SimLoop) -> None:
        node = await Node().start(loop, configs or {})
        await node.create("t", 2)
        listener = Listener(node.ctx, limits)
        starting = loop.create_task(listener.start("broker", 0), context=host_context("broker"))
        world = World(loop, node, listener, await starting)
        try:
            await test(world)
        finally:
            await listener.stop(0.0)
            await node.stop()

    run(main, seed, time_max=100_000.0)
