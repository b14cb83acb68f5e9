"""Evidence of death: a refused connection, and nothing else."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.cluster.controller.recent_failures import RecentFailures
from penstock.cluster.metadata.image import EMPTY, Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.peer_liveness import PeerLiveness
from penstock.cluster.metadata.store_keys import BrokerRecord
from penstock.wire.codec import writer
from penstock.wire.framing import response_frame
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from simulation.loop import SimLoop, run
from simulation.network import host_context
from simulation.random import SimRandom
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with

PORT = 9092
Test = Callable[["World"], Awaitable[None]]


class Answering(asyncio.Protocol):
    """As much of a broker as a link asks for: ApiVersions, in one frame."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 12 or len(self._received) < self._length:
            return
        correlation_id = int.from_bytes(self._received[8:12], "big")
        version = int.from_bytes(self._received[6:8], "big")
        answer = ApiVersionsResponse(
            error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        )
        parts: list[bytes | bytearray | memoryview] = []
        writer(ApiVersionsResponse, version)(answer, parts)
        frame = response_frame(correlation_id, ApiVersionsResponse, version, parts)
        self._transport.writelines(frame)
        self._received = b""

    @property
    def _length(self) -> int:
        return 4 + int.from_bytes(self._received[:4], "big")


class World:
    """Node 1's links to node 2, which is a server on a host of its own."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.reports: list[tuple[int, int, float]] = []
        losses = RecentFailures(MetadataWatcher(SimStore(SimEtcd(loop.seed))))
        self.answers: list[tuple[int, int, float]] = []
        self.links = PeerLiveness(1, self._report, losses, self, SimRandom(loop.seed))
        self.image = EMPTY

    def answered(self, node_id: int, broker_epoch: int) -> None:
        self.answers.append((node_id, broker_epoch, self.loop.time()))

    def probe_seconds(self) -> float:
        return 1.0

    def _report(self, node_id: int, epoch: int) -> None:
        self.reports.append((node_id, epoch, self.loop.time()))

    async def serve(self) -> asyncio.AbstractServer:
        async def listen() -> asyncio.AbstractServer:
            return await self.loop.create_server(Answering, "node-2", PORT)

        return await self.loop.create_task(listen(), context=host_context("node-2"))

    def show(self, **epochs: int) -> None:
        """Makes the image show node 1 and these peers, by epoch."""
        brokers = {1: BrokerRecord(1, "node-1", PORT, 1)}
        for name, epoch in epochs.items():
            node_id = int(name.removeprefix("node"))
            brokers[node_id] = BrokerRecord(node_id, f"node-{node_id}", PORT, epoch)
        before, self.image = self.image, replace(self.image, brokers=brokers)
        self.links.follow(before, self.image)


def in_world(test: Test) -> None:
    async def main(loop: SimLoop) -> None:
        async def as_node_1() -> None:
            world = World(loop)
            try:
                await test(world)
            finally:
                await world.links.close()

        await loop.create_task(as_node_1(), context=host_context("node-1"))

    run(main)


@run_with(in_world)
async def test_serving_node_is_connected_and_not_reported(world: World) -> None:
    await world.serve()
    world.show(node2=7)
    await asyncio.sleep(100)
    assert world.links.connected == [2]
    assert world.reports == []


@run_with(in_world)
async def test_killed_process_is_reported_within_100_ms(world: World) -> None:
    await world.serve()
    world.show(node2=7)
    await asyncio.sleep(10)
    died_s = world.loop.time()
    world.loop.net.crash("node-2")
    await asyncio.sleep(1)
    node_id, epoch, seen_s = world.reports[0]
    assert (node_id, epoch) == (2, 7)
    assert seen_s - died_s < 0.1
    assert world.links.connected == []


@run_with(in_world)
async def test_absent_node_is_reported_while_it_is_registered(
    world: World,
) -> None:
    world.show(node2=7)
    await asyncio.sleep(20)
    many = len(world.reports)
    assert 10 < many < 80
    world.show()
    await asyncio.sleep(20)
    assert len(world.reports) == many


@run_with(in_world)
async def test_silence_is_not_evidence_of_death(world: World) -> None:
    await world.serve()
    world.show(node2=7)
    await asyncio.sleep(1)
    world.loop.net.cut("node-1", "node-2")
    await asyncio.sleep(30)
    world.loop.net.crash("node-2", silent=True)
    await asyncio.sleep(30)
    assert world.reports == []


@run_with(in_world)
async def test_connected_node_answers_every_second(world: World) -> None:
    await world.serve()
    world.show(node2=7)
    await asyncio.sleep(10)
    assert {(node, epoch) for node, epoch, _ in world.answers} == {(2, 7)}
    times = [at for _, _, at in world.answers]
    assert len(times) == 10
    assert max(b - a for a, b in itertools.pairwise(times)) < 1.01


@pytest.mark.parametrize("way", [("node-1", "node-2"), ("node-2", "node-1")])
@run_with(in_world)
async def test_unresponsive_connection_is_closed_and_made_again(
    world: World, *, way: tuple[str, str]
) -> None:
    await world.serve()
    world.show(node2=7)
    await asyncio.sleep(10)
    world.loop.net.cut(*way, both=False)
    cut_s = world.loop.time()
    await asyncio.sleep(5)
    assert world.links.connected == []
    assert world.answers[-1][2] < cut_s
    world.loop.net.crash("node-2", silent=True)  # Packets already sent never arrive.
    await world.serve()
    await asyncio.sleep(30)
    assert world.answers[-1][2] < cut_s
    world.loop.net.heal()
    healed_s = world.loop.time()
    await asyncio.sleep(5)
    assert world.links.connected == [2]
    assert world.answers[-1][2] > healed_s + 3
    assert world.reports == []


@run_with(in_world)
async def test_unreachable_node_is_not_reported(world: World) -> None:
    await world.serve()
    world.loop.net.cut("node-1", "node-2")
    world.show(node2=7)
    await asyncio.sleep(60)
    assert (world.reports, world.links.connected) == ([], [])
    world.loop.net.heal()
    await asyncio.sleep(10)
    assert world.links.connected == [2]


@run_with(in_world)
async def test_broken_connection_to_a_live_node_is_reconnected_at_once(world: World) -> None:
    await world.serve()
    world.show(node2=7)
    for _ in range(12):  # However often it has happened before.
        await asyncio.sleep(5)
        assert world.loop.net.reset("node-1", "node-2") == 2
        await asyncio.sleep(0.1)
        assert world.links.connected == [2]
    assert world.reports == []


@run_with(in_world)
async def test_next_registration_is_watched_and_the_previous_no_longer_reported(
    world: World,
) -> None:
    world.show(node2=7)
    await asyncio.sleep(5)
    await world.serve()
    world.show(node2=8)
    await asyncio.sleep(5)
    assert world.links.connected == [2]
    world.reports.clear()
    world.loop.net.crash("node-2")
    await asyncio.sleep(1)
    assert {epoch for _, epoch, _ in world.reports} == {8}


@run_with(in_world)
async def test_node_does_not_connect_to_itself(world: World) -> None:
    world.show()
    await asyncio.sleep(5)
    assert world.reports == []


@run_with(in_world)
async def test_image_with_the_same_brokers_changes_no_connection(world: World) -> None:
    await world.serve()
    world.show(node2=7)
    await asyncio.sleep(1)
    tasks = dict(world.links._tasks)
    same: Image = replace(world.image, revision=world.image.revision + 1)
    world.links.follow(world.image, same)
    assert world.links._tasks == tasks
