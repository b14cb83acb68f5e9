"""Share groups over the API: rights, and what the shard says, carried to the client."""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api.groups.admin import (
    delete_groups,
    list_groups,
    share_group_describe,
    share_group_heartbeat,
)
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.messages.classic_groups import DeleteGroupsRequest, ListGroupsRequest
from penstock.wire.messages.share import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.sharing import ACCEPT, CONFIGS, Member, acquired, set_up


async def beat(node: Node, member: str = "m", epoch: int = 0, **more: Any) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        **more,
    )
    return await node.ask(share_group_heartbeat, 1, request)


async def describe(node: Node, *groups: str, operations: bool = False) -> Any:
    request = ShareGroupDescribeRequest(group_ids=groups, include_authorized_operations=operations)
    return (await node.ask(share_group_describe, 1, request)).groups


async def delete(node: Node) -> int:
    answer = await node.ask(delete_groups, 2, DeleteGroupsRequest(groups_names=["g"]))
    code: int = answer.results[0].error_code
    return code


@run_with(on_node, configs=CONFIGS)
async def test_share_member_joins_stays_and_leaves(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    await set_up(node, partitions=3)
    answer = await beat(node)
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    assert len(answer.assignment.topic_partitions[0].partitions) == 3
    assert (await beat(node, epoch=1)).assignment is None
    (row,) = await describe(node, "g", operations=True)
    assert (row.group_state, len(row.members)) == ("Stable", 1)
    assert row.authorized_operations > 0
    listed = await node.ask(list_groups, 5, ListGroupsRequest(types_filter=["share"]))
    assert [group.group_id for group in listed.groups] == ["g"]
    assert (await beat(node, epoch=-1)).member_epoch == -1


@run_with(on_node, configs=CONFIGS)
async def test_permissions_of_group_and_topics_are_checked(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    await set_up(node)
    await beat(node)
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert (await beat(node, "n")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (row,) = await describe(node, "g")
    assert (row.error_code, list(row.members)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    node.rights.deny(Operation.READ, ResourceType.GROUP, "g")
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "g")
    assert (await beat(node, "n")).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    (row,) = await describe(node, "g")
    assert row.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@run_with(on_node, configs=CONFIGS)
async def test_missing_coordinator_is_reported(node: Node) -> None:
    assert (await beat(node)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    (row,) = await describe(node, "g")
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@run_with(on_node, configs=CONFIGS)
async def test_offsets_are_deleted_with_the_group(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    await set_up(node, 3)
    await beat(node)
    member = Member(node)
    await member.fetch(0)
    await member.answer([(0, 2, ACCEPT)])
    assert await delete(node) == ErrorCode.NON_EMPTY_GROUP
    assert acquired(await member.fetch()) == []
    await beat(node, epoch=-1)
    assert await delete(node) == 0
    assert await delete(node) == ErrorCode.GROUP_ID_NOT_FOUND
    await beat(node)
    assert acquired(await Member(node, "n").fetch(0)) == [(0, 2, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_group_whose_offsets_cannot_be_deleted_stays(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    await set_up(node, 3)
    await beat(node)
    await Member(node).fetch(0)
    await beat(node, epoch=-1)
    node.ctx.queue.queues.keeping.host.close()
    assert await delete(node) == ErrorCode.NOT_COORDINATOR
    (row,) = await describe(node, "g")
    assert row.error_code == 0
