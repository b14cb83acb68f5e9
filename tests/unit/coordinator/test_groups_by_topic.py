"""Groups by topic: listings of one node, and of the cluster only if every shard answered."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.groups_by_topic import (
    GroupPosition,
    Listing,
    PositionKind,
    listing_of,
    response_of,
)
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node, opened


@run_with(on_node, configs=CONFIGS)
async def test_share_groups_are_listed_by_topic(node: Node) -> None:
    await opened(node, 2, group="g")
    await opened(node, group="h")
    positions = node.ctx.queue.positions
    found = await positions.here(["t"])
    assert sorted(found.positions) == [
        GroupPosition(PositionKind.SHARE, "g", "t", 0),
        GroupPosition(PositionKind.SHARE, "h", "t", 0),
    ]
    assert found.state_shards == [0, 1]
    assert (await positions.here(["other"])).positions == []
    assert (await positions.here(None)).positions == found.positions


@run_with(on_node, configs=CONFIGS)
async def test_complete_listing_needs_every_shard(node: Node) -> None:
    await opened(node, 2)
    await node.ctx.group.groups.ensure()
    assert len((await node.ctx.queue.positions.everywhere(["t"])).positions) == 1
    del node.ctx.queue.queues.keeping.host.runtimes[1]
    with pytest.raises(Refused) as refused:
        await node.ctx.queue.positions.everywhere(["t"])
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@run_with(on_node, configs=CONFIGS)
async def test_listing_without_groups_is_complete_and_empty(
    node: Node,
) -> None:
    await node.create("t", 1)
    assert await node.ctx.queue.positions.everywhere(None) == Listing()


def test_listing_round_trips_over_the_wire() -> None:
    listing = Listing(
        [
            GroupPosition(PositionKind.SHARE, "g", "t", 3),
            GroupPosition(PositionKind.CONSUMER, "p", "t", 0, 42),
        ],
        [0, 1],
        [5],
    )
    assert listing_of(response_of(listing)) == listing
