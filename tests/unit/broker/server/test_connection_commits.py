"""Offset commits on one connection: none waits for another's disk, and what they say stays true."""

from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from penstock.wire.records import batches
from tests.run_with import run_with
from tests.unit.broker.server.world import World, correlation_of, decoded, framed, in_world

COMMIT_VERSION, FETCH_VERSION = 9, 9
FEW = {"offsets.topic.num.partitions": "1"}


def commit_frame(correlation_id: int, offset: int) -> bytes:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    return framed(request, COMMIT_VERSION, correlation_id)


def position_frame(correlation_id: int) -> bytes:
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    return framed(
        OffsetFetchRequest(groups=[group], require_stable=False), FETCH_VERSION, correlation_id
    )


def batch_sizes(world: World) -> list[int]:
    """Number of records in each batch of the internal topic."""
    partition = world.node.ctx.partitions.get("__consumer_offsets", 0)
    assert partition is not None
    span = partition.log.locate(0, 1_000_000, partition.log.end_offset)
    return [header.count for _, header in batches(memoryview(span.read()))] if span else []


@run_with(in_world, configs=FEW)
async def test_commits_that_arrive_together_are_written_together(world: World) -> None:
    await world.node.ctx.group.groups.ensure()
    peer = await world.connect()
    peer.send(*(commit_frame(number, 100 + number) for number in range(5)))
    frames = await peer.replies(5)
    assert [correlation_of(frame) for frame in frames] == [0, 1, 2, 3, 4]
    for frame in frames:
        answer = decoded(frame, OffsetCommitResponse, COMMIT_VERSION)
        assert answer.topics[0].partitions[0].error_code == 0
    assert batch_sizes(world) == [5]


@run_with(in_world, configs=FEW)
async def test_offset_fetch_sees_earlier_commits_of_its_connection(
    world: World,
) -> None:
    await world.node.ctx.group.groups.ensure()
    peer = await world.connect()
    peer.send(commit_frame(0, 100), commit_frame(1, 200), position_frame(2))
    frames = await peer.replies(3)
    assert [correlation_of(frame) for frame in frames] == [0, 1, 2]
    found = decoded(frames[2], OffsetFetchResponse, FETCH_VERSION)
    assert found.groups[0].topics[0].partitions[0].committed_offset == 200
