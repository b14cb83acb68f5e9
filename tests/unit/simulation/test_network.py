"""`SimNet`: behavior seen by a protocol, and fault injection."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from simulation.loop import SimLoop, run
from simulation.network import host_context
from simulation.transport import SimTransport
from tests.run_with import run_with, with_seeds


class Peer(asyncio.Protocol):
    """Protocol that records its events."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.segments = 0
        self.events: list[str] = []
        self.transport: SimTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.segments += 1

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}" if exc else "lost")


class BufferedPeer(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(100)
        self.received = bytearray()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]


Scenario = Callable[[SimLoop, Peer, Peer], Awaitable[None]]


def between(scenario: Scenario, seed: int = 0) -> SimLoop:
    """Runs a scenario with a connection from host a to a server on host b."""

    async def main(loop: SimLoop) -> None:
        accepted: list[Peer] = []

        def accept() -> Peer:
            accepted.append(Peer())
            return accepted[-1]

        async def serve() -> None:
            await loop.create_server(accept, "b", 9092)

        await loop.create_task(serve(), context=host_context("b"))
        connecting = loop.create_connection(Peer, "b", 9092, local_addr=("a", 0))
        _, client = await connecting
        assert isinstance(client, Peer)
        await scenario(loop, client, accepted[0])

    return run(main, seed)[1]


@pytest.mark.parametrize("seed", range(5))
@run_with(between, fixtures=["seed"])
async def test_bytes_arrive_in_order_for_any_segmentation(
    loop: SimLoop, client: Peer, server: Peer
) -> None:
    loop.net.whole_ratio = 0.2
    sent = b""
    for i in range(200):
        part = bytes([i]) * (i + 1)
        client.transport.write(part)
        sent += part
        if i % 9 == 0:
            await asyncio.sleep(0.0001)
    await asyncio.sleep(10)
    assert server.received == sent
    assert server.segments > 200


@run_with(between)
async def test_latency_is_virtual_and_within_its_range(
    loop: SimLoop, client: Peer, server: Peer
) -> None:
    loop.net.latency_s = (2.0, 3.0)
    loop.net.whole_ratio = 1.0
    started = loop.time()
    client.transport.write(b"x")
    while not server.received:
        await asyncio.sleep(0.01)
    assert 2.0 <= loop.time() - started <= 3.02


@run_with(between)
async def test_socket_names_of_both_ends_match(loop: SimLoop, client: Peer, server: Peer) -> None:
    assert client.transport.get_extra_info("peername") == ("b", 9092)
    assert server.transport.get_extra_info("sockname") == ("b", 9092)
    near = client.transport.get_extra_info("sockname")
    assert near == server.transport.get_extra_info("peername")
    assert near[0] == "a"


@run_with(between)
async def test_close_sends_buffered_data_and_end_of_file(
    loop: SimLoop, client: Peer, server: Peer
) -> None:
    client.transport.write(b"x" * 1_000_000)
    client.transport.close()
    client.transport.write(b"too late")
    await asyncio.sleep(60)
    assert len(server.received) == 1_000_000
    assert server.events == ["made", "eof", "lost"]
    assert client.events[-1] == "lost"


@run_with(between)
async def test_abort_resets_the_peer(loop: SimLoop, client: Peer, server: Peer) -> None:
    client.transport.abort()
    await asyncio.sleep(1)
    assert client.events == ["made", "lost"]
    assert server.events == ["made", "lost ConnectionResetError"]


@run_with(between)
async def test_paused_reader_pauses_the_writer(loop: SimLoop, client: Peer, server: Peer) -> None:
    server.transport.pause_reading()
    client.transport.set_write_buffer_limits(high=1000)
    for _ in range(30):
        client.transport.write(b"x" * 10_000)
        await asyncio.sleep(0.1)
    assert not server.received
    assert client.events == ["made", "pause"]
    assert client.transport.get_write_buffer_size() == 300_000 - loop.net.window_bytes
    server.transport.resume_reading()
    await asyncio.sleep(10)
    assert len(server.received) == 300_000
    assert client.events == ["made", "pause", "resume"]


