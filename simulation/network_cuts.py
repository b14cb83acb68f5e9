"""Simulated cuts of a cluster's network and of nodes from the store: availability of partitions.

Every node leads one partition that has a replica on every node, and a writer sends to all of them.
Then the links in `Cut.links` carry nothing any more, and the nodes in `Cut.without_store` cannot
reach the metadata store; clients reach all nodes. A partition must accept writes again within
`RECOVERY_S_MAX` if a node can lead it (`Cut.possible_leaders`): one that has the store, and round
trips with so many other nodes with the store that they form a majority. Then all cuts end, and the
final checks of cluster runs apply.

A separate test instead of a fault of cluster runs: those draw random faults, this one enumerates
all cuts.
"""

import asyncio
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.base.errors import Refused
from penstock.client.admin.admin import Admin
from penstock.client.errors import DeliveryTimeout
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import ProducerConfig
from simulation.checkers.replicas import ReplicaChecker
from simulation.clock import SimClock
from simulation.cluster_run import LOG, ClusterRun, ClusterRunOptions
from simulation.coordinator_run import Options, run_seed
from simulation.random import SimRandom
from simulation.world import World

RECOVERY_S_MAX = 10.0
STEADY_S = 3.0
CUT_DURATION_S = 16.0
"""Duration of a cut: some partitions accept writes again much later than others."""
SEND_S = 0.2
STORE_DELAY_S = (0.0, 0.02)
DELIVERY_TIMEOUT_MS = 600_000

Link = tuple[int, int]
"""Directed link from one node to another."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut links and nodes without the store, in a cluster of that many nodes."""

    nodes: int
    links: frozenset[Link] = frozenset()
    without_store: frozenset[int] = frozenset()

    @property
    def node_ids(self) -> range:
        return range(1, self.nodes + 1)

    @property
    def possible_leaders(self) -> list[int]:
        """Nodes that reach a majority in both directions, counting only nodes with the store."""
        return [node for node in self.node_ids if 2 * len(self._reachable(node)) > self.nodes]

    def _reachable(self, node: int) -> list[int]:
        if node in self.without_store:
            return []
        return [
            other
            for other in self.node_ids
            if other not in self.without_store
            and (node, other) not in self.links
            and (other, node) not in self.links
        ]

    @property
    def shape(self) -> str:
        """Number of possible leaders, and number of nodes without the store."""
        leaders, missing = len(self.possible_leaders), len(self.without_store)
        return f"{leaders} of {self.nodes} could lead, {missing} without store"

    def __str__(self) -> str:
        links = " ".join(f"{a}>{b}" for a, b in sorted(self.links)) or "none"
        return (
            f"{self.nodes} nodes, cut {links}, without store {sorted(self.without_store) or 'none'}"
        )


def one_way_cuts(nodes: int) -> Iterator[frozenset[Link]]:
    """All sets of directed links."""
    links = list(itertools.permutations(range(1, nodes + 1), 2))
    for size in range(len(links) + 1):
        yield from map(frozenset, itertools.combinations(links, size))


def shapes(nodes: int, seed: int = 0) -> list[frozenset[Link]]:
    """All ways to cut pairs of nodes, up to renaming of nodes; each pair in one randomly drawn
    direction or in both."""
    rng = random.Random(f"{seed}/shapes")
    pairs = list(itertools.combinations(range(1, nodes + 1), 2))
    names = [dict(enumerate(order, 1)) for order in itertools.permutations(range(1, nodes + 1))]
    known: set[frozenset[Link]] = set()
    found = []
    for size in range(len(pairs) + 1):
        for cut in itertools.combinations(pairs, size):
            if frozenset(cut) in known:
                continue
            known.update(_renamed(cut, name) for name in names)
            ways = [rng.choice(((a, b), (b, a), None)) for a, b in cut]
            found.append(
                frozenset(
                    link
                    for (a, b), way in zip(cut, ways, strict=True)
                    for link in (((a, b), (b, a)) if way is None else (way,))
                )
            )
    return found


def _renamed(pairs: Iterable[Link], name: Mapping[int, int]) -> frozenset[Link]:
    return frozenset((min(name[a], name[b]), max(name[a], name[b])) for a, b in pairs)


def subsets(node_ids: Iterable[int]) -> list[frozenset[int]]:
    every = list(node_ids)
    return [
        frozenset(some)
        for size in range(len(every) + 1)
        for some in itertools.combinations(every, size)
    ]


