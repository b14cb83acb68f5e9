"""Socket buffers: who is accepted has those that the configuration names."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
import uvloop

from penstock.node.config import NodeConfig
from penstock.node.node import Node
from penstock.server.buffers import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET, SYSTEMS_OWN, Buffers

KIB = 1024


def buffers_of(listening: socket.socket) -> tuple[int, int]:
    """What the kernel gives to one that is accepted: for data and its own notes, twice as much."""
    with socket.create_connection(listening.getsockname()) as _:
        accepted, _ = listening.accept()
        with accepted:
            options = (SO_SNDBUF, SO_RCVBUF)
            sent, received = (accepted.getsockopt(SOL_SOCKET, option) for option in options)
            return sent, received


def test_the_numbers_are_those_of_this_system() -> None:
    assert (SOL_SOCKET, SO_SNDBUF, SO_RCVBUF) == (
        socket.SOL_SOCKET,
        socket.SO_SNDBUF,
        socket.SO_RCVBUF,
    )


def test_what_is_accepted_has_the_buffers_of_its_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Buffers(100 * KIB, 150 * KIB).give_to(listening)
        assert buffers_of(listening) == (200 * KIB, 300 * KIB)


def test_the_systems_own_are_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        before = buffers_of(listening)
        SYSTEMS_OWN.give_to(listening)
        Buffers(0, 0).give_to(listening)
        assert buffers_of(listening) == before


@pytest.mark.parametrize(
    ("sets", "sent"),
    [({}, 2 * 204_800), ({"socket.send.buffer.bytes": "65536"}, 2 * 65_536)],
    ids=["by default", "another"],
)
def test_a_node_gives_its_connections_the_configured_buffer(
    tmp_path: Path, sets: Mapping[str, str], sent: int
) -> None:
    async def check() -> None:
        node = Node(
            NodeConfig(data_dir=str(tmp_path / "data"), kafka_port=0, http_port=0, overrides=sets)
        )
        kafka, _ = await node.start()
        try:
            host, _, port = kafka.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            with contextlib.closing(writer):
                assert await accepted_buffer(node) == sent
        finally:
            await node.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check())


async def accepted_buffer(node: Node) -> int:
    """SO_SNDBUF of the one connection that the node has."""
    (listener,) = node.front._listeners
    while not listener.connections:
        await asyncio.sleep(0.001)
    (connection,) = listener._connections
    assert connection.transport is not None
    size: int = connection.transport.get_extra_info("socket").getsockopt(SOL_SOCKET, SO_SNDBUF)
    return size
