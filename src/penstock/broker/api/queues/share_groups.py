"""Share groups: ShareGroupHeartbeat (api 76) and ShareGroupDescribe (77), version 1.

Both are passed to the group's shard after the check of permissions: READ or DESCRIBE on the group,
DESCRIBE on the topics it names.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import GroupContext
from penstock.broker.api.coordinator_calls import add_group_operations, ask_group, may_group
from penstock.broker.api.groups.admin import GROUPS_MAX, ask_each
from penstock.broker.api.response_rows import may
from penstock.broker.api.route_row import Operation
from penstock.state.groups.error_replies import refusal
from penstock.wire.messages.share import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
)


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
    names = list(dict.fromkeys(request.group_ids[:GROUPS_MAX]))
    asked = [
        ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
        for name in names
    ]
    replies = await ask_each(ctx, call, names, asked, Operation.DESCRIBE)
    rows = [_shown(ctx, call, reply.groups[0]) for reply in replies]
    if request.include_authorized_operations:
        add_group_operations(ctx, call, rows)
    return ShareGroupDescribeResponse(groups=rows)


def _shown(ctx: GroupContext, call: Call, row: DescribedShareGroup) -> DescribedShareGroup:
    """Hides the members of a group if the caller may not describe all of its topics."""
    topics = {
        assigned.topic_name
        for member in row.members
        for assigned in member.assignment.topic_partitions
    }
    if all(may(ctx, call, Operation.DESCRIBE, name) for name in sorted(topics)):
        return row
    row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    row.error_message = "The group has described topic(s) that the client is not authorized to see."
    row.members = ()
    return row
