"""Fetchers start and stop with the roles of partitions."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.replica_follower import FollowerStatus
from penstock.wire.messages.fetch import FetchRequest
from simulation.loop import SimLoop, run
from simulation.network import host_context
from tests.run_with import run_with
from tests.unit.cluster.replicas import NODE, ModelLeader, Node, content, replicate, until

Scenario = Callable[[Node, ModelLeader, ModelLeader], Awaitable[None]]


def with_two_leaders(scenario: Scenario, configs: dict[str, str] | None = None) -> None:
    async def main(loop: SimLoop) -> None:
        leaders = [ModelLeader(1), ModelLeader(2)]
        for leader in leaders:
            await loop.create_task(leader.start(), context=host_context(leader.host))
        node = Node(loop, configs=configs)
        node.meet(*leaders)
        await scenario(node, *leaders)
        await node.stop()

    run(main, 1, time_max=10_000.0)


@run_with(with_two_leaders)
async def test_every_leader_is_followed(node: Node, one: ModelLeader, two: ModelLeader) -> None:
    one.lead("a").append(b"1")
    two.lead("b").append(b"2", b"3")
    a, b = node.open("a", 1), node.open("b", 2)
    node.follow()
    await until(lambda: (a.log.durable_offset, b.log.durable_offset) == (1, 2))
    assert [fetcher.leader for fetcher in node.fetchers.fetchers] == [1, 2]
    assert node.fetchers.count(FollowerStatus.READY) == 2


@run_with(with_two_leaders)
async def test_new_leader_is_followed_at_once_instead_of_the_old(
    node: Node, one: ModelLeader, two: ModelLeader
) -> None:
    old, new = one.lead("t"), two.lead("t", epoch=2)
    for led in (old, new):
        led.append(b"same", epoch=1)
    copy = node.open("t", 1)
    node.follow()
    await until(lambda: copy.log.durable_offset == 1)
    old.append(b"never committed")
    one.stir()
    await until(lambda: copy.log.durable_offset == 2)
    new.append(b"committed")
    node.elect(copy, 2, 2)
    await until(
        lambda: copy.log.durable_offset == 2 and content(copy.log) == content(new.log),
        seconds=0.1,
    )
    assert [fetcher.leader for fetcher in node.fetchers.fetchers] == [2]
    one.append("t", b"by a leader that is none")
    await asyncio.sleep(1)
    assert content(copy.log) == content(new.log)


@run_with(replicate)
async def test_response_after_this_node_was_elected_is_not_appended(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t")
    led.append(b"a")
    copy = node.open("t", 1)
    node.follow()
    await until(lambda: copy.log.durable_offset == 1)
    leader.append("t", b"b")
    # Before the fetchers are notified.
    record = PartitionRecord((1, NODE), NODE, (NODE,), leader_epoch=2)
    copy.lead(record, 1, node.loop.time())
    await asyncio.sleep(1)
    assert copy.log.end_offset == 1
    node.follow()
    assert not node.fetchers.fetchers


@run_with(replicate)
async def test_partition_without_a_leader_is_not_followed(node: Node, leader: ModelLeader) -> None:
    copy = node.open("t", 1)
    node.elect(copy, -1, 3)
    assert not node.fetchers.fetchers
    leader.lead("t", epoch=4).append(b"a")
    node.elect(copy, 1, 4)
    await until(lambda: copy.log.durable_offset == 1)


@run_with(replicate)
async def test_removed_partition_is_no_longer_fetched(node: Node, leader: ModelLeader) -> None:
    leader.lead("t")
    kept = leader.lead("kept")
    node.open("t", 1)
    other = node.open("kept", 1)
    node.follow()
    await asyncio.sleep(0.2)
    node.held.pop(next(iter(node.held)))
    node.follow()
    kept.append(b"a")
    leader.stir()
    await until(lambda: other.log.durable_offset == 1)
    (session,) = leader.sessions.values()
    assert len(session) == 1


@run_with(run, 1, time_max=100.0)
async def test_bug_in_a_fetcher_ends_the_node(loop: SimLoop) -> None:
    leader = ModelLeader(1)
    await loop.create_task(leader.start(), context=host_context(leader.host))
    node = Node(loop)
    node.meet(leader)
    leader.lead("t").append(b"a")
    copy = node.open("t", 1)
    node.follow()
    copy.log.epochs = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        await asyncio.wait_for(node.task, 5)
    assert sum(isinstance(one, FetchRequest) for one in leader.seen) < 5
