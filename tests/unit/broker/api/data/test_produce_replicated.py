"""Produce to partitions with several replicas: who is waited for, and when that is refused."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.produce import produce
from tests.run_with import run_with
from tests.unit.broker.api import producing
from tests.unit.broker.api.harness import Node, Pending, on_node
from tests.unit.broker.api.producing import batch, request, rows, stored
from tests.unit.broker.api.replicating import EPOCH, led, replicate, synced


def fetched(node: Node, node_id: int, offset: int) -> None:
    now_s = asyncio.get_running_loop().time()
    led(node).replica_fetched(node_id, 100 + node_id, offset, now_s)


async def send(node: Node, acks: int = -1) -> Pending:
    return await node.send(produce, producing.VERSION, request(("t", 0, batch()), acks=acks))


async def answered(pending: Pending) -> int:
    (row,) = rows(await pending.reply())
    return row.error_code


@run_with(on_node)
async def test_acks_all_waits_for_every_in_sync_replica(node: Node) -> None:
    await replicate(node, min_insync_replicas="2")
    pending = await send(node)
    await synced(node)
    fetched(node, 2, 1)
    await asyncio.sleep(0.1)
    assert not pending.is_answered
    fetched(node, 3, 1)
    assert await answered(pending) == ErrorCode.NONE


@run_with(on_node)
async def test_acks_1_waits_for_the_local_disk(node: Node) -> None:
    await replicate(node, min_insync_replicas="2")
    assert await answered(await send(node, acks=1)) == ErrorCode.NONE
    assert led(node).high_watermark == 0


@run_with(on_node)
async def test_acks_all_below_the_minimum_is_refused_before_the_append(node: Node) -> None:
    await replicate(node, isr=(1,), min_insync_replicas="2")
    assert await answered(await send(node)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert stored(node) == []
    assert await answered(await send(node, acks=1)) == ErrorCode.NONE, "it asks for one only"


@run_with(on_node)
async def test_acks_all_fails_when_the_isr_shrinks_below_the_minimum(node: Node) -> None:
    await replicate(node, min_insync_replicas="2")
    pending = await send(node)
    await replicate(node, isr=(1,), partition_epoch=11)
    assert await answered(pending) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert len(stored(node)) == 1


@pytest.mark.parametrize("acks", [-1, 1])
@run_with(on_node)
async def test_end_of_a_role_is_reported_to_waiting_requests(node: Node, *, acks: int) -> None:
    await replicate(node, min_insync_replicas="2")
    node.workers.delay_s = (1.0, 1.0)
    pending = await send(node, acks)
    await replicate(node, leader=2, epoch=EPOCH + 1, partition_epoch=11)
    assert await answered(pending) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@run_with(on_node)
async def test_wrong_node_returns_the_current_leader(node: Node) -> None:
    await replicate(node, leader=2)
    response = await node.ask(produce, 12, request(("t", 0, batch())))
    (row,) = rows(response)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader is not None
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, EPOCH)
    (endpoint,) = response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.rack) == (2, "host2", "r2")


@run_with(on_node)
async def test_wrong_node_returns_the_current_leader_by_topic_id(node: Node) -> None:
    await replicate(node, leader=3)
    topic_id = node.ctx.image.topics["t"].id
    asked = request(("", 0, batch()), topic_id=topic_id)
    (row,) = rows(await node.ask(produce, 13, asked))
    assert row.current_leader is not None
    assert row.current_leader.leader_id == 3


@pytest.mark.parametrize("acks", [-1, 0, 1])
@run_with(on_node)
async def test_node_unsure_of_its_registration_accepts_no_writes(node: Node, *, acks: int) -> None:
    await replicate(node)
    node.ctx.metadata.membership.valid_until = asyncio.get_running_loop().time()
    pending = await send(node, acks)
    if acks:
        assert await answered(pending) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        assert pending.is_hung_up
    assert stored(node) == []
