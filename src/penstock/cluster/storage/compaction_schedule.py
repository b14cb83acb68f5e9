"""Compaction on a node: which log is next, how many at a time, and when one is given up.

It has a loop and workers of its own, so that a log that takes minutes keeps nobody else waiting:
neither retention (`upkeep`) nor whoever reads from a cold disk.

- At most `log.cleaner.threads` logs are compacted at once (0: none), never more than
  `COMPACTIONS_MAX`. They share the room for keys that one alone would have, as in Kafka.
- The dirtiest log goes first; of equals, the one that was opened first.
- A failure is one log's, and is never in the way of others: it is reported, and that log has its
  next turn later, each time twice as late, up to `RETRY_SECONDS_MAX`.
- A log of which nobody needs the result any more is given up between two batches: the node stops,
  the topic was deleted, the replica moved away, its segments were cut. So a stop waits for a batch
  and perhaps a sync, not for the rest of the log.

Nobody else changes the segments that are being compacted. Retention waits for the end of it, and
has its turn right then (`Partition.is_compacting`). A cut does not wait: what was compacted is
thrown away if the log is another one by then (`compaction.is_current`). Both, and flushes, keep
out while files are put in place (`Partition.hold`), which is finished once it has begun.
DeleteRecords only moves the start. Two compactions never share a directory.
"""

import asyncio
from dataclasses import dataclass

from penstock.base.cooperative_yield import CooperativeYield
from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Disk, WallClock, Workers
from penstock.base.retry import bound_s
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.storage.housekeeping import Housekeeping
from penstock.log.cleanup import compaction
from penstock.log.cleanup.compaction import Abandoned, Compacted, CompactionPlan
from penstock.log.cleanup.compaction_filter import KEYS_MAX
from penstock.log.log import Log

COMPACTIONS_MAX = 8
"""At once, whatever `log.cleaner.threads` says: each has a thread, and a share of the keys."""
PAUSE_SECONDS_MIN = 1.0
"""Between two looks when nothing ends, whatever `log.cleaner.backoff.ms` says."""
RETRY_SECONDS_MAX = 600.0
FLUSHED_SECONDS_MAX = 1.0
REST_SECONDS = 0.001


@dataclass(slots=True)
class Job:
    """A compaction under way."""

    task: "asyncio.Task[None]"
    since_s: float


@dataclass(slots=True)
class Trouble:
    """A log whose compaction failed."""

    tries: int
    until_s: float


