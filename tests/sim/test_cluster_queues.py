"""Share groups over several nodes: partitions, states of queues and dead letters on each.

Members fetch and settle over the wire while nodes fail and return. Invariants: no delivery reaches
two members, no record is lost, none is both accepted and dead-lettered, and every rejected record
has exactly one dead letter.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.producer.producer import Producer
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.sim.sharing import GROUP, GROUP_KIND, Ledger, Member, Place, dead_letters

OVERRIDES = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.delivery.count.limit": "10",
}
PARTITIONS = 4
RECORDS = 25
PATIENCE_S = 300.0


@dataclass
class Scene:
    loop: SimLoop
    nodes: SimCluster
    client: Cluster
    ledger: Ledger
    seed: int

    async def produce(self) -> None:
        clock = SimClock(self.loop)
        async with Producer(clock, SimRandom(self.seed), self.client) as producer:
            for number in range(PARTITIONS * RECORDS):
                value = b"%s %d" % (b"bad" if number % 7 == 0 else b"good", number)
                delivery = await producer.send("t", value, partition=number % PARTITIONS)
                await delivery

    async def until_done(self) -> None:
        """Waits until every record is accepted or dead-lettered."""
        deadline_s = self.loop.time() + PATIENCE_S
        wanted = {b"bad %d" % n for n in range(0, PARTITIONS * RECORDS, 7)}
        goods = PARTITIONS * RECORDS - len(wanted)
        while True:
            found = dead_letters(self.nodes)
            done = {place for place in self.ledger.values if self._is_good(place)}
            if wanted <= set(found) and len(done) == goods and self._is_finished():
                break
            assert self.loop.time() < deadline_s, (
                f"{len(done)} of {goods} seen, {len(found)} dead letters of {len(wanted)}"
            )
            await asyncio.sleep(0.5)
        assert sorted(found) == sorted(wanted)
        for place in self.ledger.accepted:
            assert self._is_good(place), "accepted and dead-lettered"

    def _is_good(self, place: Place) -> bool:
        return not self.ledger.values[place].startswith(b"bad")

    def _is_finished(self) -> bool:
        """Every queue, wherever it is open, has finished all of its records."""
        starts = {}
        for node in self.nodes.nodes():
            for queue in node.queues.queues():
                starts[queue.partition.index] = queue.machine.kept.start
        return starts == dict.fromkeys(range(PARTITIONS), RECORDS)


def play(scene: Callable[[Scene], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
        await cluster.start()
        config = ConnectionConfig(connect_timeout_ms=1000, request_timeout_ms=6000)
        async with Cluster(SimRandom(seed), cluster.addresses, config) as client:
            admin = Admin(client)
            await admin.create_topic("t", PARTITIONS, 3)
            await admin.alter_configs(GROUP_KIND, GROUP, {"share.auto.offset.reset": "earliest"})
            topic = await client.topic("t")
            ledger = Ledger()
            members = [
                Member(f"member-{n}", topic.topic_id, PARTITIONS, client, ledger) for n in range(3)
            ]
            tasks = [asyncio.ensure_future(member.run()) for member in members]
            await scene(Scene(loop, cluster, client, ledger, seed))
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(result, asyncio.CancelledError), result
        await cluster.stop()
        cluster.close()

    run(main, seed=seed, time_max=2000.0)


@run_with(play)
async def test_queue_over_all_nodes_delivers_every_record_once(world: Scene) -> None:
    await world.produce()
    await world.until_done()
    await asyncio.sleep(1)  # The last member's response may still be on its way.
    assert len(world.ledger.accepted) + len(world.ledger.rejected) == PARTITIONS * RECORDS


@pytest.mark.parametrize("seed", range(6))
@run_with(play, fixtures=["seed"])
async def test_queue_survives_the_death_of_any_node(world: Scene, *, seed: int) -> None:
    rng = random.Random(seed)
    await world.produce()
    for node_id in rng.sample((1, 2, 3), 3):
        await asyncio.sleep(rng.uniform(0.01, 1.5))
        victim = world.nodes.hosts[node_id]
        victim.kill()
        await asyncio.sleep(rng.uniform(1, 20))
        assert await victim.start()
        await asyncio.sleep(rng.uniform(5, 20))
    await world.until_done()
