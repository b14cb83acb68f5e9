"""Files that a node should no longer have are removed, and nothing else is."""

import errno
from collections.abc import Awaitable, Callable

from penstock.base.ids import NodeId, TopicId, show_topic_id
from penstock.base.ports import Put
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image, load
from penstock.cluster.metadata.store_keys import DeletedRecord, PartitionRecord, TopicRecord
from penstock.cluster.storage.log_directories import LogDirectories, directory_of
from penstock.cluster.storage.orphan_cleanup import OrphanCleanup
from simulation.clock import SimClock
from simulation.disk import Fault, SimDisk
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from simulation.workers import SimWorkers
from tests.run_with import run_with

NODE = NodeId(1)
TOPIC = TopicId(bytes([7]) * 16)
ROOT = "data/logs"


class Bench:
    def __init__(self, loop: SimLoop) -> None:
        self.disk = SimDisk(loop.seed)
        self.etcd = SimEtcd(loop.seed)
        self.store = SimStore(self.etcd)
        self.orphans = self.again(loop)
        self.loop = loop

    def again(self, loop: SimLoop) -> OrphanCleanup:
        """As after a restart."""
        directories = LogDirectories(self.disk, SimClock(loop), ROOT)
        return OrphanCleanup(NODE, self.store, SimWorkers(loop.seed), directories)

    def fill(self, topic_id: TopicId = TOPIC, name: str = "t", count: int = 3) -> str:
        parent = f"{ROOT}/{directory_of(name, topic_id)}"
        for index in range(count):
            self.disk.mkdir(f"{parent}/{index}")
            file = self.disk.open(f"{parent}/{index}/0.log", create=True)
            file.append([b"x"])
            file.close()
        return parent

    async def put(self, *records: PartitionRecord) -> Image:
        value = store_keys.encode(TopicRecord(show_topic_id(TOPIC), records))
        await self.store.commit([], [Put(store_keys.topic_key("t"), value)])
        return await self.image()

    async def image(self) -> Image:
        return load(*await self.store.range(store_keys.ALL))


def on_bench(work: Callable[[Bench], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        await work(Bench(loop))

    run(main)


@run_with(on_bench)
async def test_replica_that_moved_away_is_removed(bench: Bench) -> None:
    parent = bench.fill()
    image = await bench.put(initial_record((1, 2)), initial_record((2, 3)), initial_record((1,)))
    bench.orphans.schedule(TOPIC, 1)
    assert await bench.orphans.remove_moved(image)
    assert bench.disk.listdir(parent) == ["0", "2"]


@run_with(on_bench)
async def test_replica_that_came_back_meanwhile_keeps_its_files(bench: Bench) -> None:
    parent = bench.fill()
    image = await bench.put(initial_record((1, 2)), initial_record((1, 3)), initial_record((1,)))
    bench.orphans.schedule(TOPIC, 1)
    assert await bench.orphans.remove_moved(image)
    assert bench.disk.listdir(parent) == ["0", "1", "2"]


@run_with(on_bench)
async def test_replicas_moved_while_the_node_was_down_are_found(bench: Bench) -> None:
    parent = bench.fill()
    outsider = bench.fill(TopicId(bytes([9]) * 16), "mine")
    bench.disk.mkdir(f"{parent}/notes")
    bench.disk.mkdir(f"{parent}/77")
    image = await bench.put(initial_record((2,)), initial_record((1,)), initial_record((3,)))
    await bench.orphans.find_moved(image)
    assert await bench.orphans.remove_moved(image)
    # Files not known to be removable stay.
    assert bench.disk.listdir(parent) == ["1", "77", "notes"]
    assert bench.disk.listdir(outsider) == ["0", "1", "2"]


@run_with(on_bench)
async def test_failed_removal_is_retried(bench: Bench) -> None:
    parent = bench.fill()
    image = await bench.put(initial_record((2,)), initial_record((1,)), initial_record((1,)))
    bench.orphans.schedule(TOPIC, 0)
    bench.disk.inject(Fault("unlink", errno.EIO))
    assert not await bench.orphans.remove_moved(image)
    assert await bench.orphans.remove_moved(image)
    assert bench.disk.listdir(parent) == ["1", "2"]


@run_with(on_bench)
async def test_removal_interrupted_by_a_crash_completes_at_the_next_start(bench: Bench) -> None:
    parent = bench.fill()
    image = await bench.put(initial_record((1,)), initial_record((1,)), initial_record((1,)))
    # The replica was on its way out, and has come back since.
    bench.disk.mkdir(f"{parent}/.0.moved")
    bench.disk.open(f"{parent}/.0.moved/0.log", create=True).close()
    await bench.again(bench.loop).find_moved(image)
    assert bench.disk.listdir(parent) == ["0", "1", "2"]


@run_with(on_bench)
async def test_deleted_topic_is_removed_once_and_confirmed(bench: Bench) -> None:
    parent = bench.fill()
    note = store_keys.encode(DeletedRecord("t", 3, (1, 2)))
    await bench.store.commit([], [Put(store_keys.deleted_key(TOPIC), note)])
    image = await bench.image()
    assert await bench.orphans.remove_deleted(image)
    assert bench.disk.listdir(parent) == []
    image = await bench.image()
    assert image.deleted[TOPIC].confirmed == (1,)
    before = bench.etcd.space.revision
    assert await bench.orphans.remove_deleted(image)
    assert await bench.again(bench.loop).remove_deleted(image)
    assert bench.etcd.space.revision == before


@run_with(on_bench)
async def test_failed_confirmation_is_retried(bench: Bench) -> None:
    bench.fill()
    note = store_keys.encode(DeletedRecord("t", 3, (1,)))
    await bench.store.commit([], [Put(store_keys.deleted_key(TOPIC), note)])
    image = await bench.image()
    bench.etcd.down = True
    assert not await bench.orphans.remove_deleted(image)
    bench.etcd.down = False
    assert await bench.orphans.remove_deleted(image)
    assert (await bench.image()).deleted == {}
