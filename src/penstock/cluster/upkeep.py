"""The housekeeping of a node: retention, compaction, idle producers, how full the disk is, and the
high watermarks for the next life.

Deciding is cheap and happens on the loop; unlinking, reading and rewriting files happen on
workers. One log at a time: housekeeping must not compete with what clients wait for.

Leaders decide by age and size what goes, and followers begin where their leader does: they remove
what lies below that, and nothing else. Every replica compacts its own log, below what it knows to
be committed. A log that is being brought in line with its leader's is left alone.

Disk nearly full: from `disk.watermark.slow.percent` on producers are slowed; from
`disk.watermark.refuse.percent` on, or below `disk.reserve.bytes` of free space, they are refused
with KAFKA_STORAGE_ERROR, which clients retry (`pressure`). Retention and the node's own small
writes go on, and writes are taken again as soon as there is room.

Whatever fails here fails for one partition or one file, is reported, and is tried again in the
next round: housekeeping is no reason to stop a node.
"""

import asyncio
import logging

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Disk, WallClock, Workers
from penstock.cluster.configs import BrokerConfigs
from penstock.cluster.partition import Partition
from penstock.cluster.partitions import Partitions
from penstock.cluster.pressure import slowness
from penstock.log import compaction, retention
from penstock.log.compaction import Compacted
from penstock.log.retention import Removal

log = logging.getLogger("penstock.upkeep")

