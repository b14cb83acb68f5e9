"""Backlogs above their maximum: when producers are held up, and when they go on."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.replication.partition import Partition
from penstock.cluster.storage.write_pressure import Policy, WritePressure
from penstock.coordinator.queues.backlog_limits import BacklogLimits, bytes_since
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node
from tests.unit.coordinator.queues.test_ack_retention import RetentionBench

RECORDS = 10


class Watched(RetentionBench):
    """A topic with ten records and a maximum of about half their size."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.backlogs = BacklogLimits(
            node.ctx.queue.queues, node.ctx.queue.positions, node.ctx.configs
        )

    @property
    def pressure(self) -> WritePressure:
        return self.node.ctx.partitions.pressure

    async def is_full(self) -> bool:
        await self.backlogs.run_round()
        return self.pressure.full("t", 0) is not None


def play(scene: Callable[[Watched], Awaitable[None]], **configs: str) -> None:
    async def test(node: Node) -> None:
        watched = Watched(node)
        await watched.start(**{"max_backlog_bytes": "400", **configs})
        await scene(watched)

    on_node(test, configs=CONFIGS)


@run_with(play)
async def test_unread_records_are_all_backlog(watched: Watched) -> None:
    assert watched.partition.log.size_bytes > 400
    assert await watched.is_full()
    full = watched.pressure.full("t", 0)
    assert full is not None
    assert full.policy is Policy.BLOCK
    assert "max.backlog.bytes allows 400" in full.reason


@run_with(play, max_backlog_policy="reject")
async def test_backlog_policy_is_that_of_the_topic(watched: Watched) -> None:
    assert await watched.is_full()
    full = watched.pressure.full("t", 0)
    assert full is not None
    assert full.policy is Policy.REJECT


@run_with(play)
async def test_producers_continue_when_the_slowest_group_has_caught_up(watched: Watched) -> None:
    await watched.commit("fast", RECORDS)
    await watched.commit("slow", 1)
    assert await watched.is_full()
    await watched.commit("slow", 8)
    assert not await watched.is_full()
    assert not watched.pressure.is_on


@run_with(play)
async def test_share_group_backlog_starts_at_its_first_unfinished_record(watched: Watched) -> None:
    await watched.finish("workers", (0, 1), (5, 9))
    assert await watched.is_full()
    await watched.finish("rest", (0, 9))
    assert await watched.is_full()


@run_with(play, max_backlog_bytes="-1")
async def test_topic_without_a_maximum_is_never_full(watched: Watched) -> None:
    assert not await watched.is_full()


@run_with(play)
async def test_deleted_topic_exerts_no_backpressure(watched: Watched) -> None:
    assert await watched.is_full()
    await watched.node.delete("t")
    assert not await watched.is_full()


@pytest.mark.parametrize("offset", range(RECORDS + 1))
@run_with(play)
async def test_bytes_since_an_offset_are_estimated_without_reading(
    watched: Watched, *, offset: int
) -> None:
    partition: Partition = watched.partition
    size = partition.log.size_bytes
    expected = size * (RECORDS - offset) / RECORDS
    assert bytes_since(partition.log, offset) == pytest.approx(expected, abs=size / RECORDS)
