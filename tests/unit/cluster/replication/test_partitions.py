"""Partitions of a node: opened, updated, dropped and removed as the image says."""

import asyncio
import errno
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from penstock.base.ids import NodeId, TopicId, show_topic_id
from penstock.base.ports import Disk, Put
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.effective_configs import BrokerConfigs, Scope
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.partitions import RETRY_SECONDS, Partitions
from penstock.cluster.storage.log_directories import directory_of
from penstock.log.flusher import Flusher
from penstock.log.log import CleanState
from penstock.runtime.disk import LocalDisk
from penstock.wire.records import Record, encode, read_header
from simulation.clock import SimClock
from simulation.disk import Fault, SimDisk
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from simulation.store import SimEtcd, SimStore
from simulation.workers import SimWorkers
from tests.run_with import run_with, with_seeds

NODE = NodeId(1)


class Bench:
    """The partitions of one node, over a store and a disk that outlive it."""

    def __init__(self, loop: SimLoop, disk: Disk, root: str) -> None:
        self.loop = loop
        self.disk = disk
        self.root = root
        self.store = SimStore(SimEtcd(loop.seed))
        self.random = SimRandom(loop.seed)
        self.configs: BrokerConfigs
        self.partitions: Partitions
        self.tasks: list[asyncio.Task[None]] = []

    async def register(self) -> None:
        broker = store_keys.encode(store_keys.BrokerRecord(NODE, "localhost", 9092))
        await self.store.commit([], [Put(store_keys.broker_key(NODE), broker)])

    async def start(self, clean: Mapping[str, CleanState] | None = None) -> None:
        self.configs = BrokerConfigs()
        self.workers = SimWorkers(self.loop.seed)
        self.flusher = Flusher(self.disk, self.workers, lambda error: None)
        self.partitions = Partitions(
            NODE,
            self.disk,
            self.workers,
            SimClock(self.loop),
            self.store,
            self.flusher,
            self.configs,
            self.root,
        )
        self.watcher = MetadataWatcher(self.store)
        await self.partitions.start(await self.watcher.start(), clean)
        self.watcher.on_change(
            lambda before, after: void(self.configs.follow(after.cluster_configs, {}))
        )
        self.watcher.on_change(self.partitions.follow)
        self.tasks = [
            asyncio.ensure_future(self.watcher.run()),
            asyncio.ensure_future(self.partitions.run()),
        ]

    async def stop(self) -> dict[str, CleanState]:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.flusher.drain()
        return self.partitions.close()

    async def reached(self, revision: int) -> None:
        await self.watcher.reached(revision)
        await self.partitions.reached(revision)

    async def create(self, name: str, count: int = 1, **configs: str) -> None:
        own = {key.replace("_", "."): value for key, value in configs.items()}
        new = topics.NewTopic(name, count, configs=own)
        plan = topics.plan_topic(new, self.watcher.image, self.configs, self.random)
        await self.reached(await topics.create_topic(self.store, plan))

    async def delete(self, name: str) -> None:
        await self.reached(await topics.delete_topic(self.store, name))

    def get(self, name: str, index: int = 0) -> Partition:
        partition = self.partitions.get(name, index)
        assert partition is not None
        return partition

    async def write(self, name: str, count: int = 1) -> None:
        partition = self.get(name)
        for _ in range(count):
            batch = memoryview(encode([Record(0, 1000, None, b"v", ())]))
            partition.append(batch, read_header(batch), 0)
        while partition.high_watermark < partition.log.end_offset:
            await asyncio.sleep(0.01)


def void(_: object) -> None:
    pass


