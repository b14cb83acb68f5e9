"""Housekeeping of a node: retention, idle producers, disk usage, and the high watermark checkpoint.

Decisions are cheap and are made on the loop; files are read and unlinked on workers. One log at a
time: housekeeping must not compete with clients' requests. Compaction takes longer, and has a loop
of its own (`compaction_schedule`).

Leaders decide on retention by age and size, from the second round of their leadership on: by then
queues have reported the records that they still need (`kept_from`). Before anything expires, the
delayed records of closed queues are looked up (`expires_until`). Followers remove what lies
below their leader's log start, and nothing else. A log whose segments are being changed by other
code is left alone until the next round: a log under repair, and one that is being compacted, which
is handled right after that.

Disk nearly full: from `disk.watermark.slow.percent` on, producers are slowed. From
`disk.watermark.refuse.percent` on, or below `disk.reserve.bytes` of free space, they are refused
with KAFKA_STORAGE_ERROR, which clients retry (`write_pressure`). Retention and the node's own small
writes continue, and writes are accepted again as soon as there is space.

A failure concerns one partition or one file, is reported and retried later; the others are handled
in the same round. A failure of housekeeping never stops a node.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Disk, WallClock, Workers
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.storage.write_pressure import slowness
from penstock.log.cleanup import retention
from penstock.log.cleanup.retention import Removal

log = logging.getLogger("penstock.upkeep")

TICK_SECONDS = 1.0
RETRY_MS = 15_000
"""Pause between two attempts to remove a file that the disk refuses to remove."""
MIB = 1024 * 1024
FULL_PERCENT = 100.0
"""A watermark of 100 is disabled."""

Expiring = Mapping[Partition, list[tuple[int, int]]]
"""First and end offset of the segments that would expire by age or size."""


async def _all_of(expiring: Expiring, now_ms: int) -> dict[Partition, int]:
    """Lets everything expire: without queues."""
    return {partition: segments[-1][1] for partition, segments in expiring.items()}


class Housekeeping:
    """Periodic work on all partitions, at the configured intervals."""

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
        self.kept_from: Callable[[Partition, int], int | None] = lambda partition, now_ms: None
        """First offset that retention by age and size must keep: an open queue still needs it."""
        self.expires_until: Callable[[Expiring, int], Awaitable[dict[Partition, int]]] = _all_of
        """Finds, in segments that would expire, records that closed queues still need; returns the
        offset of each partition up to which segments may expire."""
        self._led: dict[Partition, int] = {}
        self.last_ms = 0
        """Time at which the last round of retention ended; 0: never in this process."""

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_retention())
            tasks.create_task(self._run_checks())

    async def _run_retention(self) -> None:
        """Retention on its own: a round may decode whole segments."""
        while True:
            await self._retain_all()
            await asyncio.sleep(self._seconds("log.retention.check.interval.ms"))

    async def _run_checks(self) -> None:
        loop = asyncio.get_running_loop()
        expire_at = save_at = loop.time()
        while True:
            await self._check_disk()
            if loop.time() >= expire_at:
                self._expire_producers()
                expire_at = loop.time() + self._seconds("producer.id.expiration.check.interval.ms")
            if loop.time() >= save_at:
                await self._partitions.save_watermarks()
                save_at = loop.time() + self._seconds(
                    "replica.high.watermark.checkpoint.interval.ms"
                )
            await self._purge()
            await asyncio.sleep(TICK_SECONDS)

    def _seconds(self, name: str) -> float:
        return self._configs.integer(name) / 1000

    async def _check_disk(self) -> None:
        try:
            free, used = await self._workers.run(self._measure_disk)
        except (OSError, Refused) as error:
            log.warning("cannot measure disk usage: %s", error)
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
        self._set_disk(why, delay_s, used)

    def _measure_disk(self) -> tuple[int, float]:
        return self._disk.free_bytes(self._data_dir), self._disk.used_percent(self._data_dir)

    def _set_disk(self, why: str | None, delay_s: float, used: float) -> None:
        pressure = self._partitions.pressure
        was, was_slow = pressure.refusal, pressure.delay_s > 0
        pressure.set_disk(why, delay_s)
        if why is not None:
            if was is None:
                log.error("writes are refused: %s", why)
        elif was is not None:
            log.warning("the disk has space again: writes are accepted")
        elif was_slow != (delay_s > 0):
            log.warning(
                "the disk is %.1f %% full: producers are %s",
                used,
                "slowed" if delay_s > 0 else "no longer slowed",
            )

    # -- retention --------------------------------------------------------------------------

    async def _retain_all(self) -> None:
        now_ms = self._clock.now_ms()
        led: dict[Partition, int] = {}
        expiring: dict[Partition, list[tuple[int, int]]] = {}
        for partition in tuple(self._partitions.replicas()):
            try:
                await self.load_summaries(partition)
            except (OSError, Corrupt, Refused) as error:
                self.failed("retention", partition, error)
                continue
            is_settled = self._led.get(partition) == partition.leader_epoch
            led[partition] = partition.leader_epoch
            segments = self._expiring(partition, now_ms) if is_settled else []
            if segments:
                expiring[partition] = segments
            else:
                self.retain(partition, now_ms, is_settled=is_settled)
            await asyncio.sleep(0)
        await self._expire(expiring, now_ms)
        self._led = led
        self.last_ms = self._clock.now_ms()

    def _expiring(self, partition: Partition, now_ms: int) -> list[tuple[int, int]]:
        """Returns the segments that would expire by age or size now."""
        if not partition.is_leader or not self._is_free(partition):
            return []
        kept_from = self.kept_from(partition, now_ms)
        try:
            return retention.expiring(partition.log, now_ms, partition.high_watermark, kept_from)
        except (OSError, Corrupt, Refused) as error:
            self.failed("retention", partition, error)
            return []

    async def _expire(self, expiring: Expiring, now_ms: int) -> None:
        """Retires segments that expired, up to those that closed queues still need."""
        if not expiring:
            return
        until = await self.expires_until(expiring, now_ms)
        for partition, segments in expiring.items():
            bound = until.get(partition, segments[0][0])
            self.retain(partition, now_ms, expires_until=bound)

    async def retain_now(self, partition: Partition, now_ms: int) -> None:
        """Runs retention of one partition between two rounds."""
        segments = self._expiring(partition, now_ms)
        if segments:
            await self._expire({partition: segments}, now_ms)
        else:
            self.retain(partition, now_ms, is_settled=False)

    async def _purge(self) -> None:
        """Renames retired files, and unlinks those that were renamed long enough ago."""
        now_ms = self._clock.now_ms()
        for removal in [one for one in self._removals if one.is_due(now_ms)]:
            try:
                later = await self._workers.run(retention.purge, self._disk, [removal], now_ms)
            except FileNotFoundError:
                later = []  # The topic was deleted meanwhile, and all its files with it.
            except (OSError, Refused) as error:
                log.warning("old files in %s are removed later: %s", removal.log.path, error)
                removal.retry_ms = now_ms + RETRY_MS
                continue
            if not later:
                self._removals.remove(removal)

    def remove_later(self, removals: list[Removal]) -> None:
        """Schedules the removal of retired files, once reads of them have had time to end."""
        self._removals += removals

    async def load_summaries(self, partition: Partition) -> None:
        """Reads the segment summaries that retention and compaction need, on workers."""
        unknown = [one for one in partition.log.segments.sealed if not one.is_summed_up]
        if not unknown:
            return
        try:
            await self._workers.run(retention.sum_up, unknown)
        except (OSError, Corrupt):
            # A segment that was truncated or removed meanwhile may fail; nothing is lost.
            if not any(segment.retired for segment in unknown):
                raise

    def retain(
        self,
        partition: Partition,
        now_ms: int,
        *,
        is_settled: bool = True,
        expires_until: int | None = None,
    ) -> None:
        """Retires expired segments of one partition; their files are removed later. By age and size
        only if `is_settled` (else its queues may not have reported what they need), and only those
        that end at or below `expires_until`."""
        if not self._is_free(partition):
            return
        before = partition.log.start_offset
        kept = [self.kept_from(partition, now_ms), expires_until]
        try:
            removals = partition.log.retain(
                now_ms,
                partition.high_watermark,
                by_policy=partition.is_leader and is_settled,
                kept_from=min((offset for offset in kept if offset is not None), default=None),
            )
        except (OSError, Corrupt, Refused) as error:
            self.failed("retention", partition, error)
            return
        self.remove_later(removals)
        self.segments_removed += sum(len(removal.segments) for removal in removals)
        if partition.log.start_offset != before:
            partition.truncated()
        partition.flush()

    def _is_free(self, partition: Partition) -> bool:
        """True if no other code is changing the partition's segments, and its log is online."""
        if partition.log.offline is not None or partition.log.held:
            return False
        return not (partition.is_under_repair or partition.is_compacting)

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions.replicas():
            partition.log.producers.expire(now_ms)

    def failed(self, what: str, partition: Partition, error: Exception) -> None:
        """Reports an error of one partition, and takes it offline if it is damaged."""
        if partition.is_under_repair:
            return  # Segments were removed while they were read: the next round reads the rest.
        if isinstance(error, Corrupt):
            self._partitions.read_failed(partition, error)
        elif partition.log.offline is None:
            log.error("%s of %s-%d failed: %s", what, partition.topic, partition.index, error)
        else:
            partition.advance()  # Requests that wait for the offline log must fail.