TICK_SECONDS = 1.0
MIB = 1024 * 1024
FULL_PERCENT = 100.0
"""A watermark at 100 is none."""


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
        retain_at = compact_at = expire_at = save_at = loop.time()
        while True:
            await self._look_at_disk()
            if loop.time() >= expire_at:
                self._expire_producers()
                expire_at = loop.time() + self._seconds("producer.id.expiration.check.interval.ms")
            if loop.time() >= retain_at:
                await self._retain_all()
                retain_at = loop.time() + self._seconds("log.retention.check.interval.ms")
            if loop.time() >= compact_at:
                busy = await self._compact_all()
                compact_at = loop.time() + (
                    0.0 if busy else self._seconds("log.cleaner.backoff.ms")
                )
            if loop.time() >= save_at:
                await self._partitions.save_watermarks()
                save_at = loop.time() + self._seconds(
                    "replica.high.watermark.checkpoint.interval.ms"
                )
            await self._purge()
            await asyncio.sleep(TICK_SECONDS)

    def _seconds(self, name: str) -> float:
        return self._configs.integer(name) / 1000

    async def _look_at_disk(self) -> None:
        try:
            free, used = await self._workers.run(self._measure_disk)
        except (OSError, Refused) as error:
            log.warning("cannot tell how full the disk is: %s", error)
            return
        reserve = self._configs.integer("disk.reserve.bytes")
        slow, refuse = (
            self._configs.number(f"disk.watermark.{what}.percent") for what in ("slow", "refuse")
        )
        why, delay_s = None, 0.0
        if free < reserve:
            why = (
                f"the disk has {free // MIB} MiB left, less than disk.reserve.bytes "
                f"({reserve // MIB} MiB)"
            )
        elif used >= refuse < FULL_PERCENT:
            why = f"the disk is {used:.1f} % full, disk.watermark.refuse.percent is {refuse:g}"
        elif slow < FULL_PERCENT:
            delay_s = slowness(used, slow, refuse)
        self._tell_disk(why, delay_s, used)

    def _measure_disk(self) -> tuple[int, float]:
        return self._disk.free_bytes(self._data_dir), self._disk.used_percent(self._data_dir)

    def _tell_disk(self, why: str | None, delay_s: float, used: float) -> None:
        pressure = self._partitions.pressure
        was, was_slow = pressure.refusal, pressure.delay_s > 0
        pressure.tell_disk(why, delay_s)
        if why is not None:
            if was is None:
                log.error("writes are refused: %s", why)
        elif was is not None:
            log.warning("there is room on the disk again: writes are taken")
        elif was_slow != (delay_s > 0):
            log.warning(
                "the disk is %.1f %% full: producers are %s",
                used,
                "slowed" if delay_s > 0 else "no longer slowed",
            )

    # -- retention --------------------------------------------------------------------------

    async def _retain_all(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in tuple(self._partitions.replicas()):
            try:
                await self._load_summaries(partition)
            except (OSError, Corrupt, Refused) as error:
                self._failed("retention", partition, error)
                continue
            self.retain(partition, now_ms)
            await asyncio.sleep(0)

    async def _purge(self) -> None:
        """Renames what is out of use, and unlinks what has been for long enough."""
        now_ms = self._clock.now_ms()
        for removal in [one for one in self._removals if one.is_due(now_ms)]:
            try:
                later = await self._workers.run(retention.purge, self._disk, [removal], now_ms)
            except FileNotFoundError:
                later = []  # The topic was deleted meanwhile, and all its files with it.
            except (OSError, Refused) as error:
                log.warning("old files in %s are removed later: %s", removal.log.path, error)
                return
            if not later:
                self._removals.remove(removal)

    async def _load_summaries(self, partition: Partition) -> None:
        """Reads what retention and compaction ask of segments, so that they need not wait."""
        unknown = [one for one in partition.log.segments.sealed if not one.is_summed_up]
        if unknown:
            await self._workers.run(retention.sum_up, unknown)

    def retain(self, partition: Partition, now_ms: int) -> None:
        """Takes expired segments of one partition out of use; their files go later."""
        if partition.log.offline is not None or partition.is_cutting:
            return
        before = partition.log.start_offset
        try:
            removals = partition.log.retain(
                now_ms, partition.high_watermark, by_policy=partition.is_leader
            )
        except (OSError, Corrupt, Refused) as error:
            self._failed("retention", partition, error)
            return
        self._removals += removals
        self.segments_removed += sum(len(removal.segments) for removal in removals)
        if partition.log.start_offset != before:
            partition.truncated()
        partition.flush()

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions.replicas():
            partition.log.producers.expire(now_ms)

    # -- compaction -------------------------------------------------------------------------

    async def _compact_all(self) -> bool:
        """Compacts every log that has earned it; whether there was one."""
        if not self._configs.flag("log.cleaner.enable"):
            return False
        now_ms = self._clock.now_ms()
        busy = False
        for partition in tuple(self._partitions.replicas()):
            config = partition.log.config
            if not config.cleanup_compact or partition.log.offline is not None:
                continue
            if partition.is_cutting:
                continue
            try:
                busy |= await self.compact(partition, now_ms)
            except (OSError, Corrupt, Refused) as error:
                self._failed("compaction", partition, error)
        return busy

    async def compact(self, partition: Partition, now_ms: int) -> bool:
        """One compaction of one partition, if its log has earned it."""
        await self._load_summaries(partition)
        plan = compaction.plan(partition.log, now_ms, partition.last_stable_offset)
        if plan is None:
            return False
        done = await self._workers.run(compaction.execute, plan)
        # Once begun it is finished, even when the node stops meanwhile: the closing of the logs
        # waits for it (`Flusher.drain`).
        swap = asyncio.get_running_loop().create_task(self._swap(partition, done, now_ms))
        if not await asyncio.shield(swap):
            return False
        self.compactions += 1
        return True

    async def _swap(self, partition: Partition, done: Compacted, now_ms: int) -> bool:
        """Puts what was compacted in place, if the log is still the one that it was."""
        held = partition.log
        async with partition.hold():
            if not compaction.is_current(held, done):
                await self._workers.run(compaction.discard, done, self._disk)
                return False
            try:
                paths = await self._workers.run(
                    compaction.move, self._disk, held.path, done, held.gaps_end
                )
            except OSError as error:
                held.fail(f"compacted segments could not be put in place: {error}")
                raise
            if held.offline is not None:
                return False  # Deleted meanwhile.
            self._removals += compaction.adopt(held, done, paths, now_ms)
            return True

    def _failed(self, what: str, partition: Partition, error: Exception) -> None:
        if partition.is_cutting:
            return  # Segments went while they were read: the next round finds what is left.
        if isinstance(error, Corrupt):
            self._partitions.read_failed(partition, error)
        elif partition.log.offline is None:
            log.error("%s of %s-%d failed: %s", what, partition.topic, partition.index, error)
        else:
            partition.advance()  # Those who wait for an offline log must hear of it.