def on_bench(test: Callable[[Bench], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        disk = SimDisk(loop.seed)
        disk.mkdir("data")
        disk.sync_dir("")
        bench = Bench(loop, disk, "data/logs")
        await bench.register()
        await bench.start()
        await test(bench)
        await bench.stop()

    run(main, seed)


def sim_disk(bench: Bench) -> SimDisk:
    assert isinstance(bench.disk, SimDisk)
    return bench.disk


# -- opening ----------------------------------------------------------------------------------


@run_with(on_bench)
async def test_created_topic_is_served_when_its_revision_is_reached(bench: Bench) -> None:
    await bench.create("t", 7)
    assert len(bench.partitions) == 7
    assert [key for key, _ in bench.partitions.items()] == [("t", n) for n in range(7)]
    await bench.write("t", 3)
    directory = directory_of("t", bench.watcher.image.topics["t"].id)
    assert bench.disk.listdir(f"data/logs/{directory}") == [str(n) for n in range(7)]


@run_with(with_seeds, 10, on_bench)
async def test_created_topic_survives_a_power_cut(bench: Bench) -> None:
    await bench.create("t", 3)
    await bench.write("t", 5)
    after = sim_disk(bench).crashed(bench.loop.rng)
    again = Bench(bench.loop, after, "data/logs")
    again.store = bench.store
    await again.start()
    assert len(again.partitions) == 3
    assert again.get("t").log.end_offset == 5
    await again.stop()


@run_with(on_bench)
async def test_clean_stop_avoids_recovery_scans(bench: Bench) -> None:
    await bench.create("t", 2)
    await bench.write("t", 5)
    states = await bench.stop()
    assert sorted(name.rpartition("/")[2] for name in states) == ["0", "1"]
    # Without the state this file would be read, and the damage found.
    path = next(p for p in sim_disk(bench).files() if p.endswith("/0/" + "0" * 20 + ".log"))
    sim_disk(bench).damage(path, 0)
    again = Bench(bench.loop, bench.disk, "data/logs")
    again.store = bench.store
    await again.start(states)
    assert again.get("t").log.offline is None
    assert again.get("t").log.end_offset == 5
    await again.stop()


@run_with(on_bench)
async def test_new_leader_epoch_is_persisted_before_the_first_append(bench: Bench) -> None:
    await bench.create("t")
    assert bench.get("t").log.epochs.latest == 0
    before = sim_disk(bench).operations
    batch = memoryview(encode([Record(0, 1000, None, b"v", ())]))
    bench.get("t").append(batch, read_header(batch), 0)
    assert sim_disk(bench).operations == before + 1, "on the loop only the append itself"


@run_with(on_bench)
async def test_added_partitions_are_opened(bench: Bench) -> None:
    await bench.create("t", 1)
    first = bench.get("t")
    image = bench.watcher.image
    await bench.reached(
        await topics.create_partitions(bench.store, image, bench.random, "t", 3, None)
    )
    assert len(bench.partitions) == 3
    assert bench.get("t") is first


def test_log_that_cannot_be_opened_is_retried_and_the_rest_serve(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check(bench: Bench) -> None:
        sim_disk(bench).inject(Fault("mkdir", errno.EIO, path="/1", times=4))
        await bench.create("t", 3)
        assert bench.partitions.get("t", 1) is None
        await bench.write("t")
        await asyncio.sleep(RETRY_SECONDS * 6)
        assert bench.get("t", 1).log.end_offset == 0
        assert not any(task.done() for task in bench.tasks)

    on_bench(check)
    said = [r for r in caplog.records if "cannot be opened" in r.message]
    assert len(said) == 1, "once, not at every attempt"


@run_with(on_bench)
async def test_partition_whose_directory_cannot_be_synced_is_not_served(bench: Bench) -> None:
    sim_disk(bench).inject(Fault("sync_dir", errno.EIO, path="t.", times=1000))
    await bench.create("t", 1)
    assert bench.partitions.get("t", 0) is None
    sim_disk(bench).heal()
    await asyncio.sleep(2 * RETRY_SECONDS)
    await bench.write("t")


@run_with(on_bench)
async def test_damaged_log_is_offline_and_the_rest_serve(bench: Bench) -> None:
    await bench.create("good")
    await bench.create("bad")
    for name in ("good", "bad"):
        await bench.write(name, 3)
    await bench.stop()
    for path in sim_disk(bench).files():
        if "/bad." in path and path.endswith(".log"):
            bench.disk.unlink(path)
    again = Bench(bench.loop, bench.disk, "data/logs")
    again.store = bench.store
    await again.start()
    assert again.get("bad").log.offline is not None
    assert again.get("good").log.end_offset == 3
    states = await again.stop()
    assert [name.partition(".")[0] for name in states] == ["good"]


def test_unknown_directory_is_left_alone_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def check(bench: Bench) -> None:
        await bench.stop()
        bench.disk.mkdir("data/logs/unknown.data")
        await bench.start()
        assert bench.disk.listdir("data/logs") == ["unknown.data"]

    on_bench(check)
    assert any("unknown.data" in record.getMessage() for record in caplog.records)


# -- configs ----------------------------------------------------------------------------------


@run_with(on_bench)
async def test_changed_topic_config_reaches_the_open_partition(bench: Bench) -> None:
    await bench.create("t")
    assert not bench.partitions.any_look_inside
    partition = bench.get("t")
    await alter(bench, "t", {"max.message.bytes": "777", "cleanup.policy": "compact"})
    assert bench.get("t") is partition
    assert partition.rules.message_bytes_max == 777
    assert partition.rules.keys_required
    assert partition.log.config.cleanup_compact
    assert bench.partitions.any_look_inside
    await alter(bench, "t", {})
    assert partition.rules.message_bytes_max != 777
    assert not bench.partitions.any_look_inside


async def alter(bench: Bench, topic: str, values: dict[str, str]) -> None:
    edit = config_changes.replacing(Scope.TOPIC, values)
    await bench.reached(await config_changes.alter_topic(bench.store, topic, edit))


@run_with(on_bench)
async def test_changed_broker_default_reaches_topics_that_do_not_set_it(bench: Bench) -> None:
    await bench.create("plain")
    await bench.create("own", max_message_bytes="5000")
    edit = config_changes.replacing(Scope.BROKER, {"message.max.bytes": "9000"})
    await bench.reached(await config_changes.alter_broker(bench.store, None, edit))
    assert bench.get("plain").rules.message_bytes_max == 9000
    assert bench.get("own").rules.message_bytes_max == 5000


# -- dropping and removing --------------------------------------------------------------------


@run_with(on_bench)
async def test_deleted_topic_is_not_served_and_its_files_are_removed(bench: Bench) -> None:
    await bench.create("t", 2)
    await bench.create("kept")
    await bench.write("t", 3)
    topic_id = bench.watcher.image.topics["t"].id
    await bench.delete("t")
    assert bench.partitions.get("t", 0) is None
    await asyncio.sleep(1)
    assert not [p for p in sim_disk(bench).files() if show_topic_id(topic_id) in p]
    assert not bench.watcher.image.deleted
    assert len(bench.disk.listdir("data/logs")) == 1


@run_with(on_bench)
async def test_topic_stops_being_served_with_the_image_that_deletes_it(bench: Bench) -> None:
    await bench.create("t")
    old = bench.get("t")
    bench.workers.delay_s = (10.0, 10.0)
    opening = asyncio.ensure_future(bench.create("slow"))  # It keeps the reconciliation busy.
    await asyncio.sleep(1)
    deleted = await topics.delete_topic(bench.store, "t")
    await bench.watcher.reached(deleted)
    new = topics.NewTopic("t", 1)
    plan = topics.plan_topic(new, bench.watcher.image, bench.configs, bench.random)
    revision = await topics.create_topic(bench.store, plan)
    await bench.watcher.reached(revision)
    assert not opening.done()
    # Clients may know of the new topic by now: nothing of theirs may go to the old log.
    assert bench.partitions.get("t", 0) is None
    assert old.log.offline is not None
    await opening
    await bench.partitions.reached(revision)
    assert bench.get("t").topic_id == bench.watcher.image.topics["t"].id != old.topic_id


@run_with(on_bench)
async def test_topic_deleted_while_it_is_opened_is_never_served(bench: Bench) -> None:
    bench.workers.delay_s = (5.0, 5.0)
    new = topics.NewTopic("t", 1)
    plan = topics.plan_topic(new, bench.watcher.image, bench.configs, bench.random)
    created = await topics.create_topic(bench.store, plan)
    await bench.watcher.reached(created)
    await asyncio.sleep(1)
    deleted = await topics.delete_topic(bench.store, "t")
    await bench.partitions.reached(created)
    assert bench.partitions.get("t", 0) is None
    await bench.reached(deleted)
    await asyncio.sleep(30)
    assert bench.disk.listdir("data/logs") == []


@run_with(on_bench)
async def test_failed_file_removal_is_retried(bench: Bench) -> None:
    await bench.create("t")
    await bench.write("t")
    sim_disk(bench).inject(Fault("unlink", errno.EIO, times=2))
    await bench.delete("t")
    await bench.create("other")
    await asyncio.sleep(RETRY_SECONDS * 4)
    assert len(bench.disk.listdir("data/logs")) == 1
    assert not bench.watcher.image.deleted
    assert not any(task.done() for task in bench.tasks)


@run_with(on_bench)
async def test_deletion_interrupted_by_a_crash_completes_at_the_next_start(bench: Bench) -> None:
    await bench.create("t", 3)
    await bench.write("t")
    sim_disk(bench).inject(Fault("rmdir", errno.EIO, times=1000))
    await bench.delete("t")
    await asyncio.sleep(1)
    await bench.stop()
    sim_disk(bench).heal()
    assert bench.disk.listdir("data/logs")
    again = Bench(bench.loop, bench.disk, "data/logs")
    again.store = bench.store
    await again.start()
    assert bench.disk.listdir("data/logs") == []
    await again.stop()


@run_with(run)
async def test_deleted_topic_leaves_no_object_and_no_open_file(
    loop: SimLoop, *, tmp_path: Path
) -> None:
    disk = LocalDisk()
    bench = Bench(loop, disk, str(tmp_path / "logs"))
    await bench.register()
    await bench.start()
    await bench.create("t", 4)
    await bench.write("t", 3)
    await bench.create("policy", 1, flush_policy="page-cache")
    await bench.write("policy", 3)
    gone = weakref.ref(bench.get("t").log.segments.active.file)
    assert disk.open_files > 0
    gc.disable()  # Without the collector: there must be no reference cycles.
    try:
        await bench.delete("t")
        await bench.delete("policy")
        await asyncio.sleep(1)
        assert gone() is None
        assert disk.open_files == 0
    finally:
        gc.enable()
    await bench.stop()


# -- failing and closing ----------------------------------------------------------------------


@run_with(on_bench)
async def test_failed_read_takes_one_partition_offline(bench: Bench) -> None:
    await bench.create("t", 2)
    woken: list[str] = []
    bench.get("t", 0).watch(lambda: woken.append("reader"))
    bench.partitions.read_failed(bench.get("t", 0), OSError(errno.EIO, "bad sector"))
    assert woken == ["reader"]
    assert bench.get("t", 0).log.offline is not None
    assert bench.get("t", 1).log.offline is None


def test_failed_close_of_one_log_does_not_stop_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check(bench: Bench) -> None:
        await bench.create("t", 3)
        for index in range(3):
            batch = memoryview(encode([Record(0, 1000, None, b"v", ())]))
            bench.get("t", index).append(batch, read_header(batch), 0)
        await bench.flusher.drain()
        sim_disk(bench).inject(Fault("sync", errno.EIO, path="/1/"))
        states = await bench.stop()
        assert sorted(name.rpartition("/")[2] for name in states) == ["0", "2"]

    with caplog.at_level(logging.ERROR):
        on_bench(check)
    assert any("was not closed" in record.message for record in caplog.records)


def test_directory_name_holds_the_topic_name_and_id() -> None:
    topic_id = TopicId(bytes(15) + b"\x01")
    assert directory_of("orders", topic_id) == f"orders.{show_topic_id(topic_id)}"
    assert len(directory_of("x" * 249, topic_id)) < 255


@run_with(on_bench)
async def test_listeners_run_after_every_reconciliation(bench: Bench) -> None:
    seen: list[int] = []
    bench.partitions.on_change(lambda: seen.append(len(bench.partitions)))
    await bench.create("t", 2)
    assert seen[-1] == 2
    await bench.delete("t")
    assert seen[-1] == 0
