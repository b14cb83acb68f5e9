"""Groups as administrators see them."""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api.groups.admin import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
)
from penstock.broker.api.groups.membership import consumer_group_heartbeat
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.messages.classic_groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from penstock.wire.messages.consumer_groups import ConsumerGroupDescribeRequest
from tests.run_with import run_with
from tests.unit.broker.api.groups.test_membership import CONFIGS, consumer_beat, join, sync
from tests.unit.broker.api.groups.test_offsets import commit, position
from tests.unit.broker.api.harness import Node, on_node


async def three_groups(node: Node) -> str:
    """A classic group g with a member, a consumer group c with one, and o with offsets only."""
    await node.create("t", 2)
    await node.ctx.group.groups.ensure()
    joined = await (await join(node)).reply()
    await sync(node, joined, b"yours")
    await node.ask(consumer_group_heartbeat, 1, consumer_beat("m1", 0, "t"))
    await commit(node, 9, ("t", None, [position(0, 1)]), group="o")
    member_id: str = joined.member_id
    return member_id


@run_with(on_node, configs=CONFIGS)
async def test_groups_are_listed_by_state_and_type(node: Node) -> None:
    async def names(**filters: Any) -> list[str]:
        answer = await node.ask(list_groups, 5, ListGroupsRequest(**filters))
        assert answer.error_code == ErrorCode.NONE
        return sorted(row.group_id for row in answer.groups)

    assert await names() == [], "before anyone asked for a coordinator"
    await three_groups(node)
    assert await names() == ["c", "g", "o"]
    assert await names(states_filter=["empty"]) == ["o"]
    assert await names(types_filter=["consumer"]) == ["c"]
    assert await names(states_filter=["Stable"], types_filter=["Classic"]) == ["g"]
    node.rights.deny(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "g")
    assert await names() == ["c", "o"]


@run_with(on_node, configs=CONFIGS)
async def test_classic_groups_are_described(node: Node) -> None:
    member_id = await three_groups(node)
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "secret")
    request = DescribeGroupsRequest(
        groups=["g", "unknown", "secret", "g"], include_authorized_operations=True
    )
    rows = (await node.ask(describe_groups, 6, request)).groups
    assert [row.group_id for row in rows] == ["g", "unknown", "secret"]
    known, missing, secret = rows
    assert (known.error_code, known.group_state) == (ErrorCode.NONE, "Stable")
    (member,) = known.members
    assert (member.member_id, member.client_host) == (member_id, "/127.0.0.1")
    assert member.member_assignment == b"yours"
    assert known.authorized_operations & (1 << Operation.DELETE)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert secret.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    old = await node.ask(describe_groups, 5, DescribeGroupsRequest(groups=["unknown"]))
    assert (old.groups[0].error_code, old.groups[0].group_state) == (0, "Dead")


@run_with(on_node, configs=CONFIGS)
async def test_consumer_group_description_requires_permission_on_its_topics(node: Node) -> None:
    await three_groups(node)
    request = ConsumerGroupDescribeRequest(group_ids=["c", "g"], include_authorized_operations=True)
    known, classic = (await node.ask(consumer_group_describe, 1, request)).groups
    assert (known.error_code, known.group_state) == (ErrorCode.NONE, "Stable")
    (member,) = known.members
    (owned,) = member.assignment.topic_partitions
    assert (owned.topic_name, sorted(owned.partitions)) == ("t", [0, 1])
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    hidden, _ = (await node.ask(consumer_group_describe, 1, request)).groups
    assert hidden.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert list(hidden.members) == []


@run_with(on_node, configs=CONFIGS)
async def test_only_empty_groups_are_deleted(node: Node) -> None:
    await three_groups(node)
    await commit(node, 9, ("t", None, [position(0, 1)]), group="secret")
    node.rights.deny(Operation.DELETE, ResourceType.GROUP, "secret")
    request = DeleteGroupsRequest(groups_names=["g", "o", "unknown", "secret"])
    answer = await node.ask(delete_groups, 2, request)
    assert {row.group_id: row.error_code for row in answer.results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "o": ErrorCode.NONE,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
        "secret": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
    listed = await node.ask(list_groups, 5, ListGroupsRequest())
    assert sorted(row.group_id for row in listed.groups) == ["c", "g", "secret"]
