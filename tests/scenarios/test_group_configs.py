"""A group's own configs, set over the wire on a real node in simulated time.

What IncrementalAlterConfigs stores for a group holds for that group from its next heartbeat on,
and no longer once it is taken back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.coordinators import GROUP, at_coordinator
from penstock.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from simulation.cluster import SimCluster
from simulation.loop import SimLoop
from simulation.random import SimRandom
from tests.run_with import run_with

GROUP_RESOURCE = 32
SET, DELETE = 0, 1
OVERRIDES = {
    "offsets.topic.replication.factor": "1",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}


class Desk:
    """A client of one node."""

    def __init__(self, nodes: SimCluster, cluster: Cluster) -> None:
        self.nodes = nodes
        self.cluster = cluster

    async def alter(self, group: str, name: str, value: str | None) -> ErrorCode:
        config = IncrementalAlterableConfig(
            name=name, config_operation=DELETE if value is None else SET, value=value
        )
        row = IncrementalAlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[row], validate_only=False)
        reply = await self.cluster.call(request, IncrementalAlterConfigsResponse)
        return ErrorCode(reply.responses[0].error_code)

    async def beat(self, group: str, member_id: str, epoch: int, **changes: Any) -> Any:
        is_joining = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if is_joining else -1,
            subscribed_topic_names=["t"] if is_joining else None,
            topic_partitions=[] if is_joining else None,
        )

        async def ask(node_id: int) -> ConsumerGroupHeartbeatResponse:
            return await self.cluster.call(request, ConsumerGroupHeartbeatResponse, node_id=node_id)

        return await at_coordinator(self.cluster, GROUP, group, ask)


def play(scene: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        nodes = SimCluster(loop, 1, overrides=OVERRIDES)
        await nodes.start()
        async with Cluster(SimRandom(1), nodes.addresses) as cluster:
            await Admin(cluster).create_topic("t", 2, 1)
            await scene(Desk(nodes, cluster))
        nodes.close()

    loop = SimLoop(1, time_max=3_600)
    loop.run(main())


@run_with(play)
async def test_heartbeat_interval_of_one_group_changes_and_is_restored(desk: Desk) -> None:
    for group in ("g", "other"):
        assert (await desk.beat(group, "m", 0)).heartbeat_interval_ms == 5_000
    name = "consumer.heartbeat.interval.ms"
    assert await desk.alter("g", name, "700") is ErrorCode.NONE
    assert (await desk.beat("g", "m", 1)).heartbeat_interval_ms == 700
    assert (await desk.beat("other", "m", 1)).heartbeat_interval_ms == 5_000
    assert await desk.alter("g", name, None) is ErrorCode.NONE
    assert (await desk.beat("g", "m", 1)).heartbeat_interval_ms == 5_000


@run_with(play)
async def test_session_timeout_of_a_group_ends_its_sessions(desk: Desk) -> None:
    assert await desk.alter("g", "consumer.heartbeat.interval.ms", "1000") is ErrorCode.NONE
    assert await desk.alter("g", "consumer.session.timeout.ms", "3000") is ErrorCode.NONE
    for group in ("g", "other"):
        assert (await desk.beat(group, "m", 0)).error_code == 0
    await asyncio.sleep(2.5)
    assert (await desk.beat("g", "m", 1)).error_code == 0
    await asyncio.sleep(3.5)
    assert (await desk.beat("g", "m", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await desk.beat("other", "m", 1)).error_code == 0


@run_with(play)
async def test_assignment_interval_batches_joining_members(desk: Desk) -> None:
    name = "consumer.assignment.interval.ms"
    assert await desk.alter("g", name, "2000") is ErrorCode.NONE
    first = await desk.beat("g", "a", 0)
    assert len(first.assignment.topic_partitions[0].partitions) == 2
    second = await desk.beat("g", "b", 0)
    assert not second.assignment.topic_partitions
    assert second.heartbeat_interval_ms <= 2_000
    await asyncio.sleep(2)
    told = await desk.beat("g", "a", first.member_epoch)
    assert len(told.assignment.topic_partitions[0].partitions) == 1


@run_with(play)
async def test_group_configs_survive_a_restart(desk: Desk) -> None:
    assert await desk.alter("g", "consumer.heartbeat.interval.ms", "700") is ErrorCode.NONE
    host = desk.nodes.hosts[1]
    host.cut_power()
    assert await host.start()
    assert (await desk.beat("g", "m", 0)).heartbeat_interval_ms == 700


@run_with(play)
async def test_value_beyond_the_broker_bounds_is_refused_and_not_applied(desk: Desk) -> None:
    for name, value in (
        ("consumer.heartbeat.interval.ms", "499"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("consumer.session.timeout.ms", "999"),
        ("consumer.session.timeout.ms", "5000"),
        ("consumer.assignment.interval.ms", "-1"),
        ("consumer.sessions.timeout.ms", "9000"),
    ):
        assert await desk.alter("g", name, value) is ErrorCode.INVALID_CONFIG, (name, value)
    assert (await desk.beat("g", "m", 0)).heartbeat_interval_ms == 5_000
