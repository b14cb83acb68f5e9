"""Groups and transactions on real nodes, under everything that can go wrong, by the seed.

One run: nodes start, topics are made, then for a while groups of both protocols live, commit and
change, copiers copy one topic into another exactly once, and faults happen. Then everything heals,
and within bounded time every group must be at rest, every copy made, no transaction open. What is
promised meanwhile and in the end is said in `checkers`; `run_seed` raises the first `Violation`.

The same seed is the same run, to the byte: see `Outcome.trace`.
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
from simulation.client import LOST
from simulation.cluster import MakeDisk, SimCluster
from simulation.cluster_faults import CLUSTER_KINDS
from simulation.disk import SimDisk
from simulation.faults import KINDS, Cause, FaultPlan
from simulation.loop import SimLoop
from simulation.results import Results, Violation
from simulation.workloads.appender import Appender, read_all
from simulation.workloads.copier import CopyJob, stable_position
from simulation.workloads.copier_crew import Crew
from simulation.workloads.group_crowd import KINDS as MEMBER_KINDS
from simulation.workloads.group_crowd import Crowd
from simulation.workloads.members import Party, found
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
VARIED = {
    "log.roll.ms": ("2000", "8000", "604800000"),
    "offsets.topic.num.partitions": ("1", "2", "3"),
    "transaction.state.log.num.partitions": ("1", "2", "3"),
    "offsets.topic.compression.codec": ("0", "0", "1", "3"),
    "offsets.load.buffer.size": ("300", "5242880"),
    "transaction.state.log.load.buffer.size": ("300", "5242880"),
    "group.initial.rebalance.delay.ms": ("0", "500", "3000"),
    "group.consumer.assignors": ("uniform,range", "range,uniform"),
}
"""Each run draws one of these for each name: what is rare with the defaults is common in some."""
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
"""Situations that seeds are meant to get into; those that none reaches are holes."""


@dataclass(slots=True)
class Options:
    """What is varied between tests, and what a planted bug replaces."""

    node_ids: tuple[int, ...] = (1,)
    chaos_s: float = 40.0
    records: int = 60
    """What there is to copy."""
    crowds: int = 2
    """Groups of members that only commit."""
    has_crew: bool = True
    """Whether there are copiers."""
    cut_ratio: float = 0.02
    """How often the power is cut on a copy of a disk; 1: at every operation."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, Cause] | None = None
    """None: all that fit the number of nodes."""
    pause_s: float | None = None
    """Between two faults, on average; None: by the seed."""
    lanes: int = 1
    """How many faults may overlap."""
    down_max: int = 1
    """How many machines faults may take down at once."""
    make_disk: MakeDisk = lambda seed: SimDisk(seed, journaled=bool(seed % 2))
    look_every: int = 1
    """After how many callbacks the nodes are looked at from inside."""
    keeps_metadata: bool = False
    """True if nodes write down what they see of the store."""
    watch: Callable[[World], None] | None = None
    """Given the world when its nodes run, to look at more."""


@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    tally: Results
    trace: str


