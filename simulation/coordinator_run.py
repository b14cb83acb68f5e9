"""Simulated run of groups and transactions on real nodes under random faults, by the seed.

A run starts nodes and creates topics. Then groups of both protocols join, commit and change,
copiers copy one topic to another exactly once, and faults happen. Then all faults end, and within
bounded time every group must be stable, every record copied, and no transaction open. `checkers`
define the invariants during and after the run; `run_seed` raises the first `Violation`.

The same seed gives the same run, to the byte: see `Outcome.trace`.
"""

import asyncio
import gc
import itertools
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.client.admin.admin import Admin
from penstock.client.list_offsets import LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from simulation.checkers.copies import CopyChecker
from simulation.checkers.identities import IdentityChecker
from simulation.checkers.records import Place, RecordsChecker
from simulation.checkers.shards import ShardChecker
from simulation.client import NO_REPLY
from simulation.cluster import MakeDisk, SimCluster
from simulation.cluster_faults import CLUSTER_KINDS
from simulation.disk import SimDisk
from simulation.faults import KINDS, Cause, FaultPlan
from simulation.loop import SimLoop
from simulation.results import Results, Violation
from simulation.workloads.appender import Appender, read_all
from simulation.workloads.copier import CopyJob, stable_position
from simulation.workloads.copier_group import CopierGroup
from simulation.workloads.group_churn import KINDS as MEMBER_KINDS
from simulation.workloads.group_churn import GroupChurn
from simulation.workloads.members import GroupContext, create_group
from simulation.workloads.observers import read_committed, read_positions, watch_positions
from simulation.world import World

INPUT, OUTPUT, PLAIN = "input", "output", "plain"
SETTLE_S = 120.0
TIME_MAX_S = 3_600.0
REPLICAS_MAX = 3
OVERRIDES = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "1000",
    "offsets.retention.check.interval.ms": "3000",
}
VARIED_CONFIGS = {
    "log.roll.ms": ("2000", "8000", "604800000"),
    "offsets.topic.num.partitions": ("1", "2", "3"),
    "transaction.state.log.num.partitions": ("1", "2", "3"),
    "offsets.topic.compression.codec": ("0", "0", "1", "3"),
    "offsets.load.buffer.size": ("300", "5242880"),
    "transaction.state.log.load.buffer.size": ("300", "5242880"),
    "group.initial.rebalance.delay.ms": ("0", "500", "3000"),
    "group.consumer.assignors": ("uniform,range", "range,uniform"),
}
"""Values of configs; each run draws one per name, so that rare events are common in some."""
POINTS = (
    "member expired",
    "commit unknown",
    "old commit tried",
    "zombie fenced",
    "transactional id abandoned",
    "transaction timed out",
    "node started again",
    "node failed: NodeFailed",
    "replay compared",
    "unreplicated compared",
    "shard loaded",
    "compaction",
    "group upgraded",
    "group downgraded",
    "late Produce NONE",
    "late Produce INVALID_PRODUCER_EPOCH",
    "late EndTxn NONE",
    "late EndTxn PRODUCER_FENCED",
    "JoinGroup MEMBER_ID_REQUIRED",
    "JoinGroup UNKNOWN_MEMBER_ID",
    "SyncGroup REBALANCE_IN_PROGRESS",
    "Heartbeat REBALANCE_IN_PROGRESS",
    "Heartbeat ILLEGAL_GENERATION",
    "Heartbeat UNKNOWN_MEMBER_ID",
    "Heartbeat FENCED_INSTANCE_ID",
    "ConsumerGroupHeartbeat UNKNOWN_MEMBER_ID",
    "ConsumerGroupHeartbeat UNRELEASED_INSTANCE_ID",
    "OffsetCommit ILLEGAL_GENERATION",
    "OffsetCommit STALE_MEMBER_EPOCH",
    "OffsetCommit UNKNOWN_MEMBER_ID",
    "OffsetCommit FENCED_INSTANCE_ID",
    "OffsetFetch UNSTABLE_OFFSET_COMMIT",
    "OffsetFetch COORDINATOR_LOAD_IN_PROGRESS",
    "InitProducerId CONCURRENT_TRANSACTIONS",
    "AddPartitionsToTxn PRODUCER_FENCED",
    "Produce INVALID_PRODUCER_EPOCH",
    "Produce KAFKA_STORAGE_ERROR",
    "TxnOffsetCommit ILLEGAL_GENERATION",
    "TxnOffsetCommit UNKNOWN_MEMBER_ID",
    "EndTxn PRODUCER_FENCED",
    "EndTxn INVALID_TXN_STATE",
)
"""Situations that runs should reach; one that no seed reaches is a gap in the workload."""


