"""Replication under fire: what was acknowledged is on every replica in the end, at its offset.

Three real nodes on simulated machines; writers that ask for all replicas; machines that are killed,
lose power, are cut off from each other. Then everything heals, all replicas come to the same bytes,
and whatever was acknowledged is there, where it was acknowledged to be.
"""

import asyncio
import random

import pytest

from penstock.base.errors import PeerError, Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record, decode, encode
from simulation.cluster import SimCluster
from simulation.host import SimHost
from simulation.loop import SimLoop, run
from simulation.random import SimRandom

PARTITIONS = 4
OVERRIDES = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}
FIRE_S = 30.0
PATIENCE_S = 120.0


class CopyRun:
    """One run."""

    def __init__(self, loop: SimLoop, seed: int, nodes: SimCluster, client: Cluster) -> None:
        self.loop = loop
        self.rng = random.Random(f"siege/{seed}")
        self.nodes = nodes
        self.client = client
        self.acknowledged: dict[int, dict[int, bytes]] = {}
        """By partition: the offset of each value that was acknowledged."""
        self.is_over = False

    # -- writing ----------------------------------------------------------------------------

    async def write(self, index: int, name: str) -> None:
        number = 0
        while not self.is_over:
            number += 1
            value = f"{name}/{index}/{number}/".encode() + b"." * self.rng.randrange(2000)
            try:
                offset = await self._send(index, value)
            except (Refused, OSError, PeerError):
                await asyncio.sleep(0.05)
                await self._refresh()
                continue
            taken = self.acknowledged.setdefault(index, {})
            assert offset not in taken, f"offset {offset} was given twice"
            taken[offset] = value
            await asyncio.sleep(self.rng.uniform(0, 0.2))

    async def _send(self, index: int, value: bytes) -> int:
        info = await self.client.topic("t")
        node_id = await self.client.leader(TopicPartition("t", index))
        connection = await self.client.connection(node_id)
        batch = memoryview(encode([Record(0, 1, None, value, ())]))
        cell = PartitionProduceData(index=index, records=batch)
        topic = TopicProduceData(name="t", topic_id=info.topic_id, partition_data=[cell])
        request = ProduceRequest(acks=-1, timeout_ms=3_000, topic_data=[topic])
        answer = await connection.call(request, ProduceResponse)
        row = answer.responses[0].partition_responses[0]
        check(row.error_code)
        return row.base_offset

    async def _refresh(self) -> None:
        try:
            await self.client.refresh(("t",))
        except (Refused, OSError, PeerError):
            await asyncio.sleep(0.1)

    # -- fire -------------------------------------------------------------------------------

    async def fire(self) -> None:
        end_s = self.loop.time() + FIRE_S
        names = [host.name for host in self.nodes.hosts.values()]
        while self.loop.time() < end_s:
            await asyncio.sleep(self.rng.uniform(0.2, 4.0))
            kind = self.rng.randrange(7)
            host = self.rng.choice(list(self.nodes.hosts.values()))
            if kind in (0, 1) and host.is_up:
                host.kill()
            elif kind == 2 and host.is_up:
                host.cut_power()
            elif kind == 3:
                one, other = self.rng.sample(names, 2)
                self.loop.net.cut(one, other, both=self.rng.random() < 0.7)
            elif kind == 4:
                self.loop.net.heal()
            elif kind == 5:
                one, other = self.rng.sample(names, 2)
                self.loop.net.reset(one, other)
            else:
                await self.raise_the_dead()

    async def raise_the_dead(self) -> None:
        await asyncio.gather(*(_start(host) for host in self.nodes.hosts.values()))

    # -- the end ----------------------------------------------------------------------------

    async def heal(self) -> None:
        self.loop.net.heal()
        await self.raise_the_dead()
        deadline_s = self.loop.time() + PATIENCE_S
        while not self._is_whole():
            assert self.loop.time() < deadline_s, self._describe()
            await asyncio.sleep(0.25)
            await self.raise_the_dead()

    def replicas(self, index: int) -> list[Partition]:
        found = [node.partitions.replica("t", index) for node in self.nodes.nodes()]
        return [partition for partition in found if partition is not None]

    def _is_whole(self) -> bool:
        for index in range(PARTITIONS):
            replicas = self.replicas(index)
            ends = {one.log.durable_offset for one in replicas}
            ends |= {one.log.end_offset for one in replicas}
            ends |= {one.high_watermark for one in replicas}
            if len(replicas) != 3 or len(ends) != 1 or len(replicas[0].record.isr) != 3:
                return False
        return True

    def _describe(self) -> str:
        lines = []
        for index in range(PARTITIONS):
            for one in self.replicas(index):
                lines.append(
                    f"{one.node_id} {index} {one.record} hw {one.high_watermark} "
                    f"{one.log.start_offset}..{one.log.durable_offset}..{one.log.end_offset} "
                    f"{one.log.offline}"
                )
        return "\n".join(lines)

    def check(self) -> None:
        for index in range(PARTITIONS):
            contents = [content(one) for one in self.replicas(index)]
            assert contents[0] == contents[1] == contents[2], f"partition {index} differs"
            for offset, value in self.acknowledged.get(index, {}).items():
                assert contents[0].get(offset) == value, f"{index}: {value[:30]!r} at {offset}"


def content(partition: Partition) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for segment in partition.log.segments:
        for position, header in segment.headers(0, segment.base_offset):
            data = memoryview(segment.file.read(position, header.size_bytes))
            for record in decode(data):
                assert record.offset not in found
                found[record.offset] = record.value
    return found


async def _start(host: SimHost) -> None:
    if host.node is None:
        await host.start()


def run_copies(seed: int) -> CopyRun:
    async def main(loop: SimLoop) -> CopyRun:
        nodes = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
        await nodes.start()
        config = ConnectionConfig(connect_timeout_ms=1_000, request_timeout_ms=5_000)
        async with Cluster(SimRandom(seed), nodes.addresses, config) as client:
            await Admin(client).create_topic("t", PARTITIONS, 3)
            copies = CopyRun(loop, seed, nodes, client)
            writers = [
                loop.create_task(copies.write(index, name))
                for index in range(PARTITIONS)
                for name in ("a", "b")[: 1 + index % 2]
            ]
            await copies.fire()
            copies.loop.net.heal()
            await copies.raise_the_dead()
            await asyncio.sleep(5)
            copies.is_over = True
            await asyncio.gather(*writers)
            await copies.heal()
            copies.check()
        nodes.close()
        return copies

    copies, _ = run(main, seed=seed, time_max=1000.0)
    return copies


@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_records_reach_every_replica(seed: int) -> None:
    copies = run_copies(seed)
    assert sum(map(len, copies.acknowledged.values())) > 100
