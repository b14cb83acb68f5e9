"""Simulated run of a cluster: three or five real nodes under random faults, by the seed.

Tests replication as `coordinator_run` tests groups and transactions. Producers write to replicated
logs, consumers follow them and query their ends, some runs have groups and copiers as well, and
faults overlap. After every callback, checkers inspect the replicas and the metadata store
(`checkers.replicas`, `checkers.metadata`). Then all faults end: within bounded time every partition
must have a leader, every replica be in sync and equal, and every acknowledged record readable.

`options_of(seed)` draws the options of a run; `run_cluster` raises the first `Violation`.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType

from penstock.broker.server import listener
from penstock.client.metadata import TopicPartition
from penstock.cluster.metadata import peer_liveness
from penstock.cluster.replication import isr
from penstock.cluster.storage import housekeeping
from simulation.checkers.metadata import MetadataChecker
from simulation.checkers.reads import ReadsChecker
from simulation.checkers.replicas import ReplicaChecker
from simulation.coordinator_run import POINTS as COORDINATOR_POINTS
from simulation.coordinator_run import SETTLE_S, Options, Outcome, Run, run_seed
from simulation.faults import LATENCY_S
from simulation.host import SYNC_S
from simulation.workloads.appender import read_all
from simulation.workloads.observers import follow_logs, watch_ends
from simulation.world import World

LOG = "log"
MIN_ISR = 2
VARIED_CONFIGS = {
    "replica.lag.time.max.ms": ("1500", "5000", "10000", "30000"),
    "replica.fetch.wait.max.ms": ("50", "500"),
    "replica.fetch.max.bytes": ("200", "1048576"),
    "broker.session.timeout.ms": ("2000", "6000", "9000"),
    "broker.heartbeat.interval.ms": ("300", "600"),  # Larger ones would lose the lease often.
    "leader.imbalance.check.interval.seconds": ("4", "300"),
}
"""Values of configs; each run draws one per name, as in `coordinator_run`."""
CLOCK_RATES = (1.0, 1.0, 1.0, 0.8, 1.25)
"""Rates of the leases' clock: a lease that ends early must not lose a record."""
LONG_S = 3_600.0
IDLE_OVERRIDES = {
    "replica.fetch.wait.max.ms": "20000",
    "replica.lag.time.max.ms": "30000",
    "broker.session.timeout.ms": "30000",
    "broker.heartbeat.interval.ms": "9000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.heartbeat.interval.ms": "5000",
    "log.cleaner.backoff.ms": "15000",
    "offsets.retention.check.interval.ms": "600000",
    "log.roll.ms": "600000",
}
"""Settings of long runs, which make idle time cheap, as in production."""
SLOWED_INTERVALS = {
    (housekeeping, "TICK_SECONDS"): (5.0, 20.0),
    (isr, "TICK_SECONDS_MAX"): (1.0, 3.0),
    (peer_liveness, "PAUSE_SECONDS_MAX"): (1.0, 5.0),
    (listener, "SWEEP_SECONDS"): (10.0, 30.0),
}
"""Intervals of periodic tasks, which dominate the cost of an idle hour. Long runs draw larger
ones."""
POINTS = (
    "leader elected",
    "leader elected from the eligible",
    "last known leader elected",
    "old leader asked",
    "node started again",
    "node failed: NodeFailed",
    "administrator gives up",
    "send failed: DeliveryTimeout",
    "ListOffsets OFFSET_NOT_AVAILABLE",
    "ListOffsets NOT_LEADER_OR_FOLLOWER",
    "isr shrunk",
    "isr expanded",
    "log cut",
    "eligible leaders kept",
    "move finished",
)
"""Situations that runs should reach, besides those of `coordinator_run`."""
ALL_POINTS = (*POINTS, *(point for point in COORDINATOR_POINTS if point not in POINTS))


@dataclass(slots=True)
class ClusterRunOptions(Options):
    """Options of a cluster run."""

    node_ids: tuple[int, ...] = (1, 2, 3)
    groups: int = 0
    has_copiers: bool = False
    cut_ratio: float = 0.0
    partitions: int = 2
    writers: int = 2
    log_records: int = 60
    """Records of all writers together."""
    watch_s: float = 0.3
    """Average interval between queries of a log's end."""
    read_s: float = 0.5
    """Interval between polls of the consumer."""
    clock_rate: float = 1.0
    sync_s: tuple[float, float] = SYNC_S
    """Sync time of disks, unless a fault changes it."""
    latency_s: tuple[float, float] = LATENCY_S
    """Latency of the network, unless a fault changes it."""
    constants: Mapping[tuple[ModuleType, str], float] = field(default_factory=dict)
    """Module constants that this run replaces: intervals of periodic tasks."""


