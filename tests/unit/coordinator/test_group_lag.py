"""Gauges of the lag of consumer groups."""

import asyncio
from typing import cast

import pytest

from penstock.base import cooperative_yield
from penstock.broker.api.groups.offsets import offset_commit
from penstock.coordinator import group_lag
from penstock.coordinator.group_lag import Behind, GroupLag, GroupWatch
from penstock.coordinator.queues.queue_metrics import NAMES_MAX, OTHERS
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node
from tests.unit.gateway.http.web import Web

ALONE = CONFIGS | {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}


async def commit(node: Node, group: str, offsets: dict[int, int], topic: str = "t") -> None:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
    )
    reply = await node.ask(offset_commit, 9, request)
    assert all(row.error_code == 0 for row in reply.topics[0].partitions)


async def watched(node: Node) -> GroupWatch:
    watch = GroupWatch(node.around, node.ctx.group.groups)
    await watch.run_round()
    return watch


@run_with(on_node, configs=CONFIGS)
async def test_lag_is_reported_by_group_and_partition_largest_first(node: Node) -> None:
    await node.create("t", 3)
    await node.ctx.group.groups.ensure()
    await node.produce("t", 6, index=0, timestamp=5_000, step=100)
    await node.produce("t", 9, index=1, timestamp=7_000, step=100)
    await commit(node, "g", {0: 2, 1: 4, 2: 0})
    await commit(node, "h", {1: 9})
    watch = await watched(node)
    assert watch.partitions == [
        Behind("g", "t", 1, 4, 5, 7_400),
        Behind("g", "t", 0, 2, 4, 5_200),
    ]
    assert watch.groups == {("g", "t"): GroupLag(9, 5_200), ("h", "t"): GroupLag(0)}
    assert watch.groups["g", "t"].age_seconds(6_200) == 1.0
    await commit(node, "g", {0: 6, 1: 9})
    before_s = asyncio.get_running_loop().time()
    await asyncio.sleep(3)
    await watch.run_round()
    elapsed_s = asyncio.get_running_loop().time() - before_s
    assert watch.groups["g", "t"].trend == pytest.approx(-9 / elapsed_s, rel=0.1)
    assert watch.groups["h", "t"].trend == 0
    assert watch.partitions == []
    assert watch.groups["g", "t"] == GroupLag(0)


@pytest.mark.parametrize("kept_max", [NAMES_MAX + 2, group_lag.KEPT_MAX])
@run_with(on_node, configs=CONFIGS)
async def test_names_are_bounded_and_the_rest_is_summed(
    node: Node, *, monkeypatch: pytest.MonkeyPatch, kept_max: int
) -> None:
    monkeypatch.setattr(group_lag, "KEPT_MAX", kept_max)

    await node.create("t", 1)
    await node.ctx.group.groups.ensure()
    await node.produce("t", 2)
    last = NAMES_MAX + 4
    for at in range(NAMES_MAX + 5):
        await commit(node, f"g{at:03d}", {0: 0 if at == last else 1})
    watch = await watched(node)
    assert len(watch.partitions) == NAMES_MAX
    assert watch.partitions[0] == Behind(f"g{last}", "t", 0, 0, 2, 1_000)
    assert len(watch.groups) == NAMES_MAX + 1
    assert next(iter(watch.groups)) == (f"g{last}", "t")
    assert watch.groups[OTHERS, OTHERS].records == 5


@run_with(on_node, configs=CONFIGS)
async def test_lag_computation_yields_to_other_tasks(
    node: Node, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cooperative_yield, "HOLD_SECONDS", -1.0
    )  # The simulator's clock stands still.
    monkeypatch.setattr(group_lag, "STEP", 1)

    await node.create("t", 10)
    await node.ctx.group.groups.ensure()
    await node.produce("t", 1, index=0)
    await commit(node, "g", dict.fromkeys(range(10), 0))
    began_s = asyncio.get_running_loop().time()
    watch = await watched(node)
    rested_s = asyncio.get_running_loop().time() - began_s
    # Ten positions, and the one that is behind is dated.
    assert rested_s == pytest.approx(11 * group_lag.REST_SECONDS, rel=0.2)
    assert watch.groups == {("g", "t"): GroupLag(1, 1_000)}


@run_with(on_node, configs=CONFIGS)
async def test_deleted_topic_is_no_longer_reported(node: Node) -> None:
    await node.create("t", 1)
    await node.ctx.group.groups.ensure()
    await node.produce("t", 2)
    await commit(node, "g", {0: 1})
    await node.delete("t")
    watch = await watched(node)
    assert watch.groups == {}
    assert watch.partitions == []


@run_with(run, 1, time_max=3_600)
async def test_lag_of_remote_partitions_is_asked_of_their_leaders(loop: SimLoop) -> None:
    nodes = SimCluster(loop, 1, (1, 2), overrides=ALONE)
    await nodes.start()
    first, second = nodes.nodes()
    web = Web(cast("Node", first))
    made = {"name": "t", "partitions": 4, "replication_factor": 1}
    assert (await web.post("/topics", made)).status < 300
    messages = [{"payload": "v", "partition": at % 4} for at in range(8)]
    assert (await web.post("/topics/t/messages", {"messages": messages})).status < 300
    for at in range(4):
        position = {"group": "g", "topic": "t", "partition": at, "offset": 0}
        assert (await web.post("/offsets/commit", position)).status < 300
    led = [sum(p.topic == "t" for p in node.partitions.led()) for node in (first, second)]
    assert led == [2, 2]
    for node in (first, second):
        await node.watching.groups.run_round()
    told = [node.watching.groups for node in (first, second)]
    assert [sum(lag.records for lag in one.groups.values()) for one in told] in ([8, 0], [0, 8])
    behind = told[0].partitions or told[1].partitions
    assert sorted((one.partition, one.records) for one in behind) == [(at, 2) for at in range(4)]
    # The age is known where a replica is here, and unknown elsewhere.
    assert sum(one.oldest_ms >= 0 for one in behind) == 2
    nodes.close()
