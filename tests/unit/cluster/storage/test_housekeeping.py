"""`cluster.storage.housekeeping`: what it does to a log and when, that the event loop never waits
for it, and that nothing stops it."""

import asyncio
import dataclasses
import errno
from collections.abc import Awaitable, Callable
from typing import Any, cast

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ids import NodeId, TopicId
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.partition import Partition, ProduceRules, ReplicaContext
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.storage.compaction_schedule import Compactor
from penstock.cluster.storage.housekeeping import Housekeeping
from penstock.cluster.storage.write_pressure import WritePressure
from penstock.log.flusher import Flusher
from penstock.log.log import Log, LogConfig
from penstock.wire.records import Record, check_batch, encode, read_header
from simulation.clock import SimClock
from simulation.disk import Fault, SimDisk
from simulation.loop import SimLoop, run
from simulation.workers import SimWorkers
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

MINUTE = 60
MIB = 1 << 20
PATH = "data/topic-0"
RULES = ProduceRules(1 << 20, False, 2**62, 2**62, False, None)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)
BY_SIZE = dataclasses.replace(SMALL, retention_ms=-1, retention_bytes=2500)
COMPACT = dataclasses.replace(
    SMALL, cleanup_delete=False, cleanup_compact=True, min_cleanable_dirty_ratio=0.0
)


class WatchedWorkers(SimWorkers):
    """Knows whether the code that runs was handed to a worker, and what that was given."""

    is_working = False
    refusals = 0
    """Number of further calls refused as too many."""

    def __init__(self, seed: int, delay_s: tuple[float, float] = (0.0001, 0.002)) -> None:
        super().__init__(seed, delay_s=delay_s)
        self.given: list[Any] = []

    def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        if self.refusals:
            self.refusals -= 1
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.given += args[:1]

        def watched() -> Any:
            self.is_working = True
            try:
                return work(*args, **kwargs)
            finally:
                self.is_working = False

        return super().run(watched)


class SomePartitions:
    """Stands for `Partitions` with these in it."""

    def __init__(self, partitions: list[Partition]) -> None:
        self.partitions = partitions
        self.pressure = WritePressure()

    def replicas(self) -> list[Partition]:
        return self.partitions

    async def save_watermarks(self) -> None:
        pass


class Bench:
    """Partitions of one topic with their housekeeping, which does nothing by itself."""

    def __init__(
        self,
        config: LogConfig,
        *,
        count: int = 1,
        cleaning_s: tuple[float, float] = (0.001, 0.002),
        **configs: str,
    ) -> None:
        self.disk = SimDisk(1, journaled=False)
        self.disk.mkdir("data")
        self.disk.sync_dir("")
        self.workers = WatchedWorkers(1)
        self.cleaning_workers = WatchedWorkers(1, delay_s=cleaning_s)
        self.clock = SimClock(asyncio.get_running_loop())
        self.failures: list[OSError] = []
        self.flusher = Flusher(self.disk, self.workers, self.failures.append)
        self.partitions = [self._open(index, config) for index in range(count)]
        self.partition = self.partitions[0]
        self.log = self.partition.log
        broker = BrokerConfigs({key.replace("_", "."): value for key, value in configs.items()})
        some = cast("Partitions", SomePartitions(self.partitions))
        self.housekeeping = Housekeeping(some, broker, self.disk, self.workers, self.clock, "data")
        self.compactor = Compactor(
            some,
            broker,
            self.disk,
            self.workers,
            self.cleaning_workers,
            self.clock,
            self.housekeeping,
        )
        self.on_loop: list[str] = []

    def _open(self, index: int, config: LogConfig) -> Partition:
        log = Log.open(self.disk, f"data/topic-{index}", config, self.clock.now_ms())
        home = ReplicaContext(NodeId(1), self.flusher)
        record = PartitionRecord((1,), 1, (1,), leader_epoch=1)
        partition = Partition("topic", TopicId(bytes(16)), index, log, record, RULES, home)
        partition.lead(record, 1, 0.0)
        return partition

    def put(self, key: bytes, index: int = 0) -> None:
        now_ms = self.clock.now_ms()
        batch = memoryview(encode([Record(timestamp=now_ms, key=key, value=b"v" * 150)]))
        self.partitions[index].append(batch, check_batch(batch), now_ms)

    async def fill(self, count: int) -> None:
        """As many records in every partition, with three keys."""
        for partition in self.partitions:
            for at in range(count):
                self.put(b"key-%d" % (at % 3), partition.index)
            partition.log.roll()
            partition.flush()
        await self.flusher.drain()

    async def settle(self) -> None:
        """Until nothing is being compacted any more."""
        while jobs := self.compactor._jobs:
            await asyncio.wait([job.task for job in jobs.values()])

    async def compact(self) -> bool:
        """One look of the compactor and what comes of it; whether it put something in place."""
        before = self.compactor.compactions
        await self.compactor.run_round()
        await self.settle()
        return self.compactor.compactions > before

    def watch(self) -> None:
        def note() -> None:
            if not (self.workers.is_working or self.cleaning_workers.is_working):
                self.on_loop.append(f"operation {self.disk.operations}")

        self.disk.on_operation = note


