"""Compaction on a node: order, concurrency and abandoning of compactions.

It has a loop and workers of its own, so that a log that takes minutes delays neither retention
(`housekeeping`) nor reads from a cold disk.

- At most `log.cleaner.threads` logs are compacted at once (0: none), never more than
  `COMPACTIONS_MAX`. They share the capacity for keys that a single one would have, as in Kafka.
- The dirtiest log goes first; of equals, the one that was opened first.
- A failure concerns one log and never delays others: it is reported, and the log is retried later,
  each time after twice the pause, up to `RETRY_SECONDS_MAX`.
- A compaction is abandoned between two batches once its result is useless: the node stops, the
  topic was deleted, the replica moved away, its segments were truncated. So a stop waits for a
  batch and perhaps a sync, not for the rest of the log.

No other code changes segments that are being compacted. Retention waits for the end, and runs right
after it (`Partition.is_compacting`). A truncation does not wait: the result is discarded if the log
has changed by then (`compaction.is_current`). Neither they nor flushes run while files are put in
place (`Partition.hold`), and that is always completed. DeleteRecords only moves the start. Two
compactions never share a directory.
"""

import asyncio
from dataclasses import dataclass

from penstock.base.cooperative_yield import CooperativeYield
from penstock.base.errors import Corrupt, Refused
from penstock.base.ports import Disk, WallClock, Workers
from penstock.base.retry import bound_s
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.storage.housekeeping import Housekeeping
from penstock.log.cleanup import compaction
from penstock.log.cleanup.compaction import Abandoned, Compacted, CompactionPlan
from penstock.log.cleanup.compaction_filter import KEYS_MAX
from penstock.log.log import Log

COMPACTIONS_MAX = 8
"""Limit above `log.cleaner.threads`: each compaction has a thread and a share of the keys."""
PAUSE_SECONDS_MIN = 1.0
"""Lower limit of the pause between two rounds, below `log.cleaner.backoff.ms`."""
RETRY_SECONDS_MAX = 600.0
FLUSHED_SECONDS_MAX = 1.0
REST_SECONDS = 0.001


@dataclass(slots=True)
class Job:
    """A compaction under way."""

    task: "asyncio.Task[None]"
    since_s: float


@dataclass(slots=True)
class CompactionFailure:
    """A log whose compaction failed."""

    tries: int
    until_s: float


