"""Leaders in trouble: without followers, without the store, and the errors that clients get.

Three real nodes on simulated machines. Unlike the random runs, each scene is one story with one
end.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from penstock.base.errors import ErrorCode
from penstock.base.ports import Change, Delete, Expect, Put, StoreEntry
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.metadata import TopicPartition
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.partition import Partition
from penstock.node.node import Node
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record, batches, encode
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from simulation.store import SimStore
from tests.run_with import run_with, with_seeds

OVERRIDES = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}
PATIENCE_S = 30.0


class Line(SimStore):
    """A connection to the store that a test can have go silent."""

    is_silent = False

    async def _heard(self) -> None:
        while self.is_silent:
            await asyncio.sleep(0.1)

    async def get(self, key: str) -> StoreEntry | None:
        await self._heard()
        return await super().get(key)

    async def range(self, prefix: str) -> tuple[int, list[StoreEntry]]:
        await self._heard()
        return await super().range(prefix)

    async def commit(
        self, expects: Sequence[Expect], changes: Sequence[Put | Delete]
    ) -> int | None:
        await self._heard()
        return await super().commit(expects, changes)

    async def watch(self, prefix: str, after: int) -> AsyncIterator[list[Change]]:
        async for changes in super().watch(prefix, after):
            await self._heard()
            yield changes

    async def renew(self, lease: int) -> bool:
        await self._heard()
        return await super().renew(lease)


class Scene:
    """A cluster with one topic of one partition, and a client that does not retry."""

    def __init__(self, loop: SimLoop, nodes: SimCluster, client: Cluster) -> None:
        self.loop = loop
        self.nodes = nodes
        self.client = client
        self.lines: dict[int, Line] = {}

    def leader(self) -> Node:
        return self.node(self.replicas()[0].record.leader)

    def node(self, node_id: int) -> Node:
        node = self.nodes.hosts[node_id].node
        assert node is not None
        return node

    def replicas(self) -> list[Partition]:
        found = [node.partitions.replica("t", 0) for node in self.nodes.nodes()]
        return [partition for partition in found if partition is not None]

    async def send(self, node_id: int, value: bytes, acks: int = -1) -> ErrorCode:
        connection = await self.client.connection(node_id)
        info = await self.client.topic("t")
        batch = memoryview(encode([Record(0, 1, None, value, ())]))
        cell = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name="t", topic_id=info.topic_id, partition_data=[cell])
        request = ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[topic])
        answer = await connection.call(request, ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def read(self, node_id: int, epoch: int) -> list[int]:
        connection = await self.client.connection(node_id)
        info = await self.client.topic("t")
        part = FetchPartition(
            partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20
        )
        topic = FetchTopic(topic_id=info.topic_id, partitions=[part])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])
        answer = await connection.call(request, FetchResponse)
        (row,) = answer.responses[0].partitions
        assert row.error_code == 0
        assert isinstance(row.records, memoryview)
        return [header.base_offset for _, header in batches(row.records)]

    async def until(self, holds: Callable[[], bool]) -> float:
        """Waits until `holds` is true; returns the seconds that took."""
        started_s = self.loop.time()
        while not holds():
            assert self.loop.time() < started_s + PATIENCE_S, [p.record for p in self.replicas()]
            await asyncio.sleep(0.01)
        return self.loop.time() - started_s


def play(story: Callable[[Scene], Awaitable[None]], seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        nodes = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
        lines: dict[int, Line] = {}
        for node_id, host in nodes.hosts.items():
            lines[node_id] = line = Line(nodes.etcd)
            host._open_store = lambda line=line: line  # type: ignore[misc]
        await nodes.start()
        config = ConnectionConfig(connect_timeout_ms=1_000, request_timeout_ms=30_000)
        async with Cluster(SimRandom(seed), nodes.addresses, config) as client:
            await Admin(client).create_topic("t", 1, 3)
            scene = Scene(loop, nodes, client)
            scene.lines = lines
            assert await client.leader(TopicPartition("t", 0))
            await scene.until(lambda: len(scene.replicas()) == 3)
            await story(scene)
        nodes.close()

    run(main, seed=seed, time_max=500.0)


@run_with(with_seeds, 3, play)
async def test_silent_follower_delays_writes_at_most_its_maximal_lag(scene: Scene) -> None:
    leader = scene.leader()
    names = [host.name for host in scene.nodes.hosts.values()]
    lost = next(n for n in scene.nodes.hosts if n != leader.config.node_id)
    assert await scene.send(leader.config.node_id, b"before") is ErrorCode.NONE
    others = [name for name in names if name != f"node-{lost}"]
    for name in others:
        scene.loop.net.cut(f"node-{lost}", name)
    started_s = scene.loop.time()
    assert await scene.send(leader.config.node_id, b"meanwhile") is ErrorCode.NONE
    assert scene.loop.time() - started_s < 5.0
    partition = leader.partitions.get("t", 0)
    assert partition is not None
    assert lost not in partition.record.isr
    scene.loop.net.heal()
    await scene.until(lambda: len(partition.record.isr) == 3)
    assert {one.log.end_offset for one in scene.replicas()} == {2}


@run_with(with_seeds, 3, play)
async def test_leader_without_the_store_refuses_writes_when_another_may_lead(scene: Scene) -> None:
    old = scene.leader().config.node_id
    assert await scene.send(old, b"before") is ErrorCode.NONE
    scene.lines[old].is_silent = True
    await scene.until(lambda: scene.node(old).membership.is_fenced)
    lost = scene.node(old).partitions.replica("t", 0)
    assert lost is not None
    assert lost.is_leader, "it has not heard of another"
    for acks in (-1, 1):
        assert await scene.send(old, b"lost", acks) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert lost.log.end_offset == 1
    another = next(n for n in scene.nodes.hosts if n != old)
    await scene.until(lambda: _record(scene, another).leader not in (old, -1))
    new = _record(scene, another).leader
    assert await scene.send(new, b"after") is ErrorCode.NONE
    scene.lines[old].is_silent = False
    await scene.until(lambda: len(_record(scene, new).isr) == 3)
    assert {one.log.end_offset for one in scene.replicas()} == {2}


@run_with(with_seeds, 3, play)
async def test_pending_acknowledgements_fail_when_leadership_is_uncertain(scene: Scene) -> None:
    old = scene.leader().config.node_id
    for other in scene.nodes.hosts:
        if other != old:
            scene.loop.net.cut(f"node-{old}", f"node-{other}")
    scene.lines[old].is_silent = True
    waiting = scene.loop.create_task(scene.send(old, b"in doubt"))
    assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER
    another = next(n for n in scene.nodes.hosts if n != old)
    await scene.until(lambda: _record(scene, another).leader not in (old, -1))
    new = _record(scene, another).leader
    assert await scene.send(new, b"first") is ErrorCode.NONE
    assert await scene.send(new, b"second") is ErrorCode.NONE
    scene.loop.net.heal()
    scene.lines[old].is_silent = False
    await scene.until(lambda: len(_record(scene, new).isr) == 3)
    assert {one.log.end_offset for one in scene.replicas()} == {2}, (
        "records of the old leader are truncated"
    )


@run_with(play)
async def test_consumers_read_recently_committed_records_from_a_follower(scene: Scene) -> None:
    leader = scene.leader()
    for number in range(3):
        assert await scene.send(leader.config.node_id, b"%d" % number) is ErrorCode.NONE
    await scene.until(lambda: all(one.high_watermark == 3 for one in scene.replicas()))
    follower = next(n for n in scene.nodes.hosts if n != leader.config.node_id)
    epoch = scene.replicas()[0].leader_epoch
    assert await scene.read(follower, epoch) == [0, 1, 2]
    await scene.send(leader.config.node_id, b"one more")
    waited_s = await scene.until(lambda: all(p.high_watermark == 4 for p in scene.replicas()))
    assert waited_s < 0.2, "although nothing else happens"


def _record(scene: Scene, node_id: int) -> PartitionRecord:
    replica = scene.node(node_id).partitions.replica("t", 0)
    assert replica is not None
    return replica.record