class Run:
    """One seed's life."""

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options
        rng = world.rng("hosted")
        self.sources = [TopicPartition(INPUT, index) for index in range(3)]
        self.targets = [TopicPartition(OUTPUT, index) for index in range(2)]
        kinds = rng.sample(MEMBER_KINDS, options.crowds)
        self.crowds = [
            Crowd(Party(world, f"crowd{number}", {PLAIN: rng.randint(2, 5)}), kind)
            for number, kind in enumerate(kinds)
        ]
        self.appenders: list[Appender] = []
        self.records = RecordsChecker(world)
        self.copies = CopyChecker(world)
        job = CopyJob(INPUT, self.targets, self.copies, IdentityChecker(world))
        party = Party(world, "copiers", {INPUT: len(self.sources)})
        crew = Crew(job, party, rng.choice(MEMBER_KINDS), rng.randint(1, 3))
        self.crew = crew if options.has_crew else None
        every = KINDS if len(options.node_ids) == 1 else CLUSTER_KINDS
        causes: Mapping[str, Cause] = every if options.faults is None else options.faults
        self.faults = FaultPlan(world, causes, pause_s=options.pause_s, down_max=options.down_max)

    async def live(self) -> None:
        """All of it; raises Violation."""
        world, cluster = self.world, self.world.cluster
        await cluster.start()
        steps = self._steps()

        callbacks = itertools.count(1)

        def step() -> None:
            if next(callbacks) % self.options.look_every == 0:
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
        """What looks at the nodes after every callback."""
        hosts = self.world.cluster.hosts.values()
        return [ShardChecker(self.world, host, self.options.cut_ratio).step for host in hosts]

    def _topics(self) -> dict[str, int]:
        """What is created, with its number of partitions."""
        counts: dict[str, int] = {}
        if self.crew is not None:
            counts |= {INPUT: len(self.sources), OUTPUT: len(self.targets)}
        if self.crowds:
            plain = counts[PLAIN] = max(crowd.party.topics[PLAIN] for crowd in self.crowds)
            for crowd in self.crowds:
                crowd.party.topics[PLAIN] = plain
        return counts

    async def _make_topics(self) -> None:
        client = self.world.client("admin")
        await client.cluster.bootstrap()
        admin = Admin(client.cluster)
        factor = min(REPLICAS_MAX, len(self.options.node_ids))
        for name, count in sorted(self._topics().items()):
            await admin.create_topic(name, partitions=count, replication_factor=factor)
        if self.crew is not None:
            await found(client, self.crew.party.group, (INPUT, 0), 0)
        for party in (crowd.party for crowd in self.crowds):
            commit = party.offsets.asks((PLAIN, 0), 0)
            await found(client, party.group, (PLAIN, 0), commit.value)
            party.offsets.acknowledged(commit)

    def _start(self) -> None:
        world = self.world
        loop = world.loop
        if self.crew is not None:
            self._append("appender", self.sources, self.options.records)
            reader = world.client("reader")
            reader.start(read_committed(reader, self.targets, self.copies))
        auditor = world.client("auditor")
        auditor.start(watch_positions(auditor, [crowd.party for crowd in self.crowds]))
        self.tasks = [loop.create_task(part.live()) for part in self._parts()]
        self.tasks += [
            loop.create_task(self.faults.watch(host)) for host in world.cluster.hosts.values()
        ]
        self.tasks += [loop.create_task(self.faults.run()) for _ in range(self.options.lanes)]
        for task in self.tasks:
            task.add_done_callback(self._ended)

    def _append(self, name: str, places: list[TopicPartition], records: int) -> None:
        """Sends that many records, most of them while there is trouble."""
        pause_s = self.options.chaos_s / records / 2
        client = self.world.client(name)
        appender = Appender(client, self.records, places, records, pause_s)
        self.appenders.append(appender)
        client.start(appender.run())

    def _parts(self) -> list[Crowd | Crew]:
        return [*self.crowds, *([] if self.crew is None else [self.crew])]

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
        for crowd in self.crowds:
            await world.until(
                f"a group at rest: {crowd.party.group}",
                SETTLE_S,
                lambda crowd=crowd: crowd.unsettled() is None,
            )
        if self.crew is not None:
            await world.until("all records copied", SETTLE_S, self._is_copied)
            await world.until("no transaction open", SETTLE_S, self._is_stable)

    async def _is_copied(self) -> bool:
        assert self.crew is not None
        ends = await self._ends(self.sources, 0)
        for where, end in ends.items():
            place = (where.topic, where.partition)
            try:
                found = await stable_position(self.admin, self.crew.party.group, place)
            except LOST:
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
        for crowd in self.crowds:
            while not await read_positions(self.admin, crowd.party):
                await self.world.sleep(0.5)

    async def _check_records(self) -> None:
        self.records.check(await self._check_copies())

    async def _check_copies(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Answers what there was to copy."""
        found = await read_all(self.admin, self.sources, committed=True)
        ends = {
            (w.topic, w.partition): end for w, end in (await self._ends(self.sources, 0)).items()
        }
        self.copies.check(await read_all(self.admin, self.targets, committed=True), ends)
        return found


MakeRun = Callable[[World, Options], Run]


def run_seed(seed: int, options: Options | None = None, make_run: MakeRun = Run) -> Outcome:
    """One run; raises Violation where a promise is broken."""
    options = options or Options()
    was_enabled = gc.isenabled()
    _collect()
    gc.disable()  # What is freed when must not depend on what ran before.
    loop = SimLoop(seed, time_max=2 * options.chaos_s + TIME_MAX_S)
    try:
        return loop.run(_live(seed, loop, options, make_run))
    finally:
        _collect()
        if was_enabled:
            gc.enable()


def _collect() -> None:
    """Frees the last run, which is one large circle. Tasks of killed processes that did not end
    when they were cancelled have nothing to tell anybody any more."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before


def settings_of(seed: int, nodes: int) -> dict[str, str]:
    """What the nodes of a run are told."""
    rng = random.Random(f"{seed}/settings")
    varied = {name: rng.choice(values) for name, values in VARIED.items()}
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
    tally = world.tally
    tally.simulated_s = loop.time()
    tally.callbacks = loop.callbacks
    tally.disk_operations = sum(host.disk.operations for host in cluster.hosts.values())
    return Outcome(tally, loop.trace)
