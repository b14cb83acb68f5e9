"""The housekeeping of a node: retention, compaction, and a look at how full the disk is.

Deciding is cheap and happens on the loop; unlinking, reading and rewriting files happen on
workers. One log at a time: housekeeping must not compete with what clients wait for.

Disk nearly full: below `disk.reserve.bytes` of free space producers are refused with
KAFKA_STORAGE_ERROR, which clients retry; retention and the node's own small writes go on, and
writes are taken again as soon as there is room.
"""

import asyncio
import logging

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Disk, WallClock, Workers
from penstock.cluster.configs import BrokerConfigs
from penstock.cluster.partition import Partition
from penstock.cluster.partitions import Partitions
from penstock.log import compaction, retention
from penstock.log.retention import Removal

log = logging.getLogger("penstock.upkeep")

TICK_SECONDS = 1.0
MIB = 1024 * 1024


class Upkeep:
    """Goes round all partitions, at the intervals that the configs give."""

    def __init__(
        self,
        partitions: Partitions,
        configs: BrokerConfigs,
        disk: Disk,
        workers: Workers,
        clock: WallClock,
        data_dir: str,
    ) -> None:
        self._partitions = partitions
        self._configs = configs
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._data_dir = data_dir
        self._removals: list[Removal] = []
        self.segments_removed = 0
        self.compactions = 0

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        retain_at = loop.time()
        compact_at = loop.time()
        while True:
            await self._look_at_disk()
            if loop.time() >= retain_at:
                await self._retain_all()
                retain_at = loop.time() + self._seconds("log.retention.check.interval.ms")
            if loop.time() >= compact_at:
                busy = await self._compact_all()
                compact_at = loop.time() + (
                    0.0 if busy else self._seconds("log.cleaner.backoff.ms")
                )
            await asyncio.sleep(TICK_SECONDS)

    def _seconds(self, name: str) -> float:
        return self._configs.integer(name) / 1000

    async def _look_at_disk(self) -> None:
        try:
            free = await self._workers.run(self._disk.free_bytes, self._data_dir)
        except OSError as error:
            log.warning("cannot tell how full the disk is: %s", error)
            return
        reserve = self._configs.integer("disk.reserve.bytes")
        was = self._partitions.write_refusal
        if free >= reserve:
            self._partitions.write_refusal = None
            if was is not None:
                log.warning("there is room on the disk again: writes are taken")
            return
        self._partitions.write_refusal = (
            f"the disk has {free // MIB} MiB left, less than disk.reserve.bytes "
            f"({reserve // MIB} MiB)"
        )
        if was is None:
            log.error("writes are refused: %s", self._partitions.write_refusal)

    # -- retention --------------------------------------------------------------------------

    async def _retain_all(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in tuple(self._partitions.led()):
            self.retain(partition, now_ms)
            await asyncio.sleep(0)
        self._removals = await self._workers.run(
            retention.purge, self._disk, self._removals, now_ms
        )

    def retain(self, partition: Partition, now_ms: int) -> None:
        """Takes expired segments of one partition out of use; their files go later."""
        if partition.log.offline is not None:
            return
        before = partition.log.start_offset
        try:
            removals = partition.log.retain(now_ms, partition.high_watermark)
        except (OSError, Refused) as error:
            log.error("retention of %s-%d failed: %s", partition.topic, partition.index, error)
            return
        self._removals += removals
        self.segments_removed += len(removals)
        if partition.log.start_offset != before:
            partition.truncated()
        partition.flush()

    # -- compaction -------------------------------------------------------------------------

    async def _compact_all(self) -> bool:
        """Compacts the log that needs it most; whether there was one."""
        if not self._configs.flag("log.cleaner.enable"):
            return False
        now_ms = self._clock.now_ms()
        busy = False
        for partition in tuple(self._partitions.led()):
            config = partition.log.config
            if not config.cleanup_compact or partition.log.offline is not None:
                continue
            try:
                busy |= await self.compact(partition, now_ms)
            except (OSError, Corrupt, Refused) as error:
                log.error(
                    "compaction of %s-%d failed: %s", partition.topic, partition.index, error
                )
        return busy

    async def compact(self, partition: Partition, now_ms: int) -> bool:
        """One compaction of one partition, if its log has earned it."""
        plan = compaction.plan(partition.log, now_ms, partition.last_stable_offset)
        if plan is None:
            return False
        done = await self._workers.run(compaction.execute, plan)
        self._removals += compaction.swap_in(partition.log, done, now_ms)
        self.compactions += 1
        return True
