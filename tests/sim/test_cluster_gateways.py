"""Gateways of several nodes: publish, receive and settle without local leadership, and under
failures.

Invariants: a message that a gateway acknowledged is delivered, and an accepted one does not return.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.errors import Refused
from penstock.gateway.core.gateway import Gateway, SettleAction, Settlement
from penstock.gateway.core.groups import Commit
from penstock.gateway.core.messages import OutgoingMessage, Placed
from penstock.gateway.core.permissions import Principal
from penstock.node.node import Node
from penstock.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from tests.run_with import run_with

WHO = Principal("User:ann")
OVERRIDES = {
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.delivery.count.limit": "10",
}


async def create(node: Node, *replicas: tuple[int, ...]) -> None:
    """The topic t, with a partition for each row of replicas."""
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=at, broker_ids=row)
            for at, row in enumerate(replicas)
        ],
        configs=(),
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    response = await node.gateway.handlers.ask(WHO, request, CreateTopicsResponse)
    assert not response.topics[0].error_code, response
    await asyncio.sleep(1)


def play(scene: Callable[[SimCluster], Awaitable[None]], seed: int = 0, **overrides: str) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed, (1, 2, 3), OVERRIDES | overrides)
        await cluster.start()
        await scene(cluster)
        await cluster.stop()
        cluster.close()

    run(main, seed=seed, time_max=2_000.0)


async def publish(gateway: Gateway, *payloads: bytes) -> None:
    placed = await gateway.publish(WHO, "t", [OutgoingMessage(one, key=one) for one in payloads])
    assert all(isinstance(one, Placed) for one in placed), placed


async def accept(gateway: Gateway, receipts: list[str]) -> list[Refused | None]:
    return await gateway.settle(
        WHO, [Settlement(receipt, SettleAction.ACCEPT) for receipt in receipts]
    )


@run_with(play)
async def test_node_without_leadership_publishes_receives_and_settles(
    cluster: SimCluster,
) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1,), (2,), (1,), (2,))
    gateway = nodes[2].gateway
    wanted = {b"%d" % n for n in range(40)}
    await publish(gateway, *sorted(wanted))
    found: set[bytes | None] = set()
    while len(found) < len(wanted):
        some = await gateway.receive(WHO, "t", "g", records_max=7, wait_ms=5_000)
        assert some, "nothing came although there is more"
        assert not found & {one.payload for one in some}
        found |= {one.payload for one in some}
        # Whichever node is asked, the lease is found.
        elsewhere = random.Random(len(found)).choice(nodes).gateway
        assert await accept(elsewhere, [one.receipt for one in some]) == [None] * len(some)
    assert found == wanted
    assert await gateway.receive(WHO, "t", "g", records_max=7, wait_ms=100) == []


@run_with(play)
async def test_receiver_at_any_node_is_served_at_once(cluster: SimCluster) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1,), (2,))
    loop = asyncio.get_running_loop()
    for number in range(10):
        gateway = nodes[number % 3].gateway
        waiting = asyncio.ensure_future(
            gateway.receive(WHO, "t", "g", records_max=10, wait_ms=60_000)
        )
        await asyncio.sleep(3)
        at = loop.time()
        await publish(nodes[(number + 1) % 3].gateway, b"%d" % number)
        (one,) = await waiting
        assert loop.time() - at < 1, "it was not told"
        assert (one.payload, one.delivery_count) == (b"%d" % number, 1)
        assert await accept(gateway, [one.receipt]) == [None]


@run_with(play)
async def test_records_for_a_disconnected_receiver_return_uncounted(
    cluster: SimCluster,
) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1,), (2,))
    gateway = nodes[2].gateway
    chance = random.Random(1)
    for number in range(20):
        waiting = asyncio.ensure_future(
            gateway.receive(WHO, "t", "g", records_max=10, wait_ms=60_000)
        )
        await asyncio.sleep(1)
        publishing = asyncio.ensure_future(publish(gateway, b"a%d" % number, b"b%d" % number))
        await asyncio.sleep(chance.uniform(0, 0.05))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await publishing
        # It may have received, if it was not cancelled soon enough.
        found = [] if waiting.cancelled() else waiting.result()
        while len(found) < 2:
            some = await gateway.receive(WHO, "t", "g", records_max=10, wait_ms=3_000)
            assert some, "it is still held for a member"
            found += some
        assert all(one.delivery_count == 1 for one in found), found
        assert await accept(gateway, [one.receipt for one in found]) == [None, None]


@pytest.mark.parametrize("seed", range(5))
@run_with(play, fixtures=["seed"])
async def test_records_given_by_several_nodes_are_taken_or_returned_uncounted(
    cluster: SimCluster,
) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1,), (2,))
    gateway = nodes[2].gateway
    for number in range(10):
        waiting = asyncio.ensure_future(
            gateway.receive(WHO, "t", "g", records_max=1, wait_ms=60_000)
        )
        await asyncio.sleep(1)
        messages = [OutgoingMessage(b"%d" % number, partition=index) for index in range(2)]
        await gateway.publish(WHO, "t", messages)
        found = await waiting
        found += await gateway.receive(WHO, "t", "g", records_max=1, wait_ms=3_000)
        assert {one.partition for one in found} == {0, 1}, "one is held without a member"
        assert [one.delivery_count for one in found] == [1, 1]
        assert await accept(gateway, [one.receipt for one in found]) == [None, None]


@run_with(play)
async def test_expired_lease_is_refused_at_every_node(cluster: SimCluster) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1,))
    gateway = nodes[2].gateway
    await publish(gateway, b"v")
    (one,) = await gateway.receive(WHO, "t", "g", records_max=1, wait_ms=5_000, lock_ms=2_000)
    await asyncio.sleep(3)
    for node in nodes:
        (refused,) = await accept(node.gateway, [one.receipt])
        assert refused is not None
        assert refused.code.name == "INVALID_RECORD_STATE"


@pytest.mark.parametrize("seed", range(2))
@run_with(
    play, **{"min.insync.replicas": "2", "default.replication.factor": "3"}, fixtures=["seed"]
)
async def test_gateway_survives_the_death_of_any_other_node(
    cluster: SimCluster, *, seed: int
) -> None:
    chance = random.Random(seed)
    nodes = cluster.nodes()
    await create(nodes[0], (1, 2, 3), (2, 3, 1), (3, 1, 2))
    gateway = nodes[2].gateway
    acknowledged: set[bytes | None] = set()
    accepted: set[bytes | None] = set()
    is_over = False

    async def write() -> None:
        number = 0
        while not is_over:
            payload = b"%d" % number
            try:
                (placed,) = await gateway.publish(WHO, "t", [OutgoingMessage(payload)])
                if isinstance(placed, Placed):
                    acknowledged.add(payload)
            except Refused:
                pass
            number += 1
            await asyncio.sleep(0.1)

    async def read() -> None:
        while not (is_over and accepted >= acknowledged):
            try:
                found = await gateway.receive(WHO, "t", "g", records_max=5, wait_ms=2_000)
            except Refused:
                await asyncio.sleep(0.2)
                continue
            answers = await accept(gateway, [one.receipt for one in found])
            for one, refused in zip(found, answers, strict=True):
                if refused is None:
                    accepted.add(one.payload)

    tasks = [asyncio.ensure_future(work) for work in (write(), read(), read())]
    for node_id in chance.sample((1, 2), 2):
        await asyncio.sleep(chance.uniform(1, 4))
        cluster.hosts[node_id].kill()
        await asyncio.sleep(chance.uniform(1, 20))
        assert await cluster.hosts[node_id].start()
        await asyncio.sleep(chance.uniform(5, 20))
    is_over = True
    async with asyncio.timeout(300):
        await asyncio.gather(*tasks)
    assert len(acknowledged) > 50
    assert accepted >= acknowledged


@run_with(play)
async def test_every_node_reads_logs_commits_offsets_and_lists_all_groups(
    cluster: SimCluster,
) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1,), (2,), (3,))
    await publish(nodes[0].gateway, *(b"%d" % n for n in range(30)))
    topic = nodes[0].gateway.topic("t")
    for number, node in enumerate(nodes):
        # Some of these groups are coordinated here, some by another node.
        for group in (f"log-{number}-{n}" for n in range(4)):
            positions = await node.gateway.log.group_positions(WHO, topic, group, "earliest")
            found = await node.gateway.log.read(WHO, topic, positions, records_max=100)
            assert {one.value for one in found} == {b"%d" % n for n in range(30)}
            ends = [Commit("t", index, offset) for index, offset in sorted(positions.items())]
            assert await node.gateway.groups.commit(WHO, group, ends) == [None] * 3
            assert await node.gateway.groups.positions(WHO, group, topic) == positions
            assert await node.gateway.log.read(WHO, topic, positions, records_max=100) == []
        found_here = await node.gateway.receive(
            WHO, "t", f"queue-{number}", records_max=100, wait_ms=5_000
        )
        assert found_here
    for node in nodes:
        names = {row.group: row.kind for row in await node.gateway.groups.all(WHO)}
        assert sum(kind == "share" for kind in names.values()) == 3
        assert sum(kind == "classic" for kind in names.values()) == 12
        assert (await node.gateway.groups.one(WHO, "queue-1")).kind == "share"
        assert await node.gateway.queues.all(WHO, group="queue-2") == [("t", "queue-2")]
        standing = await node.gateway.queues.one(WHO, "t", "queue-0")
        assert standing.unfinished == 30
        assert standing.leased > 0
        offsets = await node.gateway.topics.offsets(WHO, topic)
        assert sum(offsets.end.values()) == 30
    await nodes[1].gateway.groups.delete(WHO, "queue-0")
    await nodes[2].gateway.groups.delete(WHO, "log-0-0")
    left = {row.group for row in await nodes[0].gateway.groups.all(WHO)}
    assert not left & {"queue-0", "log-0-0"}
    assert len(left) == 13


@run_with(play)
async def test_reader_of_a_remote_log_is_notified_soon(cluster: SimCluster) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1,))
    gateway = nodes[2].gateway
    topic = gateway.topic("t")
    reading = asyncio.ensure_future(
        gateway.log.read(WHO, topic, {0: 0}, records_max=10, wait_ms=60_000)
    )
    await asyncio.sleep(3)
    await publish(nodes[1].gateway, b"v")
    at = asyncio.get_running_loop().time()
    assert [one.value for one in await reading] == [b"v"]
    assert asyncio.get_running_loop().time() - at < 1


@pytest.mark.parametrize("seed", range(3))
@run_with(
    play, **{"min.insync.replicas": "2", "default.replication.factor": "3"}, fixtures=["seed"]
)
async def test_lease_is_settled_although_its_leader_dies(cluster: SimCluster, *, seed: int) -> None:
    nodes = cluster.nodes()
    await create(nodes[0], (1, 2, 3))
    gateway = nodes[2].gateway
    await publish(gateway, b"a", b"b")
    found = await gateway.receive(WHO, "t", "g", records_max=2, wait_ms=5_000, lock_ms=60_000)
    cluster.hosts[1].kill()
    await asyncio.sleep(random.Random(seed).uniform(0, 2))
    receipts = [one.receipt for one in found]
    async with asyncio.timeout(45):
        while receipts:
            answers = await accept(gateway, receipts)
            lost = [one for one in answers if one and one.code.name == "INVALID_RECORD_STATE"]
            assert not lost, "the lease was not known to the next leader"
            pairs = zip(receipts, answers, strict=True)
            receipts = [receipt for receipt, refused in pairs if refused is not None]
    await asyncio.sleep(70)
    assert await gateway.receive(WHO, "t", "g", records_max=2, wait_ms=100) == []
