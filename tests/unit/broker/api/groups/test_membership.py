"""Membership over the API: who coordinates, who may join, who waits, and who is gone."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.groups.membership import (
    consumer_group_heartbeat,
    find_coordinator,
    member_request,
)
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.state.groups.consumer_protocol import Subscription, write_subscription
from penstock.wire.messages.classic_groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from penstock.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, Pending, on_node

CONFIGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
SUBSCRIPTION = write_subscription(Subscription(topics=["t"]))


def join_request(member_id: str = "", group_id: str = "g", **more: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        **more,
    )


async def join(node: Node, group_id: str = "g") -> Pending:
    """A new member's second join: the first one only gives it its id."""
    first = await node.ask(member_request, 9, join_request(group_id=group_id))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return await node.send(member_request, 9, join_request(first.member_id, group_id))


async def sync(node: Node, joined: Any, assignment: bytes) -> Any:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
    )
    return await node.ask(member_request, 5, request)


@pytest.mark.parametrize("version", range(7))
@run_with(on_node, configs=CONFIGS)
async def test_first_find_coordinator_creates_the_topic(node: Node, *, version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h", "g"])
    answer = await node.ask(find_coordinator, version, request)
    rows = answer.coordinators if version >= 4 else [answer]
    assert len(rows) == (2 if version >= 4 else 1)
    for row in rows:
        assert (row.error_code, row.node_id) == (ErrorCode.NONE, 1)
        assert (row.host, row.port) == ("localhost", 9092)
    assert "__consumer_offsets" in node.ctx.image.topics
    assert "__transaction_state" not in node.ctx.image.topics


@run_with(on_node, configs=CONFIGS)
async def test_every_coordinator_key_type_is_answered(node: Node) -> None:
    async def ask(key_type: int, key: str = "x") -> int:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        (row,) = (await node.ask(find_coordinator, 6, request)).coordinators
        code: int = row.error_code
        return code

    assert await ask(1) == ErrorCode.NONE
    assert "__transaction_state" in node.ctx.image.topics
    assert await ask(2) == ErrorCode.INVALID_REQUEST
    assert await ask(2, "group:AAAAAAAAAAAAAAAAAAAAAA:0") == ErrorCode.NONE
    assert "__share_group_state" in node.ctx.image.topics
    assert await ask(3) == ErrorCode.INVALID_REQUEST
    node.rights.deny(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "x")
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "x")
    assert await ask(0) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert await ask(1) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    assert await ask(2) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@run_with(on_node, configs=CONFIGS)
async def test_member_joins_syncs_heartbeats_and_leaves(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    joined = await (await join(node)).reply()
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("tester-")
    assert [member.metadata for member in joined.members] == [SUBSCRIPTION]
    synced = await sync(node, joined, b"yours")
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"yours")
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await node.ask(member_request, 4, beat)).error_code == ErrorCode.NONE
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
    assert (await node.ask(member_request, 5, leave)).error_code == ErrorCode.NONE
    assert (await node.ask(member_request, 4, beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert node.ctx.metrics.generations.value == 1


@run_with(on_node, configs=CONFIGS)
async def test_join_waits_for_members_of_its_group_only(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    first = await (await join(node)).reply()
    await sync(node, first, b"")
    second = await join(node)
    await asyncio.sleep(1)
    assert not second.is_answered, "the first member has not joined again"
    elsewhere = await (await join(node, "elsewhere")).reply()
    assert elsewhere.error_code == ErrorCode.NONE
    again = await node.send(member_request, 9, join_request(first.member_id))
    replies = [await second.reply(), await again.reply()]
    assert [reply.generation_id for reply in replies] == [2, 2]


@run_with(on_node, configs=CONFIGS)
async def test_lost_connection_cancels_its_pending_join(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    first = await (await join(node)).reply()
    await sync(node, first, b"")
    second = await join(node)
    runtime = node.ctx.group.groups.host.runtime_of("g")
    assert runtime.waiting == 1
    second.call.abandon()
    assert runtime.waiting == 0
    await node.ask(member_request, 9, join_request(first.member_id))
    assert not second.is_answered


@run_with(on_node, configs=CONFIGS)
async def test_silent_member_is_removed_when_its_session_ends(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    joined = await (await join(node)).reply()
    await sync(node, joined, b"")
    await asyncio.sleep(11)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await node.ask(member_request, 4, beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@run_with(on_node, configs=CONFIGS)
async def test_group_requests_require_the_read_permission(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    node.rights.deny(Operation.READ, ResourceType.GROUP, "g")
    requests = [
        (9, join_request()),
        (4, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
        (5, LeaveGroupRequest(group_id="g")),
        (5, SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])),
    ]
    for version, request in requests:
        answer = await node.ask(member_request, version, request)
        assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, topic_partitions=None
    )
    answer = await node.ask(consumer_group_heartbeat, 1, beat)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def consumer_beat(member_id: str, epoch: int, *topics: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )


@run_with(on_node, configs=CONFIGS)
async def test_consumer_protocol_member_is_assigned_partitions(node: Node) -> None:
    await node.create("t", 3)
    await node.ctx.group.groups.ensure()
    answer = await node.ask(consumer_group_heartbeat, 1, consumer_beat("m1", 0, "t"))
    assert (answer.error_code, answer.member_id) == (ErrorCode.NONE, "m1")
    assert answer.member_epoch > 0
    (given,) = answer.assignment.topic_partitions
    assert given.topic_id == node.ctx.image.topics["t"].id
    assert sorted(given.partitions) == [0, 1, 2]
    assert node.ctx.metrics.assignments.value == 1


@run_with(on_node, configs={**CONFIGS, "group.coordinator.rebalance.protocols": "classic"})
async def test_consumer_protocol_can_be_disabled(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    answer = await node.ask(consumer_group_heartbeat, 1, consumer_beat("m1", 0, "t"))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


@run_with(on_node, configs=CONFIGS)
async def test_new_topics_are_assigned_to_subscribed_groups(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    first = await node.ask(consumer_group_heartbeat, 1, consumer_beat("m1", 0, "t"))
    assert not first.assignment.topic_partitions
    await node.create("t", 2)
    request = consumer_beat("m1", first.member_epoch, "t")
    answer = await node.ask(consumer_group_heartbeat, 1, request)
    (given,) = answer.assignment.topic_partitions
    assert sorted(given.partitions) == [0, 1]


@run_with(on_node, configs=CONFIGS)
async def test_subscription_requires_permission_on_its_topics(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    request = consumer_beat("m1", 0, "secret")
    answer = await node.ask(consumer_group_heartbeat, 1, request)
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
