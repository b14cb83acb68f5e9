"""The schema registry over several nodes: one leads, all answer, and nothing given is taken back.

Clients register through every node while nodes die and come back. Whatever happens: an id means
one schema, an answered registration stays, and versions have no gaps.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from penstock.base.errors import Refused
from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.requests import GetById, ListVersions, PutConfig, Register
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from tests.run_with import run_with

OVERRIDES = {"min.insync.replicas": "2", "default.replication.factor": "3"}
PATIENCE_S = 200.0


def play(scene: Callable[[SimCluster], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
        await cluster.start()
        await scene(cluster)
        await cluster.stop()
        cluster.close()

    run(main, seed=seed, time_max=2000.0)


def schema(number: int) -> str:
    return f'{{"type":"record","name":"R{number}","fields":[]}}'


async def register(cluster: SimCluster, node_id: int, subject: str, text: str) -> int:
    node = cluster.hosts[node_id].node
    assert node is not None
    answer = await node.registry.ask(Register(subject, text, "AVRO"))
    schema_id: int = msgspec.json.decode(answer)["id"]
    return schema_id


@run_with(play)
async def test_every_node_answers_for_the_registry_leader(cluster: SimCluster) -> None:
    ids = [await register(cluster, node_id, "s", schema(0)) for node_id in (1, 2, 3)]
    assert ids == [1, 1, 1]
    for node in cluster.nodes():
        answer = await node.registry.ask(GetById(1))
        assert msgspec.json.decode(answer)["schema"] == schema(0)
        with pytest.raises(Rejected) as caught:
            await node.registry.ask(GetById(9))
        assert caught.value.number is RegistryErrorCode.SCHEMA_NOT_FOUND


@pytest.mark.parametrize("seed", range(4))
@run_with(play, fixtures=["seed"])
async def test_registrations_survive_the_death_of_any_node(
    cluster: SimCluster, *, seed: int
) -> None:
    rng = random.Random(seed)
    await cluster.nodes()[0].registry.ask(PutConfig(None, "NONE"))
    given: dict[int, str] = {}

    async def client(number: int) -> None:
        for step in range(12):
            text = schema(number * 1000 + step)
            while True:
                node_id = rng.choice((1, 2, 3))
                node = cluster.hosts[node_id].node
                try:
                    if node is not None:
                        call = Register(f"s{number % 2}", text, "AVRO")
                        answer = await asyncio.wait_for(node.registry.ask(call), 20.0)
                        break
                except (Refused, TimeoutError, OSError, asyncio.CancelledError):
                    pass
                await asyncio.sleep(0.3)
            schema_id = msgspec.json.decode(answer)["id"]
            assert given.setdefault(schema_id, text) == text, "an id was given twice"
            await asyncio.sleep(rng.uniform(0.0, 2.0))

    tasks = [asyncio.ensure_future(client(number)) for number in range(3)]
    for node_id in rng.sample((1, 2, 3), 3):
        await asyncio.sleep(rng.uniform(0.5, 5.0))
        cluster.hosts[node_id].kill()
        await asyncio.sleep(rng.uniform(1.0, 15.0))
        assert await cluster.hosts[node_id].start()
        await asyncio.sleep(rng.uniform(2.0, 10.0))
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    assert len(given) == 36
    node = cluster.nodes()[0]
    for schema_id, text in given.items():
        answer = await node.registry.ask(GetById(schema_id))
        assert msgspec.json.decode(answer)["schema"] == text
    versions = 0
    for subject in ("s0", "s1"):
        listed = msgspec.json.decode(await node.registry.ask(ListVersions(subject=subject)))
        assert listed == list(range(1, len(listed) + 1))
        versions += len(listed)
    assert versions == 36
