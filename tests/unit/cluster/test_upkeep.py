"""`penstock.cluster.upkeep`: what it does to a log, and that the event loop never waits for it."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.base.ids import TopicId
from penstock.cluster.configs import BrokerConfigs
from penstock.cluster.partition import Partition, ProduceRules
from penstock.cluster.partitions import Partitions
from penstock.cluster.upkeep import Upkeep
from penstock.log.flusher import Flusher
from penstock.log.log import Log, LogConfig
from penstock.sim.clock import SimClock
from penstock.sim.disk import SimDisk
from penstock.sim.loop import SimLoop
from penstock.sim.workers import SimWorkers
from penstock.wire.records import Record, check_batch, encode

PATH = "data/topic-0"
RULES = ProduceRules(1 << 20, False, 2**62, 2**62, False, None)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200, file_delete_delay_ms=0)
BY_SIZE = dataclasses.replace(SMALL, retention_ms=-1, retention_bytes=2500)
COMPACT = dataclasses.replace(
    SMALL, cleanup_delete=False, cleanup_compact=True, min_cleanable_dirty_ratio=0.0
)


class WatchedWorkers(SimWorkers):
    """Knows whether the code that runs was handed to a worker."""

    is_working = False

    def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        def watched() -> Any:
            self.is_working = True
            try:
                return work(*args, **kwargs)
            finally:
                self.is_working = False

        return super().run(watched)


class OnePartition:
    """Stands for `Partitions` with one partition in it."""

    write_refusal: str | None = None

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def led(self) -> list[Partition]:
        return [self.partition]


class House:
    def __init__(self, config: LogConfig) -> None:
        self.disk = SimDisk(1, journaled=False)
        self.disk.mkdir("data")
        self.disk.sync_dir("")
        self.workers = WatchedWorkers(1)
        self.clock = SimClock(asyncio.get_running_loop())
        self.failures: list[OSError] = []
        self.flusher = Flusher(self.disk, self.workers, self.failures.append)
        self.log = Log.open(self.disk, PATH, config, self.clock.now_ms())
        self.partition = Partition("topic", TopicId(bytes(16)), 0, self.log, 1, RULES, self.flusher)
        self.upkeep = Upkeep(
            cast("Partitions", OnePartition(self.partition)),
            BrokerConfigs({}),
            self.disk,
            self.workers,
            self.clock,
            "data",
        )
        self.on_loop: list[str] = []

    def put(self, key: bytes) -> None:
        now_ms = self.clock.now_ms()
        batch = memoryview(encode([Record(timestamp=now_ms, key=key, value=b"v" * 150)]))
        self.partition.append(batch, check_batch(batch), now_ms)

    async def fill(self, count: int) -> None:
        for at in range(count):
            self.put(b"key-%d" % (at % 3))
        self.log.roll()
        self.partition.flush()
        await self.flusher.drain()

    def watch(self) -> None:
        def note() -> None:
            if not self.workers.is_working:
                self.on_loop.append(f"operation {self.disk.operations}")

        self.disk.on_operation = note


def names(house: House, ending: str) -> list[str]:
    return [name for name in house.disk.listdir(PATH) if name.endswith(ending)]


def test_retention_never_touches_the_disk_on_the_loop() -> None:
    async def story() -> None:
        house = House(BY_SIZE)
        await house.fill(40)
        files = len(names(house, ".log"))
        house.watch()
        await house.upkeep._retain_all()
        await house.upkeep._purge()
        assert len(names(house, ".log")) == files, "the start offset is not durable yet"
        await house.flusher.drain()
        await house.upkeep._purge()
        await house.upkeep._purge()
        assert house.on_loop == []
        assert house.log.start_offset > 0
        assert len(names(house, ".log")) == len(house.log.segments) < files
        assert names(house, ".deleted") == []
        assert house.upkeep._removals == []

    SimLoop(1).run(story())


def test_compaction_never_touches_the_disk_on_the_loop() -> None:
    async def story() -> None:
        house = House(COMPACT)
        await house.fill(40)
        before = house.log.size_bytes
        house.watch()
        assert await house.upkeep.compact(house.partition, house.clock.now_ms())
        await house.flusher.drain()
        assert house.on_loop == []
        assert house.log.size_bytes < before / 2
        assert house.log.offline is None
        assert not house.log.held
        again = Log.open(house.disk, PATH, COMPACT, house.clock.now_ms())
        assert (again.offline, again.end_offset) == (None, 40)

    SimLoop(1).run(story())


def test_what_is_appended_during_a_swap_is_acknowledged_after_it() -> None:
    async def story() -> None:
        house = House(COMPACT)
        await house.fill(40)
        compacting = asyncio.ensure_future(
            house.upkeep.compact(house.partition, house.clock.now_ms())
        )
        while not house.log.held:
            await asyncio.sleep(0.00005)
        house.put(b"meanwhile")
        assert await compacting
        await house.flusher.drain()
        assert house.partition.high_watermark == house.log.end_offset == 41

    SimLoop(1).run(story())


def test_a_stop_in_the_middle_of_a_swap_waits_for_its_end() -> None:
    async def story() -> None:
        house = House(COMPACT)
        await house.fill(40)
        compacting = asyncio.ensure_future(
            house.upkeep.compact(house.partition, house.clock.now_ms())
        )
        while not house.log.held:
            await asyncio.sleep(0.00005)
        compacting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await compacting
        await house.flusher.drain()
        clean = house.log.close()
        again = Log.open(house.disk, PATH, COMPACT, house.clock.now_ms(), clean)
        assert not again.changed, "the files are those that the log knew"
        assert again.end_offset == 40

    SimLoop(1).run(story())