@dataclass(slots=True)
class Options:
    """Options of a run, varied by tests and by planted bugs."""

    node_ids: tuple[int, ...] = (1,)
    chaos_s: float = 40.0
    records: int = 60
    """Number of records to copy."""
    groups: int = 2
    """Number of groups whose members only commit."""
    has_copiers: bool = True
    """True if the run has copiers."""
    cut_ratio: float = 0.02
    """Fraction of disk operations with a power cut on a copy of the disk; 1: all."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, Cause] | None = None
    """Faults to draw from; None: all for the number of nodes."""
    pause_s: float | None = None
    """Average interval between faults; None: drawn from the seed."""
    concurrent_faults: int = 1
    """Maximum number of concurrent faults."""
    down_max: int = 1
    """Maximum number of machines that are down at once."""
    make_disk: MakeDisk = lambda seed: SimDisk(seed, journaled=bool(seed % 2))
    check_every: int = 1
    """Number of callbacks between inspections of the nodes."""
    keeps_metadata: bool = False
    """True if nodes save the metadata they see in the store."""
    watch: Callable[[World], None] | None = None
    """Called with the world after its nodes have started, for additional checks."""


@dataclass(slots=True)
class Outcome:
    """Result of a run."""

    results: Results
    trace: str


class Run:
    """Run of one seed."""

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options
        rng = world.rng("hosted")
        self.sources = [TopicPartition(INPUT, index) for index in range(3)]
        self.targets = [TopicPartition(OUTPUT, index) for index in range(2)]
        kinds = rng.sample(MEMBER_KINDS, options.groups)
        self.groups = [
            GroupChurn(GroupContext(world, f"crowd{number}", {PLAIN: rng.randint(2, 5)}), kind)
            for number, kind in enumerate(kinds)
        ]
        self.appenders: list[Appender] = []
        self.records = RecordsChecker(world)
        self.copies = CopyChecker(world)
        job = CopyJob(INPUT, self.targets, self.copies, IdentityChecker(world))
        context = GroupContext(world, "copiers", {INPUT: len(self.sources)})
        copier_group = CopierGroup(job, context, rng.choice(MEMBER_KINDS), rng.randint(1, 3))
        self.copier_group = copier_group if options.has_copiers else None
        every = KINDS if len(options.node_ids) == 1 else CLUSTER_KINDS
        causes: Mapping[str, Cause] = every if options.faults is None else options.faults
        self.faults = FaultPlan(world, causes, pause_s=options.pause_s, down_max=options.down_max)

    async def live(self) -> None:
        """Runs everything; raises Violation."""
        world, cluster = self.world, self.world.cluster
        await cluster.start()
        steps = self._steps()

        callbacks = itertools.count(1)

        def step() -> None:
            if next(callbacks) % self.options.check_every == 0:
                for one in steps:
                    one()

        world.loop.after_callback = step
        if self.options.watch is not None:
            self.options.watch(world)
        await self._make_topics()
        self._start()
        await world.sleep(self.options.chaos_s)
        self._heal()
        await self._settle()
        await self._check()
        if world.violation is not None:
            raise world.violation

    def _steps(self) -> list[Callable[[], object]]:
        """Checks called after every callback."""
        hosts = self.world.cluster.hosts.values()
        return [ShardChecker(self.world, host, self.options.cut_ratio).step for host in hosts]

    def _topics(self) -> dict[str, int]:
        """Topics to create, with their number of partitions."""
        counts: dict[str, int] = {}
        if self.copier_group is not None:
            counts |= {INPUT: len(self.sources), OUTPUT: len(self.targets)}
        if self.groups:
            plain = counts[PLAIN] = max(group.context.topics[PLAIN] for group in self.groups)
            for group in self.groups:
                group.context.topics[PLAIN] = plain
        return counts

    async def _make_topics(self) -> None:
        client = self.world.client("admin")
        await client.cluster.bootstrap()
        admin = Admin(client.cluster)
        factor = min(REPLICAS_MAX, len(self.options.node_ids))
        for name, count in sorted(self._topics().items()):
            await admin.create_topic(name, partitions=count, replication_factor=factor)
        if self.copier_group is not None:
            await create_group(client, self.copier_group.context.group, (INPUT, 0), 0)
        for context in (group.context for group in self.groups):
            commit = context.offsets.begin_commit((PLAIN, 0), 0)
            await create_group(client, context.group, (PLAIN, 0), commit.value)
            context.offsets.acknowledged(commit)

    def _start(self) -> None:
        world = self.world
        loop = world.loop
        if self.copier_group is not None:
            self._append("appender", self.sources, self.options.records)
            reader = world.client("reader")
            reader.start(read_committed(reader, self.targets, self.copies))
        auditor = world.client("auditor")
        auditor.start(watch_positions(auditor, [group.context for group in self.groups]))
        self.tasks = [loop.create_task(part.live()) for part in self._parts()]
        self.tasks += [
            loop.create_task(self.faults.watch(host)) for host in world.cluster.hosts.values()
        ]
        self.tasks += [
            loop.create_task(self.faults.run()) for _ in range(self.options.concurrent_faults)
        ]
        for task in self.tasks:
            task.add_done_callback(self._ended)

    def _append(self, name: str, places: list[TopicPartition], records: int) -> None:
        """Starts a producer of that many records, most of them sent during faults."""
        pause_s = self.options.chaos_s / records / 2
        client = self.world.client(name)
        appender = Appender(client, self.records, places, records, pause_s)
        self.appenders.append(appender)
        client.start(appender.run())

    def _parts(self) -> list[GroupChurn | CopierGroup]:
        return [*self.groups, *([] if self.copier_group is None else [self.copier_group])]

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.crashed("a part of the run", error)

    def _heal(self) -> None:
        self.faults.heal()
        for part in self._parts():
            part.calm()

    # -- after the faults -------------------------------------------------------------------

    async def _settle(self) -> None:
        world = self.world
        hosts = world.cluster.hosts.values()
        await world.until("all nodes up", SETTLE_S, lambda: all(host.is_up for host in hosts))
        await world.until(
            "all records sent", SETTLE_S, lambda: all(one.is_done for one in self.appenders)
        )
        self.admin = world.client("judge")
        for group in self.groups:
            await world.until(
                f"a group at rest: {group.context.group}",
                SETTLE_S,
                lambda group=group: group.unsettled() is None,
            )
        if self.copier_group is not None:
            await world.until("all records copied", SETTLE_S, self._is_copied)
            await world.until("no transaction open", SETTLE_S, self._is_stable)

    async def _is_copied(self) -> bool:
        assert self.copier_group is not None
        ends = await self._ends(self.sources, 0)
        for where, end in ends.items():
            place = (where.topic, where.partition)
            try:
                found = await stable_position(self.admin, self.copier_group.context.group, place)
            except NO_REPLY:
                return False
            if found != end:
                return False
        return True

    async def _is_stable(self) -> bool:
        """The last stable offset is the end of the log."""
        return await self._ends(self.targets, 0) == await self._ends(self.targets, 1)

    async def _ends(self, places: list[TopicPartition], level: int) -> dict[TopicPartition, int]:
        found = await list_offsets(
            self.admin.cluster, dict.fromkeys(places, LATEST), isolation_level=level
        )
        return {where: row.offset for where, row in found.items()}

    async def _check(self) -> None:
        for node in self.world.cluster.nodes():
            if node.compactor.compactions:
                self.world.reached("compaction")
        await self._check_records()
        for group in self.groups:
            while not await read_positions(self.admin, group.context):
                await self.world.sleep(0.5)

    async def _check_records(self) -> None:
        self.records.check(await self._check_copies())

    async def _check_copies(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Checks the copies; returns the input records."""
        found = await read_all(self.admin, self.sources, committed=True)
        ends = {
            (w.topic, w.partition): end for w, end in (await self._ends(self.sources, 0)).items()
        }
        self.copies.check(await read_all(self.admin, self.targets, committed=True), ends)
        return found


