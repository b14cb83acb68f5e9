"""Several nodes' controllers over one simulated store, for the tests of `controller`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Put
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller.controller import Controller
from penstock.cluster.controller.leader_elections import Election
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord, TopicRecord
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore

TOPIC = TopicId(bytes([7]) * 16)


class Member:
    """One node, as far as the controller is concerned."""

    def __init__(self, node_id: int, etcd: SimEtcd, configs: dict[str, str]) -> None:
        self.node_id = node_id
        self.store = SimStore(etcd)
        self.watcher = MetadataWatcher(self.store)
        self.configs = BrokerConfigs(configs)
        self.membership = ClusterMembership(node_id, self.store, self.configs, is_leased=True)
        self.watcher.on_change(self.membership.follow)
        self.elections: list[Election] = []
        self.controller = Controller(
            node_id,
            self.store,
            self.watcher,
            self.configs,
            self.membership,
            self.elections.append,
        )
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.watcher.start()
        self._begin(self.watcher.run())
        record = BrokerRecord(self.node_id, "h", self.node_id, directory_id=f"d{self.node_id}")
        await self.membership.register(record)
        self._begin(self.membership.run())
        self._begin(self.controller.run())

    def _begin(self, work: Awaitable[None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def kill(self) -> None:
        """As by kill -9: nothing is said to anyone."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        await self.store.close()

    async def pause(self) -> None:
        """Like SIGSTOP, as seen from other nodes."""
        await self.kill()


class World:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.etcd = SimEtcd(loop.seed)
        self.observer = SimStore(self.etcd)
        self.configs: dict[str, str] = {}
        self.members: dict[int, Member] = {}

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.members[node_id] = member = Member(node_id, self.etcd, self.configs)
            await member.start()

    async def stop(self) -> None:
        for member in self.members.values():
            await member.kill()
        self.etcd.close()

    async def kill(self, node_id: int, *, witnesses: Sequence[int] = ()) -> None:
        epoch = self.members[node_id].membership.epoch
        await self.members.pop(node_id).kill()
        for witness in witnesses:
            self.members[witness].controller.evidence(node_id, epoch)

    async def create(
        self,
        *partitions: PartitionRecord,
        name: str = "t",
        topic_id: TopicId = TOPIC,
        **configs: str,
    ) -> None:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        record = TopicRecord(show_topic_id(topic_id), partitions, dotted)
        await self.observer.commit([], [Put(store_keys.topic_key(name), store_keys.encode(record))])

    async def image(self) -> Image:
        """The truth, not what a node believes."""
        watcher = MetadataWatcher(self.observer)
        return await watcher.start()

    async def record(self, index: int = 0, name: str = "t") -> PartitionRecord:
        return (await self.image()).topics[name].partitions[index]

    async def put(self, record: PartitionRecord, index: int = 0, topic_id: TopicId = TOPIC) -> None:
        put = Put(store_keys.partition_key(topic_id, index), store_keys.encode(record))
        await self.observer.commit([], [put])

    async def until(self, holds: Callable[[Image], bool], seconds: float) -> Image:
        """First image for which `holds` is true; raises AssertionError if there is none in time."""
        deadline_s = self.loop.time() + seconds
        while True:
            image = await self.image()
            if holds(image):
                return image
            assert self.loop.time() < deadline_s, image
            await asyncio.sleep(0.01)

    @property
    def active(self) -> list[int]:
        return [n for n, member in self.members.items() if member.controller.is_active]


def play(scene: Callable[[World], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        try:
            await scene(world)
        finally:
            await world.stop()

    run(main, seed=seed)


def spread(count: int, *replicas: int) -> list[PartitionRecord]:
    """Partitions on the same replicas, led in turn."""
    return [
        initial_record(replicas[index % len(replicas) :] + replicas[: index % len(replicas)])
        for index in range(count)
    ]
