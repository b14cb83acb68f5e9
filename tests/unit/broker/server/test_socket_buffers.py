"""Socket buffers: who is accepted has those that the configuration names."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.broker.server.socket_buffers import (
    CONGESTION_WITHOUT_PACING,
    IPPROTO_TCP,
    SO_RCVBUF,
    SO_SNDBUF,
    SOL_SOCKET,
    SYSTEM_DEFAULT,
    TCP_CONGESTION,
    SocketBufferSizes,
    disable_pacing,
)
from penstock.node.config import NodeConfig
from penstock.node.node import Node
from tests.run_with import run_with

KIB = 1024


def buffers_of(listening: socket.socket) -> tuple[int, int]:
    """Buffer sizes that the kernel gives to an accepted socket: twice as much, for data and its own
    overhead.
    """
    with socket.create_connection(listening.getsockname()) as _:
        accepted, _ = listening.accept()
        with accepted:
            options = (SO_SNDBUF, SO_RCVBUF)
            sent, received = (accepted.getsockopt(SOL_SOCKET, option) for option in options)
            return sent, received


def on_accepted(
    check: Callable[[Any], Awaitable[None]],
    tmp_path: Path,
    sets: Mapping[str, str] | None = None,
    come_from: str = "127.0.0.1",
) -> None:
    """Checks the socket that a node has of a client."""

    async def main() -> None:
        data_dir = str(tmp_path / "data")
        node = Node(NodeConfig(data_dir=data_dir, kafka_port=0, http_port=0, overrides=sets or {}))
        kafka, _ = await node.start()
        try:
            host, _, port = kafka.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), local_addr=(come_from, 0))
            with contextlib.closing(writer):
                await check(await accepted_by(node))
        finally:
            await node.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_socket_constants_equal_those_of_the_system() -> None:
    assert (SOL_SOCKET, SO_SNDBUF, SO_RCVBUF, IPPROTO_TCP, TCP_CONGESTION) == (
        socket.SOL_SOCKET,
        socket.SO_SNDBUF,
        socket.SO_RCVBUF,
        socket.IPPROTO_TCP,
        socket.TCP_CONGESTION,
    )


def test_listener_gets_the_configured_buffers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        SocketBufferSizes(100 * KIB, 150 * KIB).apply_to(listening)
        assert buffers_of(listening) == (200 * KIB, 300 * KIB)


def test_system_default_buffers_are_unchanged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        before = buffers_of(listening)
        SYSTEM_DEFAULT.apply_to(listening)
        SocketBufferSizes(0, 0).apply_to(listening)
        assert buffers_of(listening) == before


@pytest.mark.parametrize(
    ("sets", "sent"),
    [({}, None), ({"socket.send.buffer.bytes": "65536"}, 2 * 65_536)],
    ids=["by default", "another"],
)
@run_with(on_accepted, fixtures=["tmp_path", "sets"])
async def test_node_connections_get_the_configured_buffer(
    accepted: Any, *, sent: int | None
) -> None:
    """By default the one that the system gives."""
    if sent is None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            sent, _ = buffers_of(listening)

    assert accepted.getsockopt(SOL_SOCKET, SO_SNDBUF) == sent


@run_with(on_accepted, fixtures=["tmp_path"])
async def test_local_peers_are_sent_without_pacing(accepted: Any) -> None:
    assert congestion_of(accepted) == CONGESTION_WITHOUT_PACING


@run_with(on_accepted, come_from="127.0.0.2", fixtures=["tmp_path"])
async def test_remote_peers_keep_the_system_congestion_control(accepted: Any) -> None:
    """Another address of ours stands for them."""
    with socket.create_server(("127.0.0.1", 0)) as fresh:
        assert congestion_of(accepted) == congestion_of(fresh)


def test_unsupported_congestion_control_is_ignored() -> None:
    class Strange:
        def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None:
            raise OSError("no such algorithm")

    disable_pacing(Strange())


def congestion_of(one: Any) -> bytes:
    name: bytes = one.getsockopt(IPPROTO_TCP, TCP_CONGESTION, 16)
    return name.rstrip(b"\0")


async def accepted_by(node: Node) -> Any:
    """The socket of the one connection that the node has."""
    (listener,) = node.kafka_listeners._listeners
    while not listener.connections:
        await asyncio.sleep(0.001)
    (connection,) = listener._connections
    assert connection.transport is not None
    return connection.transport.get_extra_info("socket")