def names(bench: Bench, ending: str) -> list[str]:
    return [name for name in bench.disk.listdir(PATH) if name.endswith(ending)]


@run_with(run, 1)
async def test_retention_never_touches_the_disk_on_the_event_loop(loop: SimLoop) -> None:
    bench = Bench(BY_SIZE)
    await bench.fill(40)
    files = len(names(bench, ".log"))
    bench.watch()
    await bench.housekeeping._retain_all()
    assert not bench.housekeeping._removals, "its queues may not have said what they wait for"
    await bench.housekeeping._retain_all()
    await bench.housekeeping._purge()
    assert len(names(bench, ".log")) == files, "the start offset is not durable yet"
    await bench.flusher.drain()
    await bench.housekeeping._purge()
    await bench.housekeeping._purge()
    assert bench.on_loop == []
    assert bench.log.start_offset > 0
    assert len(names(bench, ".log")) == len(bench.log.segments) < files
    assert names(bench, ".deleted") == []
    assert bench.housekeeping._removals == []


# -- on a node, round after round --------------------------------------------------------------


class Kept:
    """A node whose housekeeping runs."""

    def __init__(self, node: Node) -> None:
        self.node = node
        ctx = node.ctx
        self.housekeeping = Housekeeping(
            ctx.partitions,
            node.configs,
            node.disk,
            node.workers,
            ctx.clock,
            ctx.admin.directory.path,
        )
        self.cleaning_workers = SimWorkers(1)
        self.compactor = Compactor(
            ctx.partitions,
            node.configs,
            node.disk,
            node.workers,
            self.cleaning_workers,
            ctx.clock,
            self.housekeeping,
        )
        self.tasks = [
            asyncio.ensure_future(one.run()) for one in (self.housekeeping, self.compactor)
        ]

    def get(self, topic: str = "t", index: int = 0) -> Partition:
        partition = self.node.ctx.partitions.get(topic, index)
        assert partition is not None
        return partition

    async def fill(self, values: list[bytes], topic: str = "t", key: bytes | None = None) -> None:
        """One batch for each value, each in a segment of its own."""
        partition = self.get(topic)
        for value in values:
            now_ms = self.node.ctx.clock.now_ms()
            batch = memoryview(encode([Record(0, now_ms, key, value, ())]))
            partition.append(batch, read_header(batch), now_ms)
            while partition.high_watermark < partition.log.end_offset:
                await asyncio.sleep(0.01)
            partition.log.roll()
            partition.flush()
            await partition._flusher.settle(partition.log)

    def files(self, part: str) -> list[str]:
        return [path for path in self.node.disk.files() if part in path]


def on_kept(test: Callable[[Kept], Awaitable[None]], **configs: str) -> None:
    async def check(node: Node) -> None:
        await node.create("t", 1)
        kept = Kept(node)
        try:
            await test(kept)
            assert not any(task.done() for task in kept.tasks), "housekeeping goes on"
        finally:
            for task in kept.tasks:
                task.cancel()

    on_node(check, configs={key.replace("_", "."): value for key, value in configs.items()})


# -- the disk ---------------------------------------------------------------------------------


@run_with(on_kept)
async def test_writes_are_refused_while_the_disk_is_nearly_full(kept: Kept) -> None:
    disk, partitions = kept.node.disk, kept.node.ctx.partitions
    await asyncio.sleep(2)
    assert partitions.write_refusal is None
    disk.capacity_bytes = disk.used_bytes + 10 * MIB
    await asyncio.sleep(2)
    assert partitions.write_refusal is not None
    assert "10 MiB" in partitions.write_refusal
    disk.capacity_bytes += 1 << 30
    await asyncio.sleep(2)
    assert partitions.write_refusal is None


@run_with(on_kept, disk_reserve_bytes="0")
async def test_writes_slow_down_at_the_first_watermark_and_stop_at_the_second(
    kept: Kept,
) -> None:
    disk, pressure = kept.node.disk, kept.node.ctx.partitions.pressure
    await kept.fill([bytes(500_000)])
    delays = []
    for percent in (90, 95.5, 97, 98.5):
        disk.capacity_bytes = int(disk.used_bytes * 100 / percent)
        await asyncio.sleep(2)
        assert pressure.refusal is None
        delays.append(pressure.delay_s)
    assert delays[0] == 0
    assert delays == sorted(delays)
    assert delays[1] < delays[3] <= 1
    disk.capacity_bytes = int(disk.used_bytes * 100 / 99.5)
    await asyncio.sleep(2)
    assert "disk.watermark.refuse.percent" in (pressure.refusal or "")
    assert pressure.delay_s == 0
    disk.capacity_bytes = disk.used_bytes * 10
    await asyncio.sleep(2)
    assert not pressure.is_on


@run_with(
    on_kept,
    disk_reserve_bytes="0",
    **{f"disk_watermark_{what}_percent": "100" for what in ("slow", "refuse")},
)
async def test_watermarks_of_100_percent_are_disabled(kept: Kept) -> None:
    disk = kept.node.disk
    disk.capacity_bytes = disk.used_bytes
    await asyncio.sleep(2)
    assert not kept.node.ctx.partitions.pressure.is_on


