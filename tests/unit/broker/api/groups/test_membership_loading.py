"""Members whose coordinator is still loading: what the classic protocol lets them hear of it."""

from penstock.base.errors import ErrorCode
from penstock.broker.api.groups.membership import find_coordinator, heartbeat, member_request
from penstock.wire.messages.classic_groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def begin_loading(node: Node) -> None:
    await node.ask(find_coordinator, 6, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    host = node.ctx.group.groups.host
    runtime = host.runtime_of("g")
    runtime.shard, runtime.refusal = None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert host.is_loading


@run_with(on_node, configs={"offsets.topic.num.partitions": "1"})
async def test_loading_coordinator_is_not_reported_to_heartbeats(
    node: Node,
) -> None:
    await begin_loading(node)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await node.ask(heartbeat, 4, beat)).error_code == ErrorCode.NONE
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    answer = await node.ask(member_request, 5, sync)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="m",
        protocol_type="consumer",
        protocols=[],
    )
    answer = await node.ask(member_request, 9, join)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