@run_with(between)
async def test_buffered_protocol_receives_all_data_in_its_buffer(
    loop: SimLoop, client: Peer, server: Peer
) -> None:
    buffered = BufferedPeer()
    server.transport.set_protocol(buffered)
    sent = bytes(range(256)) * 10
    client.transport.writelines([sent[:1000], sent[1000:]])
    await asyncio.sleep(1)
    assert buffered.received == sent


@run_with(with_seeds, 10, between)
async def test_bytes_of_a_cut_route_arrive_in_order_after_heal(
    loop: SimLoop, client: Peer, server: Peer
) -> None:
    client.transport.write(b"1")
    loop.net.cut("a", "b", both=False)
    client.transport.write(b"2")
    server.transport.write(b"back")
    await asyncio.sleep(100)
    assert (bytes(server.received), bytes(client.received)) == (b"", b"back")
    client.transport.write(b"3")
    loop.net.heal()
    client.transport.write(b"4")
    await asyncio.sleep(1)
    assert server.received == b"1234"
    assert server.events == ["made"]


@run_with(between)
async def test_connecting_over_a_cut_times_out_and_to_a_closed_port_is_refused(
    loop: SimLoop, client: Peer, server: Peer
) -> None:
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Peer, "b", 1, local_addr=("a", 0))
    loop.net.isolate("b", ["a"])
    started = loop.time()
    with pytest.raises(TimeoutError):
        await loop.create_connection(Peer, "b", 9092, local_addr=("a", 0))
    assert 30 <= loop.time() - started <= 31


@run_with(between)
async def test_reset_breaks_both_ends(loop: SimLoop, client: Peer, server: Peer) -> None:
    assert loop.net.reset("a", "b") == 2
    await asyncio.sleep(1)
    assert client.events == server.events == ["made", "lost ConnectionResetError"]


@run_with(between)
async def test_crash_resets_peers_of_the_host(loop: SimLoop, client: Peer, server: Peer) -> None:
    loop.net.crash("b")
    await asyncio.sleep(1)
    assert server.events == ["made"]
    assert client.events == ["made", "lost ConnectionResetError"]
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(Peer, "b", 9092, local_addr=("a", 0))


@run_with(between)
async def test_silent_crash_is_noticed_on_send(loop: SimLoop, client: Peer, server: Peer) -> None:
    loop.net.crash("b", silent=True)
    await asyncio.sleep(1000)
    assert client.events == ["made"]
    client.transport.write(b"hello?")
    await asyncio.sleep(1)
    assert client.events == ["made", "lost ConnectionResetError"]


@run_with(between)
async def test_raising_protocol_is_disconnected(loop: SimLoop, client: Peer, server: Peer) -> None:
    reported: list[object] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context["exception"]))

    def fail(data: bytes) -> None:
        raise ValueError(data)

    server.data_received = fail  # type: ignore[method-assign]
    client.transport.write(b"x")
    await asyncio.sleep(1)
    assert isinstance(reported[0], ValueError)
    assert server.events == ["made", "lost ValueError"]
    assert client.events == ["made", "lost ConnectionResetError"]


def test_asyncio_streams_are_deterministic() -> None:
    async def main(loop: SimLoop) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1000):
                writer.write(data)
                await writer.drain()
            writer.close()

        async def client(i: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for n in range(20):
                message = b"%d %d;" % (i, n) * 50
                writer.write(message)
                assert await reader.readexactly(len(message)) == message
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(echo, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*[client(i) for i in range(5)])
        await asyncio.sleep(1)
        server.close()
        await server.wait_closed()

    assert run(main, 4)[1].trace == run(main, 4)[1].trace != run(main, 5)[1].trace


@run_with(run)
async def test_single_route_is_restored(loop: SimLoop) -> None:
    net = loop.net
    net.isolate("a", ["b", "c"])
    net.mend("a", "b")
    reached = []
    for host in ("b", "c"):
        server = net.listen(asyncio.Protocol, host, 80)
        try:
            async with asyncio.timeout(1):
                await net.connect(asyncio.Protocol, host, 80, local_addr=("a", 0))
            reached.append(host)
        except TimeoutError:
            pass
        server.close()
    assert reached == ["b"]
