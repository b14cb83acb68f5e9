"""A cluster whose network is cut between some nodes, and some nodes from the store: who writes on?

Every node leads one partition that has a replica on every node, and a writer sends to all of them
all the time. Then the directions in `Cut.links` carry nothing any more, and the nodes in
`Cut.storeless` do not reach the metadata store; clients reach everybody. A partition must go on
within `GOES_ON_S` if there is somebody to lead it (`Cut.centres`): a node that has the store, and
round trips with as many others that have it as make a majority. Then everything heals, and what
sieges promise in the end must hold here, too.

A test of its own beside the sieges, and not one of their faults: those draw what happens, and here
all there is to happen is gone through.
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

GOES_ON_S = 10.0
PEACE_S = 3.0
HELD_S = 16.0
"""Seconds that a cut lasts: some writes go on long after the rest."""
SEND_S = 0.2
STORE_DELAY_S = (0.0, 0.02)
DELIVERY_TIMEOUT_MS = 600_000

Link = tuple[int, int]
"""A direction, from one node to another."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Messages that do not get through, in a cluster of that many nodes."""

    nodes: int
    links: frozenset[Link] = frozenset()
    storeless: frozenset[int] = frozenset()

    @property
    def node_ids(self) -> range:
        return range(1, self.nodes + 1)

    @property
    def centres(self) -> list[int]:
        """The nodes that reach a majority there and back, where all have the store."""
        return [node for node in self.node_ids if 2 * len(self._around(node)) > self.nodes]

    def _around(self, node: int) -> list[int]:
        if node in self.storeless:
            return []
        return [
            other
            for other in self.node_ids
            if other not in self.storeless
            and (node, other) not in self.links
            and (other, node) not in self.links
        ]

    @property
    def shape(self) -> str:
        """Number of centres, and number of nodes without the store."""
        return f"{len(self.centres)} of {self.nodes} could lead, {len(self.storeless)} storeless"

    def __str__(self) -> str:
        links = " ".join(f"{a}>{b}" for a, b in sorted(self.links)) or "none"
        return f"{self.nodes} nodes, cut {links}, storeless {sorted(self.storeless) or 'none'}"


def one_way_cuts(nodes: int) -> Iterator[frozenset[Link]]:
    """Every set of directions."""
    links = list(itertools.permutations(range(1, nodes + 1), 2))
    for size in range(len(links) + 1):
        yield from map(frozenset, itertools.combinations(links, size))


def shapes(nodes: int, seed: int = 0) -> list[frozenset[Link]]:
    """Every way in which pairs may be cut, up to the names of the nodes; of each pair one direction
    or both, as drawn."""
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
    """Options of a run."""

    cut: Cut = field(default_factory=lambda: Cut(3))
    gaps_s: dict[int, float] = field(default_factory=dict)
    """Filled by the run: how long each partition took no write."""


class Scene(ClusterRun):
    """One cut."""

    def __init__(self, world: World, options: Options) -> None:
        assert isinstance(options, CutOptions)
        super().__init__(world, options)
        self.scene = options
        majority = options.cut.nodes // 2 + 1
        self.replicas = ReplicaChecker(world, world.cluster, self.metadata, majority)
        self._acked: dict[int, list[float]] = {place.partition: [] for place in self.places}
        self._is_writing = True
        self._is_done = False

    async def _make_topics(self) -> None:
        client = self.world.client("admin")
        await client.cluster.bootstrap()
        nodes = self.scene.cut.nodes
        await Admin(client.cluster).create_topic(LOG, partitions=nodes, replication_factor=nodes)

    def _start(self) -> None:
        world = self.world
        world.cluster.etcd.delay_s = STORE_DELAY_S
        writer = world.client("writer")
        writer.start(self._write())
        task = world.loop.create_task(self._play())
        task.add_done_callback(self._ended)
        self.tasks = [task]

    async def _play(self) -> None:
        world, cut = self.world, self.scene.cut
        await asyncio.sleep(PEACE_S)
        leaders = sorted(
            record.leader
            for record in (self.metadata.record_of(LOG, place.partition) for place in self.places)
            if record is not None
        )
        if leaders != list(cut.node_ids):
            world.violate("scene", f"each node was to lead one partition, but {leaders} do")
        cut_s = world.now()
        for source, target in sorted(cut.links):
            world.loop.net.cut(f"node-{source}", f"node-{target}", both=False)
        for node in sorted(cut.storeless):
            world.cluster.etcd.cut_off[f"node-{node}"] = None
        await asyncio.sleep(HELD_S)
        for index, times in self._acked.items():
            gaps_s = itertools.pairwise([cut_s, *(t for t in times if t > cut_s), world.now()])
            gap_s = self.scene.gaps_s[index] = max(after - before for before, after in gaps_s)
            if cut.centres and gap_s > GOES_ON_S:
                text = f"no write to {LOG}-{index} for {gap_s:.1f} s although {cut.centres} could"
                world.violate("unavailable", f"{text} lead: {cut}")
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
        self.world.tally.operations["send"] += 1
        try:
            sent = await (await producer.send(place.topic, value, partition=place.partition))
        except (DeliveryTimeout, Refused) as error:
            self.world.violate("unsent", f"{value!r}: {error!r}")
            return
        self.records.acknowledge((sent.topic, sent.partition), sent.offset, value)
        self._acked[sent.partition].append(self.world.now())

    async def _settle(self) -> None:
        await self.world.until("all records sent", GOES_ON_S, lambda: self._is_done)
        await super()._settle()


def run_cut(cut: Cut, seed: int = 0, overrides: Mapping[str, str] | None = None) -> CutOptions:
    """One run, and how long the partitions took no write; raises Violation."""
    majority = str(cut.nodes // 2 + 1)
    options = CutOptions(
        node_ids=tuple(cut.node_ids),
        chaos_s=PEACE_S + HELD_S + 1.0,
        crowds=0,
        has_crew=False,
        lanes=0,  # No faults but this one.
        partitions=cut.nodes,
        overrides={"min.insync.replicas": majority, **(overrides or {})},
        cut=cut,
    )
    run_seed(seed, options, Scene)
    return options
