"""Administration of groups: DescribeGroups (api 15), versions 0-6; ListGroups (16), 0-5;
DeleteGroups (42), 0-2; ConsumerGroupDescribe (69), 0-1.

A request may name several groups, whose shards are called concurrently. ListGroups calls every
shard of this node; a client that needs all groups of a cluster must call every broker.

Share groups: ShareGroupHeartbeat (api 76) and ShareGroupDescribe (77), version 1. Both are passed
to the group's shard after the check of permissions: READ or DESCRIBE on the group, DESCRIBE on
the topics it names.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Token
from penstock.broker.api.call import Call
from penstock.broker.api.context import GroupContext
from penstock.broker.api.coordinator_calls import (
    add_group_operations,
    ask_group,
    caller_of,
    gathered,
    may_group,
    permitted_rows,
)
from penstock.broker.api.large_replies import answered, holder_of
from penstock.broker.api.queues.share_offsets import forget_group
from penstock.broker.api.response_rows import may, may_cluster
from penstock.broker.api.route_row import Operation
from penstock.coordinator.runtime.shard_host import ask
from penstock.state.groups.error_replies import refusal
from penstock.state.groups.queries import listed_groups
from penstock.state.groups.shard import GroupShard
from penstock.wire.messages.classic_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from penstock.wire.messages.share import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    import asyncio


GROUPS_MAX = 10_000
"""Limits the groups in one request."""
HIDDEN = "The group has described topic(s) that the client is not authorized to see."
Described = TypeVar("Described", DescribedConsumerGroup, DescribedShareGroup)


async def describe_groups(
    ctx: GroupContext, call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    names = list(dict.fromkeys(request.groups[:GROUPS_MAX]))
    asked = [DescribeGroupsRequest(groups=[name]) for name in names]
    replies = await ask_each(ctx, call, names, asked, Operation.DESCRIBE)
    rows = [reply.groups[0] for reply in replies]
    if request.include_authorized_operations:
        add_group_operations(ctx, call, rows)
    members = sum(len(row.members) for row in rows)
    return await answered(ctx, call, DescribeGroupsResponse(groups=rows), len(rows) + members)


async def consumer_group_describe(
    ctx: GroupContext, call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    rows = await _described(ctx, call, request)
    members = sum(len(row.members) for row in rows)
    response = ConsumerGroupDescribeResponse(groups=rows)
    return await answered(ctx, call, response, len(rows) + members)


async def _described(
    ctx: GroupContext,
    call: Call,
    request: ConsumerGroupDescribeRequest | ShareGroupDescribeRequest,
) -> list[Any]:
    """Returns the rows of the requested groups, as far as the caller may see them."""
    names = list(dict.fromkeys(request.group_ids[:GROUPS_MAX]))
    asked = [type(request)(group_ids=[name], include_authorized_operations=False) for name in names]
    replies = await ask_each(ctx, call, names, asked, Operation.DESCRIBE)
    rows = [_shown(ctx, call, reply.groups[0]) for reply in replies]
    if request.include_authorized_operations:
        add_group_operations(ctx, call, rows)
    return rows


def _shown(ctx: GroupContext, call: Call, row: Described) -> Described:
    """Hides the members of a group if the caller may not describe all of its topics."""
    if isinstance(row, DescribedShareGroup):
        assignments = [member.assignment.topic_partitions for member in row.members]
    else:
        assignments = [
            assignment.topic_partitions
            for member in row.members
            for assignment in (member.assignment, member.target_assignment)
        ]
    topics = {assigned.topic_name for assignment in assignments for assigned in assignment}
    if not all(may(ctx, call, Operation.DESCRIBE, name) for name in sorted(topics)):
        row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        row.error_message = HIDDEN
        row.members = ()
    return row


async def delete_groups(
    ctx: GroupContext, call: Call, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names[:GROUPS_MAX]))
    failed = await _forget_positions(ctx, call, names)
    asked = [DeleteGroupsRequest(groups_names=[name]) for name in names]
    replies = await ask_each(ctx, call, names, asked, Operation.DELETE)
    rows = {reply.results[0].group_id: reply.results[0] for reply in replies}
    return DeleteGroupsResponse(results=[*rows.values(), *failed])


async def _forget_positions(
    ctx: GroupContext, call: Call, names: list[str]
) -> list[DeletableGroupResult]:
    """Deletes the offsets of share groups first; a group whose offsets cannot be deleted stays."""
    failed = []
    for group_id in list(names):
        try:
            if may_group(ctx, call, Operation.DELETE, group_id):
                await forget_group(ctx, call, group_id)
        except Refused as refused:
            names.remove(group_id)
            failed.append(DeletableGroupResult(group_id=group_id, error_code=int(refused.code)))
    return failed


async def list_groups(
    ctx: GroupContext, call: Call, request: ListGroupsRequest
) -> ListGroupsResponse:
    host = ctx.groups.host
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if host.is_loading else ErrorCode.NONE

    def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
        return Decision(replies=((token, listed_groups(shard, request)),))

    sees_all = may_cluster(ctx, call, Operation.DESCRIBE)

    def shown(row: ListedGroup) -> ListedGroup | None:
        is_seen = sees_all or may_group(ctx, call, Operation.DESCRIBE, row.group_id)
        return row if is_seen else None

    replies = await gathered([ask(runtime, decide) for runtime, _ in host.active()])
    rows = await ctx.scheduler.do(holder_of(call), permitted_rows(replies, shown))
    return await answered(ctx, call, ListGroupsResponse(error_code=code, groups=rows), len(rows))


async def ask_each(
    ctx: GroupContext, call: Call, names: list[str], requests: Iterable[Any], operation: Operation
) -> list[Any]:
    """Returns the response of each group's shard, or its refusal in the same shape."""
    name = call.route.name
    asked = list(requests)
    futures = [
        _ask(ctx, call, group_id, request, operation)
        for group_id, request in zip(names, asked, strict=True)
    ]
    return [
        refusal(name, request, reply, call.version) if isinstance(reply, Refused) else reply
        for request, reply in zip(asked, await gathered(futures), strict=True)
    ]


def _ask(
    ctx: GroupContext, call: Call, group_id: str, request: Any, operation: Operation
) -> "asyncio.Future[Any] | Refused":
    if not may_group(ctx, call, operation, group_id):
        return Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    name, caller = call.route.name, caller_of(ctx, call)

    def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
        return shard.handle(name, request, token, caller, now_ms)

    try:
        return ctx.groups.host.ask(group_id, decide)
    except Refused as refused:
        return refused


def share_group_heartbeat(
    ctx: GroupContext, call: Call, request: ShareGroupHeartbeatRequest
) -> Any:
    name = call.route.name
    code = None
    if not may_group(ctx, call, Operation.READ, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not all(
        may(ctx, call, Operation.DESCRIBE, topic) for topic in request.subscribed_topic_names or ()
    ):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if code is not None:
        return refusal(name, request, Refused(code), call.version)
    return ask_group(ctx, call, name, request)


async def share_group_describe(
    ctx: GroupContext, call: Call, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=await _described(ctx, call, request))
