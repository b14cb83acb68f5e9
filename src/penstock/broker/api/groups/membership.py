"""Group membership: JoinGroup (api 11), versions 0-9; Heartbeat (12), 0-4; LeaveGroup (13),
0-5; SyncGroup (14), 0-5; ConsumerGroupHeartbeat (68), 0-1; and FindCoordinator (10), 0-6.

The first FindCoordinator creates the internal topic and waits for it, so that its reply is already
useful. v4 names several keys.

The other requests are passed to their group's shard after the check of permissions. A join or sync
is answered when the group's rebalance has advanced; until then the connection waits, as in Kafka.
"""

import functools
from collections.abc import Awaitable, Collection
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import GroupContext
from penstock.broker.api.coordinator_calls import ask_group, may_group, may_txn
from penstock.broker.api.data.metadata import live_leader
from penstock.broker.api.response_rows import may, may_cluster, reached_at
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata.image import Image
from penstock.coordinator.runtime.shard_host import ShardHost
from penstock.state.groups.error_replies import refusal
from penstock.wire.messages.classic_groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

GROUP_KEY, TXN_KEY, SHARE_KEY = 0, 1, 2
KEYS_SINCE = 4
KEYS_MAX = 10_000
NO_NODE = -1
CONSUMER_PROTOCOL = "consumer"


# -- members ----------------------------------------------------------------------------------


def member_request(ctx: GroupContext, call: Call, request: Any) -> Any:
    """Handles JoinGroup, SyncGroup, LeaveGroup and ConsumerGroupHeartbeat."""
    name = call.route.name
    if not may_group(ctx, call, Operation.READ, request.group_id):
        return refusal(name, request, Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED), call.version)

    def counted(response: Any) -> Any:
        _count(ctx, response)
        return _while_loading(response)

    # A member without id may get one.
    is_new = not getattr(request, "member_id", "-")
    return ask_group(ctx, call, name, request, counted, fresh_id=is_new)


def heartbeat(ctx: GroupContext, call: Call, request: HeartbeatRequest) -> Any:
    """Handles Heartbeat, the most frequent request, which counts no rebalances."""
    if not may_group(ctx, call, Operation.READ, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ask_group(ctx, call, "Heartbeat", request, _while_loading)


def _while_loading(response: Any) -> Any:
    """Replaces COORDINATOR_LOAD_IN_PROGRESS as Kafka does: no error for a heartbeat, and
    REBALANCE_IN_PROGRESS for a sync. Clients of the classic protocol do not expect the original
    error here, and some of them exit."""
    if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        if isinstance(response, HeartbeatResponse):
            response.error_code = ErrorCode.NONE
        elif isinstance(response, SyncGroupResponse):
            response.error_code = ErrorCode.REBALANCE_IN_PROGRESS
    return response


def _count(ctx: GroupContext, reply: Any) -> None:
    """Counts rebalances by their results: each generation has one leader."""
    if isinstance(reply, JoinGroupResponse):
        if not reply.error_code and reply.member_id == reply.leader:
            ctx.metrics.generations.value += 1
    elif isinstance(reply, ConsumerGroupHeartbeatResponse) and reply.assignment is not None:
        ctx.metrics.assignments.value += 1


def consumer_group_heartbeat(
    ctx: GroupContext, call: Call, request: ConsumerGroupHeartbeatRequest
) -> Any:
    """Handles ConsumerGroupHeartbeat; the caller must be allowed to describe its topics."""
    if CONSUMER_PROTOCOL not in ctx.configs.items("group.coordinator.rebalance.protocols"):
        refused = Refused(ErrorCode.UNSUPPORTED_VERSION)
        return refusal(call.route.name, request, refused, call.version)
    names = request.subscribed_topic_names
    if (
        names
        and may_group(ctx, call, Operation.READ, request.group_id)
        and not all(may(ctx, call, Operation.DESCRIBE, name) for name in names)
    ):
        refused = Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return refusal(call.route.name, request, refused, call.version)
    return member_request(ctx, call, request)


# -- FindCoordinator --------------------------------------------------------------------------


def find_coordinator(
    ctx: GroupContext, call: Call, request: FindCoordinatorRequest
) -> Awaitable[FindCoordinatorResponse] | None:
    if ctx.membership.may_be_stale:
        call.hang_up()  # Like Metadata.
        return None
    return _find_all(ctx, call, request)


async def _find_all(
    ctx: GroupContext, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    await ctx.failures.wait_for_detection()
    if call.version >= KEYS_SINCE:
        keys = dict.fromkeys(request.coordinator_keys[:KEYS_MAX])
        rows = [await _find(ctx, call, request.key_type, key) for key in keys]
        return FindCoordinatorResponse(coordinators=rows)
    row = await _find(ctx, call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=row.error_code,
        error_message=row.error_message,
        node_id=row.node_id,
        host=row.host,
        port=row.port,
    )


async def _find(ctx: GroupContext, call: Call, key_type: int, key: str) -> Coordinator:
    row = Coordinator(
        key=key,
        node_id=NO_NODE,
        host="",
        port=NO_NODE,
        error_code=ErrorCode.NONE,
        error_message=None,
    )
    try:
        host = await _host(ctx, call, key_type, key)
        index = host.index_of(key)
        await ctx.failures.wait_until_decided(functools.partial(_is_led_by, host.topic, index))
        record = ctx.image.partition(host.topic, index)
        leader = live_leader(ctx.image, record) if record is not None else NO_NODE
        broker = ctx.image.brokers.get(leader)
        if broker is None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except Refused as refused:
        row.error_code = refused.code
        row.error_message = refused.message
        return row
    row.node_id = leader
    row.host, row.port = reached_at(call, broker)
    return row


def _is_led_by(topic: str, index: int, image: Image, nodes: Collection[int]) -> bool:
    record = image.partition(topic, index)
    return record is not None and record.leader in nodes


async def _host(ctx: GroupContext, call: Call, key_type: int, key: str) -> ShardHost[Any]:
    """Returns the shards for keys of this type, creating their topic if needed."""
    if key_type == GROUP_KEY:
        if not may_group(ctx, call, Operation.DESCRIBE, key):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        await ctx.groups.ensure()
        return ctx.groups.host
    if key_type == TXN_KEY:
        if not may_txn(ctx, call, Operation.DESCRIBE, key):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        await ctx.txns.ensure()
        return ctx.txns.host
    if key_type == SHARE_KEY:
        if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if key.count(":") < 2:
            raise Refused(
                ErrorCode.INVALID_REQUEST, "invalid key: must be GROUP:TOPIC_ID:PARTITION"
            )
        await ctx.queues.keeping.ensure()
        return ctx.queues.keeping.host
    raise Refused(ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}")
