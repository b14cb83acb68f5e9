"""Retention `ack`: records that every group has finished are removed, and no others."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from penstock.broker.api.groups.offsets import offset_commit
from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.housekeeping import Housekeeping
from penstock.coordinator.groups_by_topic import GroupPosition, PositionKind
from penstock.coordinator.queues.ack_retention import AckRetention, needing
from penstock.coordinator.queues.open_queue import OpenQueue
from penstock.state.queues.delivery import Delivery, DeliveryOutcome
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.run_with import run_with
from tests.unit.coordinator.queueing import (
    CONFIGS,
    Node,
    change,
    configure,
    key_of,
    on_node,
    take,
)


class RetentionBench:
    """A topic with retention `ack` and ten records, and its keeper."""

    def __init__(self, node: Node) -> None:
        self.node = node
        ctx = node.ctx
        self.housekeeping = Housekeeping(
            ctx.partitions, ctx.configs, ctx.admin.directory.disk, ctx.workers, ctx.clock, "data"
        )
        self.keeper = AckRetention(
            ctx.queue.queues, ctx.queue.positions, ctx.configs, self.housekeeping, ctx.clock
        )

    @property
    def partition(self) -> Partition:
        found = self.node.ctx.partitions.get("t", 0)
        assert found is not None
        return found

    async def start(self, **configs: str) -> None:
        # The records are old: without this, their age would have them deleted as well.
        await self.node.create("t", 1, retention_mode="ack", retention_ms="-1", **configs)
        await self.node.produce("t", 10)
        await self.node.ctx.group.groups.ensure()
        await self.node.ctx.queue.queues.keeping.ensure()

    async def queue(self, group: str) -> OpenQueue:
        await configure(self.node, group)
        return await self.node.ctx.queue.queues.open(await key_of(self.node, group))

    async def finish(self, group: str, *runs: tuple[int, int]) -> None:
        queue = await self.queue(group)
        await take(queue, group)
        for first, last in runs:
            await change(queue, partial(_accept, group, first, last))

    async def commit(self, group: str, offset: int) -> None:
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        reply = await self.node.ask(offset_commit, 9, request)
        assert reply.topics[0].partitions[0].error_code == 0

    async def start_after_a_look(self) -> int:
        await self.keeper.run_round()
        return self.partition.log.start_offset


def _accept(group: str, first: int, last: int, machine: Delivery, now_ms: int) -> DeliveryOutcome:
    return machine.accept(group, first, last, now_ms)


def play(scene: Callable[[RetentionBench], Awaitable[None]], **configs: str) -> None:
    async def test(node: Node) -> None:
        bench = RetentionBench(node)
        await bench.start(**configs)
        await scene(bench)

    on_node(test, configs=CONFIGS)


@run_with(play)
async def test_topic_without_group_positions_is_kept(bench: RetentionBench) -> None:
    assert await bench.start_after_a_look() == 0


@run_with(play)
async def test_records_finished_by_the_slowest_group_are_removed(bench: RetentionBench) -> None:
    await bench.finish("fast", (0, 9))
    await bench.finish("slow", (0, 3), (6, 7))
    assert await bench.start_after_a_look() == 4
    assert bench.keeper.records_deleted == 4
    await change(await bench.queue("slow"), lambda m, now: m.accept("slow", 4, 5, now))
    assert await bench.start_after_a_look() == 8


@run_with(play)
async def test_committed_offsets_of_consumer_groups_count(bench: RetentionBench) -> None:
    await bench.finish("fast", (0, 9))
    await bench.commit("plain", 6)
    assert await bench.start_after_a_look() == 6


@run_with(play, retention_ack_groups="fast")
async def test_only_listed_groups_count_if_any_are_listed(bench: RetentionBench) -> None:
    await bench.finish("fast", (0, 4))
    await bench.commit("plain", 2)
    assert await bench.start_after_a_look() == 5


@run_with(play, retention_ack_groups="fast,late")
async def test_listed_group_without_a_position_keeps_everything(bench: RetentionBench) -> None:
    await bench.finish("fast", (0, 9))
    assert await bench.start_after_a_look() == 0
    await bench.commit("late", 3)
    assert await bench.start_after_a_look() == 3


@run_with(play)
async def test_group_with_a_closed_queue_still_counts(bench: RetentionBench) -> None:
    await bench.finish("fast", (0, 9))
    await bench.finish("asleep", (0, 1))
    bench.node.ctx.queue.queues.close()
    assert await bench.start_after_a_look() == 2


@run_with(play)
async def test_state_that_is_not_persisted_does_not_count(bench: RetentionBench) -> None:
    queue = await bench.queue("g")
    await take(queue, "g")
    queue.change(lambda m, now: m.accept("g", 0, 9, now), lambda refused: None)
    # It is decided, and may yet be lost with the node.
    assert queue.machine.kept.start == 10
    assert queue.kept_start == 0
    while queue.kept_start == 0:
        await asyncio.sleep(0.001)
    assert queue.kept_start == 10


@run_with(play)
async def test_record_pending_dead_lettering_is_kept(bench: RetentionBench) -> None:
    queue = await bench.queue("g")
    await take(queue, "g")
    await change(queue, lambda m, now: m.reject("g", 0, 0, now))
    await change(queue, lambda m, now: m.accept("g", 1, 9, now))
    if queue.machine.kept.archived:
        assert await bench.start_after_a_look() == 0
    while queue.machine.kept.archived or queue.kept_start < 10:
        await asyncio.sleep(0.01)
    assert await bench.start_after_a_look() == 10


@run_with(play)
async def test_records_are_kept_while_a_shard_of_positions_is_unavailable(
    bench: RetentionBench,
) -> None:
    await bench.finish("fast", (0, 9))
    host = bench.node.ctx.group.groups.host
    index, runtime = next(iter(host.runtimes.items()))
    del host.runtimes[index]
    assert await bench.start_after_a_look() == 0
    host.runtimes[index] = runtime
    assert await bench.start_after_a_look() == 10


@run_with(on_node, configs=CONFIGS)
async def test_other_topics_are_left_alone(node: Node) -> None:
    bench = RetentionBench(node)
    await node.create("t", 1)
    await node.produce("t", 10)
    await node.ctx.group.groups.ensure()
    await bench.finish("fast", (0, 9))
    assert await bench.start_after_a_look() == 0


@run_with(play)
async def test_disk_space_is_freed_when_all_records_are_finished(bench: RetentionBench) -> None:
    await bench.finish("g", (0, 9))
    assert await bench.start_after_a_look() == 10
    # The last segment was rolled, and goes once its successor is durable.
    await asyncio.sleep(1)
    bench.housekeeping.retain(bench.partition, 0)
    assert bench.partition.log.size_bytes == 0
    assert bench.partition.log.end_offset == 10


SHARE = GroupPosition(PositionKind.SHARE, "a", "t", 0)
PLAIN = GroupPosition(PositionKind.CONSUMER, "b", "t", 0, 5)
CURSOR = GroupPosition(PositionKind.CONSUMER, "penstock-redrive.t", "t", 0, 5)


@pytest.mark.parametrize(
    ("there", "named", "counted"),
    [
        ([], (), []),
        ([SHARE, PLAIN], (), [SHARE, PLAIN]),
        ([SHARE, CURSOR], (), [SHARE]),
        ([SHARE, PLAIN], ("a",), [SHARE]),
        ([SHARE, PLAIN], ("a", "c"), None),
        ([], ("a",), None),
    ],
)
def test_needed_positions_follow_the_listed_groups(
    there: list[GroupPosition], named: tuple[str, ...], counted: list[GroupPosition] | None
) -> None:
    assert needing(there, named) == counted
