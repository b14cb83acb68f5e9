"""Simulated run of a queue: three nodes, a topic read as a queue, random faults, by the seed.

Messages have delays, times to live, priorities and deduplication ids. Members accept, release,
reject, let leases expire and die; dead letters are redriven meanwhile. In addition to the faults of
a cluster (`cluster_faults`), the clocks of single nodes are changed. Then all faults end, and
within bounded time every message must be settled; `checkers.queue_deliveries` defines the
invariants.

In half of the runs all clocks are correct, so that time bounds are tight; in the others each clock
is up to `skew_s` ahead or behind, and changes within that.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.client.admin.admin import Admin
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, FetchedRecord
from penstock.client.dead_letters.message import dead_letter_of
from penstock.client.dead_letters.redrive import REDRIVEN_FROM
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.state.queues.state_shard import QueueKey
from simulation.checkers.queue_deliveries import Dead, DeliveryChecker, Place, Stored
from simulation.client import SimClient
from simulation.cluster_faults import CLUSTER_KINDS
from simulation.coordinator_run import SETTLE_S, Options, Outcome, Run, run_seed
from simulation.faults import LATENCY_S, Cause, FaultPlan
from simulation.host import SYNC_S, SimHost
from simulation.workloads.queue_clients import (
    DEAD,
    GROUP,
    TOPIC,
    Publisher,
    QueueRunContext,
    Redrives,
    WorkerPool,
)
from simulation.world import World

GROUP_KIND = 32
LOCK_MS = 3_000
LIMIT = 4
WINDOW_MS = 6_000
OVERRIDES = {
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": str(LIMIT),
    "group.share.retry.backoff.max.ms": "2000",
}
VARIED_CONFIGS = {
    "broker.session.timeout.ms": ("2000", "6000"),
    "broker.heartbeat.interval.ms": ("300", "600"),
    "replica.lag.time.max.ms": ("1500", "5000"),
    "group.share.retry.backoff.ms": ("-1", "300"),
}
POINTS = (
    "node started again",
    "member does not answer",
    "settlement unknown",
    "repetition dropped",
    "redrive finished",
    "Settle ACCEPT INVALID_RECORD_STATE",
    "Settle FINISH NONE",
    "Settle RELEASE NONE",
    "Settle REJECT NONE",
    "Settle GIVE_BACK NONE",
    "TakeFromQueues NOT_LEADER_OR_FOLLOWER",
)
"""Situations that runs should reach."""


@dataclass(slots=True)
class QueueOptions(Options):
    """Options of a queue run."""

    node_ids: tuple[int, ...] = (1, 2, 3)
    groups: int = 0
    has_copiers: bool = False
    cut_ratio: float = 0.0
    partitions: int = 1
    publishers: int = 2
    messages: int = 60
    """Messages of all publishers together."""
    members: int = 3
    order: str = "none"
    skew_s: float = 0.0
    sync_s: tuple[float, float] = SYNC_S
    latency_s: tuple[float, float] = LATENCY_S


def options_of(seed: int) -> QueueOptions:
    rng = random.Random(f"{seed}/queue siege")
    skew_s = rng.choice((0.0, 0.0, 1.0, 30.0))
    return QueueOptions(
        chaos_s=rng.uniform(10.0, 25.0),
        partitions=rng.randint(1, 2),
        publishers=rng.randint(1, 3),
        messages=rng.randint(30, 90),
        members=rng.randint(2, 4),
        order=rng.choice(("none", "none", "key")),
        skew_s=skew_s,
        pause_s=rng.uniform(0.5, 4.0),
        concurrent_faults=rng.randint(1, 2),
        down_max=rng.choice((1, 1, 2, 3)),
        sync_s=rng.choice(((0.0001, 0.002), (0.0001, 0.002), (0.002, 0.05))),
        latency_s=rng.choice(((0.0001, 0.001), (0.001, 0.05))),
        overrides=OVERRIDES | {name: rng.choice(values) for name, values in VARIED_CONFIGS.items()},
    )


def clock_steps(skew_s: float) -> Cause:
    """Fault that sets a node's clock to at most `skew_s` from the correct time."""

    async def step(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
        at_ms = host.clock.now_ms() - host.right_clock.now_ms()
        host.clock.jump(int(rng.uniform(-1, 1) * skew_s * 1000) - at_ms)

    return step


def causes_of(skew_s: float) -> dict[str, Cause]:
    causes = {name: cause for name, cause in CLUSTER_KINDS.items() if name != "clock jumps"}
    if skew_s:
        causes["clock set"] = clock_steps(skew_s)
    return causes


class QueueRun(Run):
    """Queue run of one seed."""

    def __init__(self, world: World, options: Options) -> None:
        assert isinstance(options, QueueOptions)
        if options.faults is None:
            options.faults = causes_of(options.skew_s)
        super().__init__(world, options)
        self.queue = options
        self.checker = DeliveryChecker(world, LIMIT, WINDOW_MS, options.skew_s)
        self.context = QueueRunContext(
            world,
            self.checker,
            options.partitions,
            LOCK_MS,
            options.skew_s,
            is_ordered=options.order != "none",
        )
        self.publishers: list[Publisher] = []
        self.workforce = WorkerPool(self.context, options.members)
        self.redrives = Redrives(self.context)

    def _steps(self) -> list[Callable[[], object]]:
        return []

    async def _make_topics(self) -> None:
        client = self.world.client("admin")
        await client.cluster.bootstrap()
        admin = Admin(client.cluster)
        configs = {"queue.order": self.queue.order, "queue.dedup.window.ms": str(WINDOW_MS)}
        await admin.create_topic(TOPIC, self.queue.partitions, 3, configs)
        await admin.create_topic(DEAD, self.queue.partitions, 3)
        await admin.alter_configs(GROUP_KIND, GROUP, {"share.auto.offset.reset": "earliest"})
        self.context.topic_id = (await client.cluster.topic(TOPIC)).topic_id

    def _start(self) -> None:
        options, world = self.queue, self.world
        world.loop.net.latency_s = options.latency_s
        rng = world.rng("clocks")
        for host in world.cluster.hosts.values():
            host.set_sync_time(options.sync_s)
            host.clock.jump(int(rng.uniform(-1, 1) * options.skew_s * 1000))
        super()._start()
        count = max(options.messages // options.publishers, 1)
        for number in range(options.publishers):
            client = world.client(f"publisher{number}")
            publisher = Publisher(self.context, client, count, options.chaos_s / count / 2)
            self.publishers.append(publisher)
            client.start(publisher.run())
        for part in (self.workforce, self.redrives):
            task = world.loop.create_task(part.live())
            task.add_done_callback(self._ended)
            self.tasks.append(task)

    def _heal(self) -> None:
        super()._heal()
        self.context.is_calm = True

    async def _settle(self) -> None:
        world = self.world
        hosts = world.cluster.hosts.values()
        await world.until("all nodes up", SETTLE_S, lambda: all(host.is_up for host in hosts))
        await world.until(
            "all messages sent", SETTLE_S, lambda: all(one.is_done for one in self.publishers)
        )
        await world.until("all messages settled", SETTLE_S, self._is_drained, self._progress)
        finished = self.redrives.finished
        self.redrives.start()
        await world.until(
            "dead letters redriven", SETTLE_S, lambda: self.redrives.finished > finished
        )
        await world.until("all copies settled", SETTLE_S, self._is_drained, self._progress)

    def _progress(self) -> dict[int, tuple[int, int, int, int]]:
        """Start, end, leased and archived records of each partition whose queue is open."""
        found = {}
        for node in self.world.cluster.nodes():
            for index in range(self.queue.partitions):
                partition = node.partitions.get(TOPIC, index)
                queue = node.queues.find_quietly(QueueKey(GROUP, self.context.topic_id, index))
                if partition is not None and partition.is_leader and queue is not None:
                    kept = queue.machine.kept
                    end = partition.high_watermark
                    found[index] = queue.kept_start, end, kept.leased, len(kept.archived)
        return found

    def _is_drained(self) -> bool:
        progress = self._progress()
        return len(progress) == self.queue.partitions and all(
            start >= end and not leased and not archived
            for start, end, leased, archived in progress.values()
        )

    async def _check(self) -> None:
        judge = self.world.client("judge")
        await judge.cluster.bootstrap()
        log: dict[Place, Stored] = {}
        for message in await self._read(judge, TOPIC):
            assert message.value is not None
            origin = dict(message.headers).get(REDRIVEN_FROM)
            redriven_from = None if origin is None else origin.decode()
            place = message.partition, message.offset
            log[place] = Stored(message.value, message.timestamp, redriven_from)
        dead = []
        for message in await self._read(judge, DEAD):
            dead_letter = dead_letter_of(message)
            assert dead_letter.source is not None
            assert dead_letter.payload is not None
            dead.append(
                Dead(
                    f"{DEAD}/{dead_letter.partition}/{dead_letter.offset}",
                    (dead_letter.source.partition, dead_letter.source.offset),
                    dead_letter.payload,
                    dead_letter.attempts,
                    dead_letter.error_class,
                    dead_letter.last_failure_ms,
                )
            )
        self.world.results.operations["message"] += len(log)
        self.world.results.operations["dead letter"] += len(dead)
        self.checker.check(log, dead)

    async def _read(self, client: SimClient, topic: str) -> list[FetchedRecord]:
        places = [TopicPartition(topic, index) for index in range(self.queue.partitions)]
        starts = await list_offsets(client.cluster, dict.fromkeys(places, EARLIEST))
        level = READ_COMMITTED
        ends = await list_offsets(
            client.cluster, dict.fromkeys(places, LATEST), isolation_level=level
        )
        found: list[FetchedRecord] = []
        async with Consumer(client.cluster, ConsumerConfig(isolation_level=level)) as consumer:
            positions = {where: row.offset for where, row in starts.items()}
            consumer.assign(positions)
            while any(consumer.positions[where] < ends[where].offset for where in places):
                found += await consumer.poll(1_000)
        return found


def run_queue(seed: int, overrides: Mapping[str, str] | None = None) -> Outcome:
    """Runs one seed; raises Violation if an invariant is violated."""
    options = options_of(seed)
    options.overrides = {**options.overrides, **(overrides or {})}
    return run_seed(seed, options, QueueRun)
