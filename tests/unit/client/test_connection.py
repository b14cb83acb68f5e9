"""A connection answers each request once: with its reply, or with an error that says why."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.cluster import Cluster
from penstock.client.connection import Address, Connection, ConnectionConfig, FrameCutter, connect
from penstock.client.errors import ConnectionLost, RequestTimeout, Unreachable
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from penstock.wire.messages.produce import ProduceRequest
from simulation.loop import SimLoop, run
from tests.run_with import run_with, with_seeds
from tests.unit.client.model import CLOSE, HANG, ModelBroker

Scenario = Callable[[SimLoop, ModelBroker, Connection], Awaitable[None]]
ALL = MetadataRequest(topics=None)


def connected(scenario: Scenario, seed: int = 1, **config: Any) -> None:
    async def main(loop: SimLoop) -> None:
        broker = ModelBroker()
        connection = await connect(await broker.start(), ConnectionConfig(**config))
        await scenario(loop, broker, connection)
        connection.close()
        await connection.wait_closed()

    run(main, seed, time_max=1000.0)


def refused(main: Callable[[SimLoop], Any], message: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        run(main, time_max=1000.0)
    assert message in str(caught.value)


@run_with(with_seeds, 5, connected)
async def test_pipelined_requests_get_their_own_replies(
    loop: SimLoop, broker: ModelBroker, connection: Connection
) -> None:
    broker.create("a")
    broker.create("b", 3)
    replies = await asyncio.gather(
        *(connection.call(ALL, MetadataResponse) for _ in range(20)),
    )
    assert len(replies) == 20
    for reply in replies:
        assert [(t.name, len(t.partitions)) for t in reply.topics] == [("a", 1), ("b", 3)]
    assert broker.connections == 1


@run_with(run)
async def test_highest_common_version_is_used(loop: SimLoop) -> None:
    broker = ModelBroker()
    broker.versions[3] = (0, 5)
    broker.versions[0] = (0, 2)
    del broker.versions[1]
    connection = await connect(await broker.start(), ConnectionConfig())
    assert connection.version_of(MetadataRequest) == 5
    assert connection.version_of(MetadataRequest, limit=4) == 4
    assert (await connection.call(ALL, MetadataResponse)).controller_id == 1
    with pytest.raises(Refused, match=r"supports ProduceRequest versions 0-2, this client 3-13"):
        connection.version_of(ProduceRequest)
    connection.close()


@run_with(run)
async def test_broker_without_the_api_versions_version_is_asked_in_its_own(
    loop: SimLoop,
) -> None:
    broker = ModelBroker()
    broker.versions[18] = (0, 2)
    connection = await connect(await broker.start(), ConnectionConfig())
    assert connection.versions[18] == (0, 2)
    assert len(broker.seen) == 1
    connection.close()


@run_with(
    refused,
    "cannot reach broker:9092: connection refused; is the broker running? "
    "start one with `penstock up`",
    Unreachable,
)
async def test_absent_broker_error_says_what_to_do(loop: SimLoop) -> None:
    await connect(Address("broker", 9092), ConnectionConfig())


@run_with(refused, "cannot reach broker:9092: no answer in time", Unreachable)
async def test_broker_behind_a_cut_network_is_unreachable_in_time(loop: SimLoop) -> None:
    broker = ModelBroker()
    address = await broker.start()
    loop.net.cut("localhost", "broker")
    try:
        await connect(address, ConnectionConfig(connect_timeout_ms=3000))
    finally:
        assert 2.9 < loop.time() < 3.1


@run_with(connected)
async def test_request_timeout_closes_the_connection(
    loop: SimLoop, broker: ModelBroker, connection: Connection
) -> None:
    broker.answers[MetadataRequest] = lambda request: HANG
    started = loop.time()
    with pytest.raises(RequestTimeout, match=r"did not answer MetadataRequest within 2 s"):
        await connection.call(ALL, MetadataResponse, timeout_ms=2000)
    assert 1.9 < loop.time() - started < 2.1
    assert connection.is_closed
    with pytest.raises(RequestTimeout):
        await connection.call(ALL, MetadataResponse)


@run_with(connected)
async def test_requests_in_flight_fail_when_the_broker_closes(
    loop: SimLoop, broker: ModelBroker, connection: Connection
) -> None:
    broker.answers[MetadataRequest] = lambda request: CLOSE
    calls = [connection.send(ALL, MetadataResponse) for _ in range(3)]
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, ConnectionLost)
    with pytest.raises(ConnectionLost):
        connection.send(ALL, MetadataResponse)


@run_with(connected)
async def test_cancelled_caller_does_not_affect_the_next(
    loop: SimLoop, broker: ModelBroker, connection: Connection
) -> None:
    task = loop.create_task(connection.call(ALL, MetadataResponse))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await connection.call(ALL, MetadataResponse)).controller_id == 1


@run_with(connected, in_flight_max=3)
async def test_calls_wait_for_capacity_in_flight(
    loop: SimLoop, broker: ModelBroker, connection: Connection
) -> None:
    most = 0

    async def slowly(request: Any) -> Any:
        nonlocal most
        await asyncio.sleep(0.1)
        most = max(most, len(connection._in_flight))
        return broker.metadata(request)

    broker.answers[MetadataRequest] = slowly
    await asyncio.gather(*(connection.call(ALL, MetadataResponse) for _ in range(12)))
    assert most == 3


class _Outsider(asyncio.Protocol):
    """A server of another protocol: it answers anything with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer:
            self._transport.write(self._answer)
        else:
            self._transport.close()