class Compactor:
    """Schedules compaction of the logs on this node."""

    def __init__(
        self,
        partitions: Partitions,
        configs: BrokerConfigs,
        disk: Disk,
        workers: Workers,
        slow_workers: Workers,
        clock: WallClock,
        housekeeping: Housekeeping,
    ) -> None:
        """`slow_workers` run compactions; `workers` run short tasks."""
        self._partitions = partitions
        self._configs = configs
        self._disk = disk
        self._workers = workers
        self._slow_workers = slow_workers
        self._clock = clock
        self._housekeeping = housekeeping
        # Both by the log's directory.
        self._jobs: dict[str, Job] = {}
        self._failures: dict[str, CompactionFailure] = {}
        self._wake = asyncio.Event()
        self._bug: BaseException | None = None
        self._is_stopping = False
        self.waiting = 0
        """Logs that were due for compaction in the last round, but exceeded the limit."""
        self.compactions = 0
        self.failures = 0
        self.abandoned = 0
        self.last_ms = 0
        """Time at which a result was last put in place; 0: never in this process."""

    @property
    def running(self) -> int:
        return len(self._jobs)

    @property
    def longest_s(self) -> float:
        """Duration of the oldest compaction under way, in seconds."""
        now_s = asyncio.get_running_loop().time()
        return max((now_s - job.since_s for job in self._jobs.values()), default=0.0)

    async def run(self) -> None:
        """Runs until cancelled; on return no compaction is under way."""
        try:
            while True:
                await self.run_round()
                pause_s = self._configs.integer("log.cleaner.backoff.ms") / 1000
                try:
                    async with asyncio.timeout(max(pause_s, PAUSE_SECONDS_MIN)):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
                if self._bug is not None:
                    raise self._bug
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Abandons compactions under way, and waits until none touches a file any more."""
        self._is_stopping = True
        if self._jobs:
            await asyncio.wait([job.task for job in self._jobs.values()])

    async def run_round(self) -> None:
        """Starts compactions of the dirtiest logs, up to the limit."""
        if not self._configs.flag("log.cleaner.enable"):
            return
        threads = min(self._configs.integer("log.cleaner.threads"), COMPACTIONS_MAX)
        now_ms = self._clock.now_ms()
        due = await self._due_logs(now_ms)
        due.sort(key=lambda one: -one[0])
        self.waiting = 0
        for _, partition in due:
            if self.running >= threads:
                self.waiting += 1
            elif self._may(partition):
                self._begin(partition, now_ms, KEYS_MAX // threads)

    async def _due_logs(self, now_ms: int) -> list[tuple[float, Partition]]:
        """All logs that are due for compaction, with their dirty ratio."""
        yielding = CooperativeYield(REST_SECONDS)
        found = []
        replicas = tuple(self._partitions.replicas())
        known = {partition.log.path for partition in replicas}
        self._failures = {path: one for path, one in self._failures.items() if path in known}
        for partition in replicas:
            if not self._may(partition):
                continue
            try:
                await self._housekeeping.load_summaries(partition)
                bound = partition.last_stable_offset
                ratio = compaction.dirtiness(partition.log, now_ms, bound)
            except (OSError, Corrupt, Refused) as error:
                self._failed(partition, partition.log, error)
                continue
            if ratio is not None:
                found.append((ratio, partition))
            await yielding.draw()
        return found

    def _may(self, partition: Partition) -> bool:
        """True if the log may be compacted now."""
        held = partition.log
        if not held.config.cleanup_compact or held.offline is not None or held.path in self._jobs:
            return False
        if partition.is_under_repair or held.held:
            return False
        failure = self._failures.get(held.path)
        return failure is None or failure.until_s <= asyncio.get_running_loop().time()

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
        self._wake.set()
        if not task.cancelled():
            self._bug = self._bug or task.exception()

    async def _compact(self, partition: Partition, held: Log, plan: CompactionPlan) -> None:
        def is_over() -> bool:
            return self._is_stopping or held.offline is not None

        try:
            done = await self._slow_workers.run(compaction.execute, plan, is_over)
            is_done = await self._swap(partition, held, done)
        except Abandoned:
            self.abandoned += 1
        except (OSError, Corrupt, Refused) as error:
            self._failed(partition, held, error, plan)
        else:
            self._failures.pop(held.path, None)
            if is_done:
                self.compactions += 1
                self.last_ms = self._clock.now_ms()
            else:
                self.abandoned += 1
        partition.is_compacting = False
        if not self._is_stopping:
            await self._retain(partition)

    async def _retain(self, partition: Partition) -> None:
        """Runs the retention that may have been skipped during the compaction.

        It does not touch the new files before the flush that records them. A log with constant
        writes always has a flush due: it waits for the next round of retention, so that other logs
        can be compacted meanwhile.
        """
        try:
            async with asyncio.timeout(FLUSHED_SECONDS_MAX):
                await partition.flushed()
        except TimeoutError:
            return
        await self._housekeeping.retain_now(partition, self._clock.now_ms())

    async def _swap(self, partition: Partition, held: Log, done: Compacted) -> bool:
        """Puts the result in place, if the log has not changed meanwhile."""
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
            self._housekeeping.remove_later(compaction.adopt(held, done, paths, now_ms))
            return True

    def _failed(
        self, partition: Partition, held: Log, error: Exception, plan: CompactionPlan | None = None
    ) -> None:
        is_valid = plan is None or compaction.is_valid(held, plan)
        if partition.log is not held or partition.is_under_repair or not is_valid:
            self.abandoned += 1  # Segments were removed while they were read: the log is sound.
            return
        self.failures += 1
        known = self._failures.get(held.path)
        tries = 0 if known is None else known.tries + 1
        pause_s = max(self._configs.integer("log.cleaner.backoff.ms") / 1000, PAUSE_SECONDS_MIN)
        until_s = asyncio.get_running_loop().time() + bound_s(pause_s, RETRY_SECONDS_MAX, tries)
        self._failures[held.path] = CompactionFailure(tries, until_s)
        self._housekeeping.failed("compaction", partition, error)