# -- retention --------------------------------------------------------------------------------


@run_with(on_kept, log_retention_ms=str(3600000))
async def test_old_segments_are_removed_and_their_files_after_the_delay(kept: Kept) -> None:
    await kept.fill([b"a", b"b", b"c"])
    await asyncio.sleep(30 * MINUTE)
    await kept.fill([b"d"])
    await asyncio.sleep(37 * MINUTE)
    assert kept.get().log.start_offset == 3
    assert kept.housekeeping.segments_removed == 3
    assert not kept.files(".deleted")
    assert len(kept.files(".log")) == 2


@run_with(on_kept, log_retention_ms="1000", log_retention_check_interval_ms="3000000")
async def test_files_are_removed_soon_after_their_delay_and_not_at_the_next_round(
    kept: Kept,
) -> None:
    await kept.fill([b"a", b"b"])
    while not kept.files(".deleted"):
        await asyncio.sleep(1)
    await asyncio.sleep(50)
    assert kept.files(".deleted")
    await asyncio.sleep(15)
    assert not kept.files(".deleted")


@run_with(on_kept, log_retention_ms="1000")
async def test_reader_below_the_new_start_is_woken(kept: Kept) -> None:
    await kept.fill([b"a", b"b"])
    woken: list[int] = []
    kept.get().watch(lambda: woken.append(kept.get().log.start_offset))
    await asyncio.sleep(10 * MINUTE)
    assert woken == [2]


@run_with(on_kept, log_retention_ms="1000")
async def test_topic_deleted_before_its_old_files_does_not_affect_the_rest(kept: Kept) -> None:
    await kept.node.create("other", 1)
    await kept.fill([b"a", b"b"])
    await kept.fill([b"a", b"b"], "other")
    while not kept.files(".deleted"):
        await asyncio.sleep(1)
    await kept.node.delete("t")
    await asyncio.sleep(10 * MINUTE)
    assert not kept.files(".deleted")
    assert kept.get("other").log.start_offset == 2


@run_with(on_kept, log_retention_ms="1000")
async def test_failed_file_removal_is_retried(kept: Kept) -> None:
    await kept.fill([b"a", b"b"])
    kept.node.disk.inject(Fault("unlink", errno.EIO, path=".deleted", times=3))
    await asyncio.sleep(10 * MINUTE)
    assert not kept.files(".deleted")


@run_with(on_kept, log_retention_ms="1000")
async def test_failed_retention_of_one_log_does_not_stop_the_next(kept: Kept) -> None:
    await kept.node.create("other", 1)
    await kept.fill([b"a", b"b"])
    await kept.fill([b"a", b"b"], "other")
    kept.node.disk.inject(Fault("rename", errno.EIO, path="/t.", times=1000))
    await asyncio.sleep(15 * MINUTE)
    assert kept.get("other").log.start_offset == 2


@run_with(on_kept, log_retention_ms="1000")
async def test_failed_file_removals_do_not_block_the_rest(kept: Kept) -> None:
    await kept.node.create("other", 1)
    await kept.fill([b"a", b"b"])
    await kept.fill([b"a", b"b"], "other")
    kept.node.disk.inject(Fault("unlink", errno.EIO, path="/t.", times=1000))
    await asyncio.sleep(10 * MINUTE)
    stuck = kept.files(".deleted")
    assert stuck
    assert all("/t." in path for path in stuck)


@run_with(on_kept, log_retention_ms="1000")
async def test_offline_log_is_left_alone(kept: Kept) -> None:
    await kept.fill([b"a", b"b"])
    before = kept.files("/t.")
    kept.node.ctx.partitions.read_failed(kept.get(), OSError(errno.EIO, "bad sector"))
    await asyncio.sleep(10 * MINUTE)
    assert kept.files("/t.") == before


# -- producers --------------------------------------------------------------------------------


@run_with(on_kept, producer_id_expiration_ms=str(10 * 60000))
async def test_idle_producers_expire(kept: Kept) -> None:
    partition = kept.get()
    now_ms = kept.node.ctx.clock.now_ms()
    batch = memoryview(
        encode(
            [Record(0, now_ms, None, b"v", ())],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
        )
    )
    partition.append(batch, read_header(batch), now_ms)
    await asyncio.sleep(5 * MINUTE)
    assert 5 in partition.log.producers.by_id
    await asyncio.sleep(20 * MINUTE)
    assert 5 not in partition.log.producers.by_id


# -- failures --------------------------------------------------------------------------------------


@run_with(on_kept)
async def test_failure_that_took_the_log_offline_wakes_readers(kept: Kept) -> None:
    woken: list[str] = []
    kept.get().watch(lambda: woken.append("reader"))
    kept.get().log.fail("a rename failed half way")
    kept.housekeeping.failed("retention", kept.get(), OSError(errno.EIO, "rename"))
    assert woken == ["reader"]
    kept.housekeeping.failed("retention", kept.get(), Corrupt("no batch"))
    assert woken == ["reader", "reader"]
