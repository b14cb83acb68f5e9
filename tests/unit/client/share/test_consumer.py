"""A member of a share group over the wire, against real nodes in a simulated world."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.connection import ConnectionConfig
from penstock.client.metadata import TopicPartition
from penstock.client.producer.producer import Producer
from penstock.client.share.acknowledgements import AcknowledgementType
from penstock.client.share.consumer import ShareConfig, ShareConsumer
from penstock.client.share.leases import HeldLease
from simulation.clock import SimClock
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker

GROUP_CONFIGS = 32
CONNECTIONS = ConnectionConfig(connect_timeout_ms=1_000, request_timeout_ms=5_000)


def on_jobs(
    test: Callable[[Sim, Cluster], Awaitable[None]],
    *,
    count: int,
    partitions: int = 1,
    nodes: int = 1,
    seed: int = 1,
) -> None:
    """A test with so many records in the topic `jobs`, and a group that begins at its start."""

    async def body(sim: Sim) -> None:
        async with Cluster(SimRandom(seed), sim.cluster.addresses, CONNECTIONS) as cluster:
            admin = Admin(cluster)
            await admin.create_topic("jobs", partitions, nodes)
            await admin.alter_configs(GROUP_CONFIGS, "g", {"share.auto.offset.reset": "earliest"})
            async with Producer(SimClock(sim.loop), SimRandom(seed), cluster) as producer:
                for number in range(count):
                    await producer.send("jobs", b"%d" % number, partition=number % partitions)
                await producer.flush()
            await test(sim, cluster)

    on_broker(body, nodes=nodes, seed=seed)


def new_consumer(sim: Sim, config: ShareConfig | None = None, seed: int = 7) -> ShareConsumer:
    return ShareConsumer(Cluster(SimRandom(seed), sim.cluster.addresses, CONNECTIONS), "g",
                         ["jobs"], config)  # fmt: skip


async def drain(consumer: ShareConsumer, seconds: float) -> list[HeldLease]:
    """Accepts what comes until nothing has come for so long."""
    found: list[HeldLease] = []
    while leases := await consumer.receive(100, int(seconds * 1000)):
        found += leases
        for lease in leases:
            consumer.settle(lease, AcknowledgementType.ACCEPT)
    await consumer.flush()
    return found


def values(leases: list[HeldLease]) -> list[int]:
    return sorted(int(lease.message.value or b"") for lease in leases)


@run_with(on_jobs, count=60, partitions=6, nodes=3)
async def test_records_of_all_partitions_and_nodes_are_received_once(
    sim: Sim, cluster: Cluster
) -> None:
    async with new_consumer(sim, ShareConfig(prefetch=10)) as consumer:
        assert values(await drain(consumer, 5)) == list(range(60))
        assert consumer.held == 0
    async with new_consumer(sim, seed=8) as consumer:
        assert await consumer.receive(1, 3_000) == []


@run_with(on_jobs, count=30, partitions=3, nodes=3)
async def test_acknowledgements_and_fetches_move_to_the_new_leader(
    sim: Sim, cluster: Cluster
) -> None:
    async with new_consumer(sim) as consumer:
        leases: list[HeldLease] = []
        while len(leases) < 6:
            leases += await consumer.receive(6, 5_000)
        where = TopicPartition("jobs", 0)
        leader = await cluster.leader(where)
        await sim.cluster.hosts[leader].stop()
        outcomes = await asyncio.gather(
            *(consumer.settle(lease, AcknowledgementType.ACCEPT) for lease in leases),
            return_exceptions=True,
        )
        lost = {
            int(lease.message.value or b"")
            for lease, outcome in zip(leases, outcomes, strict=True)
            if outcome is not None
        }
        rest = values(await drain(consumer, 30))
        # Records that were never taken or never seen are delivered again, whichever node leads now.
        assert set(rest) >= set(range(30)) - set(values(leases)) | lost
        assert {*rest, *values(leases)} == set(range(30))


@run_with(on_jobs, count=40, partitions=2)
async def test_held_records_are_limited(sim: Sim, cluster: Cluster) -> None:
    config = ShareConfig(prefetch=50, held_max=8)
    async with new_consumer(sim, config) as consumer:
        taken: list[HeldLease] = []
        while found := await consumer.receive(5, 2_000):
            taken += found
            assert consumer.held <= 8
        assert len(taken) == 8
        for lease in taken:
            consumer.settle(lease, AcknowledgementType.ACCEPT)
        assert len(await drain(consumer, 2)) == 32


@run_with(on_jobs, count=1)
async def test_receive_without_a_wait_still_asks_once(sim: Sim, cluster: Cluster) -> None:
    async with new_consumer(sim) as consumer:
        before = sim.loop.time()
        (lease,) = await consumer.receive(10, 0)
        await consumer.settle(lease, AcknowledgementType.ACCEPT)
        assert await consumer.receive(10, 0) == []
        assert sim.loop.time() - before < 1


@run_with(on_jobs, count=5)
async def test_member_unknown_to_the_group_rejoins(sim: Sim, cluster: Cluster) -> None:
    async with new_consumer(sim) as consumer:
        assert len(await consumer.receive(1, 5_000)) == 1
        await sim.cluster.hosts[1].stop()
        await sim.cluster.hosts[1].start()
        await asyncio.sleep(20)
        assert len(await drain(consumer, 10)) >= 4


@run_with(on_jobs, count=1)
async def test_closed_consumer_refuses_acknowledgements(sim: Sim, cluster: Cluster) -> None:
    consumer = new_consumer(sim)
    await consumer.start()
    (lease,) = await consumer.receive(1, 5_000)
    await consumer.close()
    await consumer.close()
    with pytest.raises(Refused, match="closed") as refused:
        consumer.settle(lease, AcknowledgementType.ACCEPT)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(Refused, match="closed"):
        await consumer.receive(1, 0)


@run_with(on_jobs, count=1)
async def test_no_record_is_leased_before_a_receive(sim: Sim, cluster: Cluster) -> None:
    async with new_consumer(sim) as idle, new_consumer(sim, seed=8) as busy:
        (lease,) = await busy.receive(1, 500)
        assert lease.delivery_count == 1
        assert idle.held == 0


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
@run_with(on_jobs, count=1)
async def test_consumer_closed_at_once_leaves_no_lease(
    sim: Sim, cluster: Cluster, *, delay_ms: int
) -> None:
    hasty = new_consumer(sim)
    await hasty.start()
    await asyncio.sleep(delay_ms / 1000)
    await hasty.close()
    async with new_consumer(sim, seed=8) as consumer:
        # Much earlier than a lease would end.
        (lease,) = await consumer.receive(1, 5_000)
        assert lease.delivery_count == 1
