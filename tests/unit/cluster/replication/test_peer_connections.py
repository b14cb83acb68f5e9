"""Connections to other nodes: shared by purpose, closed when the registration ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from penstock.client.errors import ConnectionLost, RequestTimeout, Unreachable
from penstock.cluster.metadata.image import EMPTY
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord
from penstock.cluster.replication.peer_connections import PeerConnections
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with
from tests.unit.client.model import HANG, ModelBroker

QUESTION = MetadataRequest(topics=None)


class World:
    """Nodes 2 and 3 as models, and the way of node 1 to them."""

    def __init__(self) -> None:
        self.others = {number: ModelBroker(number, f"node-{number}") for number in (2, 3)}
        self.watcher = MetadataWatcher(SimStore(SimEtcd(1)))
        self.peers = PeerConnections(1, self.watcher)

    def show(self, *records: BrokerRecord) -> None:
        before = self.watcher.image
        after = replace(EMPTY, brokers={record.node_id: record for record in records})
        self.watcher.image = after
        self.peers.follow(before, after)

    def record(self, number: int, epoch: int = 1) -> BrokerRecord:
        other = self.others[number]
        return BrokerRecord(number, other.host, other.port, epoch=epoch)

    async def ask(self, number: int, channel: str = "general") -> int:
        answer = await self.peers.ask(number, QUESTION, MetadataResponse, channel=channel)
        return answer.controller_id


def in_world(test: Callable[[World], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        world = World()
        for other in world.others.values():
            await other.start()
        world.show(world.record(2), world.record(3))
        await test(world)
        await world.peers.close()
        assert world.peers.connection_count == 0

    run(main, 1, time_max=1000.0)


@run_with(in_world)
async def test_peer_is_called_at_its_registered_address(world: World) -> None:
    assert await world.ask(2) == 2
    assert await world.ask(3) == 3


@run_with(in_world)
async def test_concurrent_calls_share_one_connection_per_purpose(world: World) -> None:
    assert await asyncio.gather(*[world.ask(2) for _ in range(20)]) == [2] * 20
    assert world.others[2].connections == 1
    await world.ask(2, "another")
    assert world.others[2].connections == 2


@run_with(in_world)
async def test_lost_connection_is_made_again_for_the_next_call(world: World) -> None:
    await world.ask(2)
    asyncio.get_running_loop().net.reset("localhost", "node-2")  # type: ignore[attr-defined]
    await asyncio.sleep(0.1)
    assert await world.ask(2) == 2
    assert world.others[2].connections == 2


@run_with(in_world)
async def test_unregistered_node_cannot_be_called(world: World) -> None:
    with pytest.raises(Unreachable, match="node 7 is not registered"):
        await world.ask(7)


@pytest.mark.parametrize("epoch", [None, 2])
@run_with(in_world)
async def test_calls_to_an_ended_registration_fail_at_once(
    world: World, *, epoch: int | None
) -> None:
    world.others[2].answers[MetadataRequest] = lambda _: HANG
    waiting = asyncio.ensure_future(world.ask(2))
    own = await world.peers.dial(2)
    await asyncio.sleep(0.1)
    world.show(world.record(3), *([world.record(2, epoch)] if epoch else []))
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(waiting, 0.1)
    assert own.is_closed
    assert await world.ask(3) == 3, "others are not disturbed"


@run_with(in_world)
async def test_node_that_registers_again_during_a_dial_is_dialled_again(
    world: World,
) -> None:
    dialling = asyncio.ensure_future(world.peers.dial(2))
    await asyncio.sleep(0)
    world.show(world.record(2, epoch=2))
    with pytest.raises(Unreachable, match="registered again"):
        await dialling
    assert await world.ask(2) == 2


@run_with(in_world)
async def test_cancelled_call_does_not_close_the_shared_connection(world: World) -> None:
    first = asyncio.ensure_future(world.ask(2))
    second = asyncio.ensure_future(world.ask(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2


@run_with(in_world)
async def test_dialled_connection_has_its_own_timeout(world: World) -> None:
    world.others[2].answers[MetadataRequest] = lambda _: HANG
    connection = await world.peers.dial(2, timeout_ms=200)
    with pytest.raises(RequestTimeout):
        await asyncio.wait_for(connection.call(QUESTION, MetadataResponse), 0.3)