def options_of(seed: int) -> ClusterRunOptions:
    """Options of a short run, one of hundreds in a test session."""
    rng = random.Random(f"{seed}/siege")
    kind = rng.random()
    nodes = 5 if rng.random() < 0.25 else 3
    return ClusterRunOptions(
        node_ids=tuple(range(1, nodes + 1)),
        chaos_s=rng.uniform(6.0, 18.0),
        groups=int(kind < 0.15),
        has_copiers=0.15 <= kind < 0.3,
        records=15,
        partitions=rng.randint(1, 3),
        writers=rng.randint(1, 3),
        log_records=rng.randint(30, 120),
        pause_s=rng.uniform(0.3, 2.5),
        concurrent_faults=rng.randint(1, 4),
        down_max=rng.choice((1, 1, 2, nodes)),
        clock_rate=rng.choice(CLOCK_RATES),
        sync_s=rng.choice(((0.0001, 0.002), (0.002, 0.05), (0.01, 0.5))),
        latency_s=rng.choice(((0.0001, 0.001), (0.0001, 0.001), (0.001, 0.1))),
        overrides={name: rng.choice(values) for name, values in VARIED_CONFIGS.items()},
    )


def long_options_of(seed: int) -> ClusterRunOptions:
    """Options of a long run: hours of a mostly idle cluster with rare faults.

    Reaches slow events: retention, expiry, leases renewed thousands of times.
    """
    rng = random.Random(f"{seed}/long siege")
    kind = rng.random()
    nodes = 5 if rng.random() < 0.25 else 3
    return ClusterRunOptions(
        node_ids=tuple(range(1, nodes + 1)),
        # Members and copiers are never idle: with them an hour costs as much as ten without.
        chaos_s=LONG_S if kind >= 0.2 else LONG_S / 12,
        groups=int(kind < 0.1),
        has_copiers=0.1 <= kind < 0.2,
        records=60,
        partitions=rng.randint(1, 3),
        writers=rng.randint(1, 3),
        log_records=rng.randint(100, 400) if kind >= 0.2 else 60,
        check_every=5,
        pause_s=rng.uniform(40.0, 200.0),
        concurrent_faults=rng.randint(1, 3),
        down_max=rng.choice((1, 1, 2, nodes)),
        watch_s=20.0,
        read_s=30.0,
        clock_rate=rng.choice(CLOCK_RATES),
        overrides={name: rng.choice(values) for name, values in VARIED_CONFIGS.items()}
        | IDLE_OVERRIDES,
        constants={constant: rng.choice(values) for constant, values in SLOWED_INTERVALS.items()},
    )


class ClusterRun(Run):
    """Cluster run of one seed."""

    def __init__(self, world: World, options: Options) -> None:
        assert isinstance(options, ClusterRunOptions)
        super().__init__(world, options)
        self.cluster_options = options
        self.places = [TopicPartition(LOG, index) for index in range(options.partitions)]
        self.reads = ReadsChecker(world)
        etcd = world.cluster.etcd
        etcd.clock_rate = options.clock_rate
        self.metadata = MetadataChecker(world, etcd.space)
        self.replicas = ReplicaChecker(world, world.cluster, self.metadata, MIN_ISR)

    def _steps(self) -> list[Callable[[], object]]:
        return [*super()._steps(), self.replicas.step]

    def _topics(self) -> dict[str, int]:
        return {**super()._topics(), LOG: self.cluster_options.partitions}

    def _start(self) -> None:
        super()._start()
        options, world = self.cluster_options, self.world
        world.loop.net.latency_s = options.latency_s
        for host in world.cluster.hosts.values():
            host.set_sync_time(options.sync_s)
        for number in range(options.writers):
            records = max(options.log_records // options.writers, 1)
            self._append(f"writer{number}", self.places, records)
        reader = world.client("follower")
        reader.start(follow_logs(reader, self.places, self.reads, options.read_s))
        watcher = world.client("watcher")
        watcher.start(watch_ends(watcher, self.places, self.reads, options.watch_s))

    async def _settle(self) -> None:
        await super()._settle()
        await self.world.until(
            "all replicas in sync and the same",
            SETTLE_S,
            lambda: self.replicas.unsettled() is None,
            self.replicas.unsettled,
        )
        self.replicas.check_equal()

    async def _check_records(self) -> None:
        final = await read_all(self.admin, self.places, committed=True)
        self.reads.check(final)
        if self.copier_group is not None:
            final |= await self._check_copies()
        self.records.check(final)


def run_cluster(seed: int, options: ClusterRunOptions | None = None) -> Outcome:
    """Runs one seed; raises Violation if an invariant is violated."""
    options = options or options_of(seed)
    before = {(module, name): getattr(module, name) for module, name in options.constants}
    try:
        for (module, name), value in options.constants.items():
            setattr(module, name, value)
        return run_seed(seed, options, ClusterRun)
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)