class Compactor:
    """Compacts the logs of this node that have earned it."""

    def __init__(
        self,
        partitions: Partitions,
        configs: BrokerConfigs,
        disk: Disk,
        workers: Workers,
        lane: Workers,
        clock: WallClock,
        upkeep: Housekeeping,
    ) -> None:
        """`lane` is for what takes long; `workers` for what does not."""
        self._partitions = partitions
        self._configs = configs
        self._disk = disk
        self._workers = workers
        self._lane = lane
        self._clock = clock
        self._upkeep = upkeep
        # Both by the log's directory.
        self._jobs: dict[str, Job] = {}
        self._troubles: dict[str, Trouble] = {}
        self._news = asyncio.Event()
        self._bug: BaseException | None = None
        self._is_stopping = False
        self.waiting = 0
        """Logs that had earned it at the last look, and for which there was no room."""
        self.compactions = 0
        self.failures = 0
        self.abandoned = 0
        self.last_ms = 0
        """When a compaction was last put in place; 0: never in this life."""

    @property
    def running(self) -> int:
        return len(self._jobs)

    @property
    def longest_s(self) -> float:
        """How long the oldest compaction under way has taken so far."""
        now_s = asyncio.get_running_loop().time()
        return max((now_s - job.since_s for job in self._jobs.values()), default=0.0)

    async def run(self) -> None:
        """Until cancelled; then nothing of it is under way any more."""
        try:
            while True:
                await self.look()
                pause_s = self._configs.integer("log.cleaner.backoff.ms") / 1000
                try:
                    async with asyncio.timeout(max(pause_s, PAUSE_SECONDS_MIN)):
                        await self._news.wait()
                except TimeoutError:
                    pass
                self._news.clear()
                if self._bug is not None:
                    raise self._bug
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Gives up what is under way, and waits until nobody touches a file any more."""
        self._is_stopping = True
        if self._jobs:
            await asyncio.wait([job.task for job in self._jobs.values()])

    async def look(self) -> None:
        """Begins with the dirtiest logs, as far as there is room."""
        if not self._configs.flag("log.cleaner.enable"):
            return
        threads = min(self._configs.integer("log.cleaner.threads"), COMPACTIONS_MAX)
        now_ms = self._clock.now_ms()
        earned = await self._earned(now_ms)
        earned.sort(key=lambda one: -one[0])
        self.waiting = 0
        for _, partition in earned:
            if self.running >= threads:
                self.waiting += 1
            elif self._may(partition):
                self._begin(partition, now_ms, KEYS_MAX // threads)

    async def _earned(self, now_ms: int) -> list[tuple[float, Partition]]:
        """Every log that may be compacted and has earned it, and how dirty it is."""
        breath = CooperativeYield(REST_SECONDS)
        found = []
        replicas = tuple(self._partitions.replicas())
        known = {partition.log.path for partition in replicas}
        self._troubles = {path: one for path, one in self._troubles.items() if path in known}
        for partition in replicas:
            if not self._may(partition):
                continue
            try:
                await self._upkeep.load_summaries(partition)
                bound = partition.last_stable_offset
                ratio = compaction.dirtiness(partition.log, now_ms, bound)
            except (OSError, Corrupt, Refused) as error:
                self._failed(partition, partition.log, error)
                continue
            if ratio is not None:
                found.append((ratio, partition))
            await breath.draw()
        return found

    def _may(self, partition: Partition) -> bool:
        """Whether nothing speaks against a compaction now."""
        held = partition.log
        if not held.config.cleanup_compact or held.offline is not None or held.path in self._jobs:
            return False
        if partition.is_under_repair or held.held:
            return False
        trouble = self._troubles.get(held.path)
        return trouble is None or trouble.until_s <= asyncio.get_running_loop().time()

    def _begin(self, partition: Partition, now_ms: int, keys_max: int) -> None:
        held = partition.log
        try:
            plan = compaction.plan(held, now_ms, partition.last_stable_offset, keys_max)
        except (OSError, Corrupt, Refused) as error:
            self._failed(partition, held, error)
            return
        if plan is None:
            return
        loop = asyncio.get_running_loop()
        partition.is_compacting = True
        task = loop.create_task(self._compact(partition, held, plan))
        self._jobs[held.path] = Job(task, loop.time())
        task.add_done_callback(lambda task: self._ended(held.path, task))

    def _ended(self, path: str, task: "asyncio.Task[None]") -> None:
        del self._jobs[path]
        self._news.set()
        if not task.cancelled():
            self._bug = self._bug or task.exception()

    async def _compact(self, partition: Partition, held: Log, plan: CompactionPlan) -> None:
        def is_over() -> bool:
            return self._is_stopping or held.offline is not None

        try:
            done = await self._lane.run(compaction.execute, plan, is_over)
            is_done = await self._swap(partition, held, done)
        except Abandoned:
            self.abandoned += 1
        except (OSError, Corrupt, Refused) as error:
            self._failed(partition, held, error, plan)
        else:
            self._troubles.pop(held.path, None)
            if is_done:
                self.compactions += 1
                self.last_ms = self._clock.now_ms()
            else:
                self.abandoned += 1
        partition.is_compacting = False
        if not self._is_stopping:
            await self._retain(partition)

    async def _retain(self, partition: Partition) -> None:
        """Retention may have come meanwhile, and found that it had to wait: this is its turn.

        What was put in place is not touched before the flush that makes it known. To a log that is
        written to all the time there is always a flush due: that one waits for the next round of
        retention, and others are compacted meanwhile.
        """
        try:
            async with asyncio.timeout(FLUSHED_SECONDS_MAX):
                await partition.flushed()
        except TimeoutError:
            return
        self._upkeep.retain(partition, self._clock.now_ms())

    async def _swap(self, partition: Partition, held: Log, done: Compacted) -> bool:
        """Puts what was compacted in place, if the log is still the one that it was."""
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
            now_ms = self._clock.now_ms()
            self._upkeep.remove_later(compaction.adopt(held, done, paths, now_ms))
            return True

    def _failed(
        self, partition: Partition, held: Log, error: Exception, plan: CompactionPlan | None = None
    ) -> None:
        is_valid = plan is None or compaction.is_valid(held, plan)
        if partition.log is not held or partition.is_under_repair or not is_valid:
            self.abandoned += 1  # Segments went while they were read: the log itself is sound.
            return
        self.failures += 1
        known = self._troubles.get(held.path)
        tries = 0 if known is None else known.tries + 1
        pause_s = max(self._configs.integer("log.cleaner.backoff.ms") / 1000, PAUSE_SECONDS_MIN)
        until_s = asyncio.get_running_loop().time() + bound_s(pause_s, RETRY_SECONDS_MAX, tries)
        self._troubles[held.path] = Trouble(tries, until_s)
        self._upkeep.failed("compaction", partition, error)