MakeRun = Callable[[World, Options], Run]


def run_seed(seed: int, options: Options | None = None, make_run: MakeRun = Run) -> Outcome:
    """Runs one seed; raises Violation if an invariant is violated."""
    options = options or Options()
    was_enabled = gc.isenabled()
    _collect()
    gc.disable()  # The time of deallocations must not depend on earlier runs.
    loop = SimLoop(seed, time_max=2 * options.chaos_s + TIME_MAX_S)
    try:
        return loop.run(_live(seed, loop, options, make_run))
    finally:
        _collect()
        if was_enabled:
            gc.enable()


def _collect() -> None:
    """Frees the last run, which is one large reference cycle.

    Ignores exceptions of killed processes' tasks that did not end when cancelled.
    """
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before


def settings_of(seed: int, nodes: int) -> dict[str, str]:
    """Configs of the nodes of a run."""
    rng = random.Random(f"{seed}/settings")
    varied = {name: rng.choice(values) for name, values in VARIED_CONFIGS.items()}
    factor = min(nodes, REPLICAS_MAX)
    replicated = {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": factor // 2 + 1,
        "min.insync.replicas": factor // 2 + 1,
    }
    return {**OVERRIDES, **varied, **{name: str(value) for name, value in replicated.items()}}


async def _live(seed: int, loop: SimLoop, options: Options, make_run: MakeRun) -> Outcome:
    overrides = {**settings_of(seed, len(options.node_ids)), **options.overrides}
    cluster = SimCluster(
        loop,
        seed,
        options.node_ids,
        overrides,
        options.make_disk,
        keeps_metadata=options.keeps_metadata,
    )
    world = World(seed, loop, cluster)
    run = make_run(world, options)
    try:
        await run.live()
    except Violation as violation:
        violation.journal = world.journal()
        raise
    finally:
        loop.after_callback = None
        cluster.close()
    results = world.results
    results.simulated_s = loop.time()
    results.callbacks = loop.callbacks
    results.disk_operations = sum(host.disk.operations for host in cluster.hosts.values())
    return Outcome(results, loop.trace)