@dataclass(slots=True)
class CutOptions(ClusterRunOptions):
    """Options of a run with one cut."""

    cut: Cut = field(default_factory=lambda: Cut(3))
    gaps_s: dict[int, float] = field(default_factory=dict)
    """Result of the run: longest time without a write, by partition."""


class CutRun(ClusterRun):
    """Run of one cut."""

    def __init__(self, world: World, options: Options) -> None:
        assert isinstance(options, CutOptions)
        super().__init__(world, options)
        self.cut_options = options
        majority = options.cut.nodes // 2 + 1
        self.replicas = ReplicaChecker(world, world.cluster, self.metadata, majority)
        self._acked: dict[int, list[float]] = {place.partition: [] for place in self.places}
        self._is_writing = True
        self._is_done = False

    async def _make_topics(self) -> None:
        client = self.world.client("admin")
        await client.cluster.bootstrap()
        nodes = self.cut_options.cut.nodes
        await Admin(client.cluster).create_topic(LOG, partitions=nodes, replication_factor=nodes)

    def _start(self) -> None:
        world = self.world
        world.cluster.etcd.delay_s = STORE_DELAY_S
        writer = world.client("writer")
        writer.start(self._write())
        task = world.loop.create_task(self._run_cut())
        task.add_done_callback(self._ended)
        self.tasks = [task]

    async def _run_cut(self) -> None:
        world, cut = self.world, self.cut_options.cut
        await asyncio.sleep(STEADY_S)
        leaders = sorted(
            record.leader
            for record in (self.metadata.record_of(LOG, place.partition) for place in self.places)
            if record is not None
        )
        if leaders != list(cut.node_ids):
            world.violate("scene", f"each node should lead one partition; leaders: {leaders}")
        cut_s = world.now()
        for source, target in sorted(cut.links):
            world.loop.net.cut(f"node-{source}", f"node-{target}", both=False)
        for node in sorted(cut.without_store):
            world.cluster.etcd.cut_off[f"node-{node}"] = None
        await asyncio.sleep(CUT_DURATION_S)
        for index, times in self._acked.items():
            gaps_s = itertools.pairwise([cut_s, *(t for t in times if t > cut_s), world.now()])
            gap_s = self.cut_options.gaps_s[index] = max(after - before for before, after in gaps_s)
            if cut.possible_leaders and gap_s > RECOVERY_S_MAX:
                text = f"no write to {LOG}-{index} for {gap_s:.1f} s although"
                world.violate("unavailable", f"{text} {cut.possible_leaders} could lead: {cut}")
        self._is_writing = False

    async def _write(self) -> None:
        client = self.world.clients["writer"]
        await client.cluster.refresh({LOG})
        producer = Producer(
            SimClock(self.world.loop),
            SimRandom(self.world.rng("writer").getrandbits(64)),
            client.cluster,
            ProducerConfig(delivery_timeout_ms=DELIVERY_TIMEOUT_MS, auto_create=False),
        )
        async with asyncio.TaskGroup() as deliveries:
            for number in itertools.count():
                if not self._is_writing:
                    break
                for place in self.places:
                    value = f"{place.partition}-{number}".encode()
                    self.records.sends((place.topic, place.partition), value)
                    deliveries.create_task(self._send(producer, place, value))
                await asyncio.sleep(SEND_S)
        await producer.close()
        self._is_done = True

    async def _send(self, producer: Producer, place: TopicPartition, value: bytes) -> None:
        self.world.results.operations["send"] += 1
        try:
            sent = await (await producer.send(place.topic, value, partition=place.partition))
        except (DeliveryTimeout, Refused) as error:
            self.world.violate("unsent", f"{value!r}: {error!r}")
            return
        self.records.acknowledge((sent.topic, sent.partition), sent.offset, value)
        self._acked[sent.partition].append(self.world.now())

    async def _settle(self) -> None:
        await self.world.until("all records sent", RECOVERY_S_MAX, lambda: self._is_done)
        await super()._settle()


def run_cut(cut: Cut, seed: int = 0, overrides: Mapping[str, str] | None = None) -> CutOptions:
    """Runs one cut; returns options with the measured gaps; raises Violation."""
    majority = str(cut.nodes // 2 + 1)
    options = CutOptions(
        node_ids=tuple(cut.node_ids),
        chaos_s=STEADY_S + CUT_DURATION_S + 1.0,
        groups=0,
        has_copiers=False,
        concurrent_faults=0,  # No other faults.
        partitions=cut.nodes,
        overrides={"min.insync.replicas": majority, **(overrides or {})},
        cut=cut,
    )
    run_seed(seed, options, CutRun)
    return options