def outsider(answer: bytes) -> Callable[[SimLoop], Any]:
    async def main(loop: SimLoop) -> None:
        await loop.create_server(lambda: _Outsider(answer), "broker", 80)
        await connect(Address("broker", 80), ConnectionConfig())

    return main


def test_http_peer_is_recognized() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    refused(
        outsider(answer),
        "the peer speaks HTTP, not Kafka's protocol; is this the Kafka port?",
        PeerError,
    )


def test_oversized_frame_length_is_refused() -> None:
    refused(outsider(b"\x7f\xff\xff\xff"), "frame of 2147483647 bytes", PeerError)
    refused(outsider(b"\xff\xff\xff\xfe"), "frame of -2 bytes", PeerError)


def test_unexpected_correlation_id_is_a_protocol_error() -> None:
    refused(outsider(b"\0\0\0\4\0\0\7\7"), "got the reply to request 1799 instead of 1", PeerError)


def test_malformed_reply_is_a_protocol_error() -> None:
    refused(outsider(b"\0\0\0\7\0\0\0\1\0\0\5"), "broke the protocol", PeerError)


def test_server_that_closes_at_once_is_explained() -> None:
    refused(outsider(b""), "closed the connection instead of answering ApiVersions", Unreachable)


@run_with(run)
async def test_refusal_has_the_kafka_error_code(loop: SimLoop) -> None:
    broker = ModelBroker()
    address = await broker.start()
    from simulation.random import SimRandom

    async with Cluster(SimRandom(1), [address]) as cluster:
        with pytest.raises(Refused, match=r"topic 'nope' does not exist") as caught:
            await cluster.topic("nope")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def feed(cutter: FrameCutter, data: bytes) -> list[bytes]:
    frames = []
    while data:
        space = cutter.space()
        assert len(space) > 0
        count = min(len(space), len(data))
        space[:count] = data[:count]
        frames += [bytes(frame) for frame in cutter.received(count)]
        data = data[count:]
    return frames


def frame(size: int, fill: int) -> bytes:
    return struct.pack(">i", size) + bytes([fill % 256]) * size


@given(
    st.lists(st.integers(1, 200_000), min_size=1, max_size=6),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=8),
)
def test_frames_survive_any_split(sizes: list[int], cuts: list[int]) -> None:
    stream = b"".join(frame(size, number) for number, size in enumerate(sizes))
    cutter = FrameCutter(1 << 20)
    frames = []
    turn = 0
    while stream:
        cut = cuts[turn % len(cuts)]
        turn += 1
        frames += feed(cutter, stream[:cut])
        stream = stream[cut:]
    assert frames == [bytes([number]) * size for number, size in enumerate(sizes)]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 101, 2**31 - 1])
def test_invalid_frame_length_is_refused(size: int) -> None:
    with pytest.raises(PeerError):
        feed(FrameCutter(100), struct.pack(">i", size))


def test_large_frame_is_not_copied_again() -> None:
    cutter = FrameCutter(1 << 20)
    data = frame(500_000, 7)
    assert feed(cutter, data[:10_000]) == []
    own = cutter.space()
    assert len(own) == 500_004 - 10_000
    own[:] = data[10_000:]
    (got,) = cutter.received(len(own))
    assert got.obj is own.obj


def large(cutter: FrameCutter, size: int, fill: int) -> memoryview:
    """One large frame, as a view that the caller holds."""
    data = frame(size, fill)
    found: list[memoryview] = []
    while data:
        space = cutter.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        del space
        found += cutter.received(count)
        data = data[count:]
    (view,) = found
    return view


def test_unreferenced_memory_is_reused() -> None:
    cutter = FrameCutter(1 << 22, reused_bytes_max=1 << 20)
    view = large(cutter, 900_000, 1)
    first = id(view.obj)
    del view
    view = large(cutter, 500_000, 2)
    assert id(view.obj) == first
    assert bytes(view) == b"\2" * 500_000
    held = view[10:20]
    del view
    other = large(cutter, 500_000, 3)
    assert id(other.obj) != first, "the view is still in use"
    assert bytes(held) == b"\2" * 10
    assert bytes(other) == b"\3" * 500_000


def test_memory_beyond_the_limit_is_not_kept() -> None:
    for limit in (0, 800_000):
        cutter = FrameCutter(1 << 22, reused_bytes_max=limit)
        body = large(cutter, 900_000, 1).obj
        view = large(cutter, 900_000, 2)
        assert view.obj is not body
