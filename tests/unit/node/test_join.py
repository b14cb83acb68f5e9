"""Finding the cluster at start: what belongs together, what does not, and what is never touched."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.ports import Put, Store
from penstock.cluster.configs.effective_configs import InvalidConfig
from penstock.cluster.metadata import store_keys
from penstock.node.config import NodeConfig
from penstock.node.data_directory import META, Meta
from penstock.node.join import PATIENCE_SECONDS, CannotJoin, agree, look, open_store
from penstock.node.ports import Ports
from penstock.runtime.etcd.config import EtcdConfig
from simulation.clock import SimClock
from simulation.disk import SimDisk
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from simulation.store import SimEtcd, SimStore
from simulation.workers import SimWorkers
from tests.run_with import run_with

ETCD = EtcdConfig(("http://etcd-1:2379",), prefix="/penstock/here")


class NoLock:
    def release(self) -> None:
        pass


class World:
    """A node about to start: a directory, and metadata that may be shared."""

    def __init__(self, loop: SimLoop, *, is_shared: bool = True) -> None:
        self.loop = loop
        self.etcd = SimEtcd(loop.seed)
        self.disk = SimDisk(loop.seed)
        self.disk.mkdir("data")
        self.store = SimStore(self.etcd)
        self.is_shared = is_shared
        self.refusals = 0
        self.said: list[str] = []

    def ports(self) -> Ports:
        async def open_it(path: str) -> Store:
            if self.refusals:
                self.refusals -= 1
                raise ConnectionError("http://etcd-1:2379: connection refused")
            return self.store

        workers = SimWorkers(self.loop.seed)
        return Ports(
            clock=SimClock(self.loop),
            random=SimRandom(self.loop.seed),
            disk=self.disk,
            workers=workers,
            sync_workers=workers,
            cleaner_workers=workers,
            lock=lambda path: NoLock(),
            open_store=open_it,
            is_store_shared=self.is_shared,
        )

    async def join(self, node_id: int = 1) -> Meta:
        config = NodeConfig("data", node_id=node_id, etcd=ETCD if self.is_shared else None)
        ports = self.ports()
        meta = look(ports, config)
        store = await open_store(ports, config, self.said.append)
        return await agree(ports, config, store, meta)


def in_world(test: Callable[[World], Awaitable[None]], *, is_shared: bool = True) -> None:
    async def main(loop: SimLoop) -> None:
        await test(World(loop, is_shared=is_shared))

    run(main)


@pytest.mark.parametrize("is_shared", [False, True])
@run_with(in_world, fixtures=["is_shared"])
async def test_first_node_creates_the_cluster_and_finds_it_again(
    world: World, *, is_shared: bool
) -> None:
    first = await world.join()
    assert first.cluster_id
    assert first.directory_id not in ("", first.cluster_id)
    assert first.is_shared is is_shared
    assert await world.join() == first


@run_with(run)
async def test_concurrent_first_starts_create_one_cluster(loop: SimLoop) -> None:
    one, two = World(loop), World(loop)
    two.etcd, two.store = one.etcd, SimStore(one.etcd)
    one.etcd.delay_s = (0.0, 0.1)
    first, second = await asyncio.gather(one.join(1), two.join(2))
    assert first.cluster_id == second.cluster_id


@run_with(in_world)
async def test_logs_of_another_cluster_are_refused_and_unchanged(world: World) -> None:
    mine = await world.join()
    before = world.disk.listdir("data")
    record = store_keys.ClusterRecord("another")
    await world.store.commit([], [Put(store_keys.CLUSTER_ID, store_keys.encode(record))])
    with pytest.raises(CannotJoin) as refused:
        await world.join()
    for part in ("data", mine.cluster_id, "another", "http://etcd-1:2379", "/penstock/here"):
        assert part in str(refused.value)
    assert world.disk.listdir("data") == before


@run_with(in_world)
async def test_emptied_etcd_is_not_filled_again(world: World) -> None:
    mine = await world.join()
    world.etcd = SimEtcd(world.loop.seed)
    world.store = SimStore(world.etcd)
    with pytest.raises(CannotJoin, match=f"{mine.cluster_id}.*knows of no cluster"):
        await world.join()
    assert world.etcd.space.revision == 0


@run_with(in_world)
async def test_directory_of_another_node_is_refused_before_etcd_is_asked(world: World) -> None:
    await world.join(1)
    world.refusals = 1
    with pytest.raises(InvalidConfig, match="belongs to node 1, this is node 2"):
        await world.join(2)
    assert world.refusals == 1


@run_with(in_world)
async def test_late_etcd_is_waited_for_with_one_message(world: World) -> None:
    world.refusals = 30
    await world.join()
    assert len(world.said) == 1
    assert "waiting up to 30 s for etcd" in world.said[0]
    assert "http://etcd-1:2379" in world.said[0]


@run_with(in_world)
async def test_absent_etcd_is_named_and_the_directory_stays_empty(
    world: World,
) -> None:
    world.refusals = 1_000_000
    with pytest.raises(CannotJoin, match=r"etcd did not answer within 30 s: http://etcd-1"):
        await world.join()
    assert PATIENCE_SECONDS - 1 < world.loop.time() < PATIENCE_SECONDS + 1
    assert world.disk.listdir("data") == []


@pytest.mark.parametrize("seed", range(10))
@run_with(run, fixtures=["seed"])
async def test_unknown_results_do_not_create_two_clusters(loop: SimLoop) -> None:
    one, two = World(loop), World(loop)
    two.etcd, two.store = one.etcd, SimStore(one.etcd)
    one.etcd.unknown_ratio = 0.5
    one.etcd.timeout_s = 0.5
    metas = await asyncio.gather(one.join(1), two.join(2))
    entry = one.etcd.space.get(store_keys.CLUSTER_ID)
    assert entry is not None
    stored = store_keys.decode(store_keys.ClusterRecord, entry.value).cluster_id
    assert {meta.cluster_id for meta in metas} == {stored}


@run_with(in_world)
async def test_directory_joins_only_a_cluster_seen_in_the_store(world: World) -> None:
    world.etcd.down = True
    with pytest.raises(CannotJoin, match="does not answer"):
        await world.join()
    assert META not in world.disk.listdir("data")
