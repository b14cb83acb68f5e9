"""Dead letters and retention `ack` over three nodes that lose their power one after the other.

Invariants: a redriver that continues sends every dead letter back exactly once; and no record is
deleted before every group has finished it, so both groups see all of them.
"""

import asyncio
import random

import pytest

from penstock.base.errors import Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.dead_letters.redrive import Redriver, RedriveRequest
from penstock.client.dead_letters.topics import describe_dead_letter_topic
from penstock.client.producer.producer import Producer
from penstock.client.share.acknowledgements import AcknowledgementType
from penstock.client.share.consumer import ShareConsumer
from penstock.state.queues import dead_letter_format as headers
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.unit.client.on_cluster import Desk

OVERRIDES = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.delivery.count.limit": "10",
    "log.retention.ack.interval.ms": "200",
}
CONFIG = ConnectionConfig(connect_timeout_ms=500, request_timeout_ms=5_000)
LETTERS = 60
RECORDS = 120


async def disturb(cluster: SimCluster, rng: random.Random) -> None:
    """Takes the power from one node at a time, for a while."""
    while True:
        await asyncio.sleep(rng.uniform(0.3, 2.0))
        host = cluster.hosts[rng.choice(list(cluster.hosts))]
        if rng.random() < 0.5:
            host.cut_power()
        else:
            host.kill()
        await asyncio.sleep(rng.uniform(0.1, 4.0))
        await host.start()
        await asyncio.sleep(6.0)  # It takes its place among the replicas again.


@pytest.mark.parametrize("seed", range(3))
@run_with(run, time_max=3_600.0, fixtures=["seed"])
async def test_dead_letters_are_redriven_once_while_nodes_lose_power(
    loop: SimLoop, *, seed: int
) -> None:
    nodes = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
    await nodes.start()
    clock = SimClock(loop)
    async with Cluster(SimRandom(seed), nodes.addresses, CONFIG) as cluster:
        await Admin(cluster).create_topic("t", 2, 3)
        await Admin(cluster).create_topic("t.dlq", 2, 3)
        async with Producer(clock, SimRandom(seed), cluster) as producer:
            for number in range(LETTERS):
                told = [(headers.TOPIC, b"t"), (headers.PARTITION, b"%d" % (number % 2))]
                value, key = b"%d" % number, b"k%d" % (number % 6)
                await producer.send("t.dlq", value, key, partition=number % 2, headers=told)
        trouble = asyncio.ensure_future(disturb(nodes, random.Random(seed)))
        request = RedriveRequest("t.dlq", "run", "me", rate_per_s=10)
        settled = 0
        while True:
            redriver = Redriver(cluster, clock, request, messages_max=4)
            try:
                await redriver.run()
                break
            except (OSError, Refused):
                settled += redriver.report.settled
        trouble.cancel()
        await asyncio.gather(trouble, return_exceptions=True)
        await nodes.start()
        copies = await Desk(nodes, cluster, clock).read("t")
        numbers = [int(copy.value or b"") for copy in copies]
        assert sorted(numbers) == list(range(LETTERS))
        for residue in range(6):
            of_key = [number for number in numbers if number % 6 == residue]
            assert of_key == sorted(of_key)
        assert (await describe_dead_letter_topic(cluster, "t.dlq")).messages == 0
        assert settled + redriver.report.settled <= LETTERS
    nodes.close()


@pytest.mark.parametrize("seed", range(3))
@run_with(run, time_max=3_600.0, fixtures=["seed"])
async def test_ack_retention_keeps_records_a_group_has_not_finished(
    loop: SimLoop, *, seed: int
) -> None:
    nodes = SimCluster(loop, seed, (1, 2, 3), OVERRIDES)
    await nodes.start()
    rng = random.Random(seed)
    async with Cluster(SimRandom(seed), nodes.addresses, CONFIG) as cluster:
        admin = Admin(cluster)
        await admin.create_topic("t", 2, 3, {"retention.mode": "ack"})
        seen: dict[str, set[int]] = {"fast": set(), "slow": set()}
        for group in seen:
            await admin.alter_configs(32, group, {"share.auto.offset.reset": "earliest"})
        readers = [
            asyncio.ensure_future(read(cluster, group, found, 0.0 if group == "fast" else 0.4))
            for group, found in seen.items()
        ]
        await asyncio.sleep(10)  # Both have their positions: from here on both are needed.
        trouble = asyncio.ensure_future(disturb(nodes, rng))
        async with Producer(SimClock(loop), SimRandom(seed), cluster) as producer:
            for number in range(RECORDS):
                await producer.send("t", b"%d" % number, partition=number % 2)
                await asyncio.sleep(0.2)
        trouble.cancel()
        await asyncio.gather(trouble, return_exceptions=True)
        await nodes.start()
        while any(len(found) < RECORDS for found in seen.values()):
            await asyncio.sleep(1)
        while not all(_is_empty(nodes, index) for index in (0, 1)):
            await asyncio.sleep(1)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    nodes.close()


def _is_empty(nodes: SimCluster, index: int) -> bool:
    for node in nodes.nodes():
        partition = node.partitions.get("t", index)
        if partition is not None and partition.is_leader:
            return partition.log.start_offset == partition.high_watermark > 0
    return False


async def read(cluster: Cluster, group: str, seen: set[int], pause_s: float) -> None:
    """Accepts what comes, again and again, whatever happens to the nodes."""
    while True:
        try:
            async with ShareConsumer(cluster, group, ["t"]) as consumer:
                while True:
                    for lease in await consumer.receive(5, 1_000):
                        await consumer.settle(lease, AcknowledgementType.ACCEPT)
                        seen.add(int(lease.message.value or b""))
                        await asyncio.sleep(pause_s)
        except (OSError, Refused):
            await asyncio.sleep(0.5)
