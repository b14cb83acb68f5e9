"""Large answers: what the loop does at a stretch for them, that they are whole, and who waits.

Counted in calls of functions and in virtual time: no clock of a machine decides anything here.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.base.fair_scheduler import REST_SECONDS
from penstock.base.ports import Put
from penstock.cluster.access import acls
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.store_keys import PartitionRecord, TopicRecord
from penstock.cluster.metadata.topics import NewTopic
from penstock.security.acls import AclEntry, Resource
from penstock.wire.messages import RESPONSES
from penstock.wire.messages.acls import DescribeAclsRequest
from penstock.wire.messages.classic_groups import FindCoordinatorRequest
from penstock.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.transactions import InitProducerIdRequest, ListTransactionsRequest
from tests.run_with import run_with
from tests.unit.broker.server.world import Peer, World, decoded, framed, in_world, versions_frame
from tests.unit.gateway.http.granted_permissions import AllowAll
from tests.unit.slices import Slices

ELSEWMANY = 9
TOPICS = [f"many-{at:03}" for at in range(60)]
CALLS_AT_A_STRETCH = 6_000
"""A hundred rows take half as many. All at once, these answers take 50,000 to 500,000."""

ALL = MetadataRequest(topics=None)
NAMED = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ["wide", *TOPICS]])
WIDE = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
PAGE = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2_000)
PAGE_OF_ONE = DescribeTopicPartitionsRequest(
    topics=[DescribeTopicPartitionsTopicRequest(name="wide")], response_partition_limit=2_000
)
CONFIGS = DescribeConfigsRequest(
    resources=[
        DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        for name in TOPICS
    ],
    include_synonyms=True,
    include_documentation=True,
)


async def fill(world: World) -> None:
    """Many topics, and a wide one, that another node leads: nothing of them is on this disk."""
    ctx = world.node.ctx
    puts = []
    for name in ["wide", *TOPICS]:
        plan = topics.plan_topic(NewTopic(name, 1), ctx.image, ctx.configs, ctx.random)
        there = PartitionRecord((ELSEWMANY,), ELSEWMANY, (ELSEWMANY,))
        partitions = (there,) * (2_000 if name == "wide" else 10)
        record = TopicRecord(plan.record.id, partitions, plan.record.configs)
        puts.append(Put(store_keys.topic_key(name), store_keys.encode(record)))
    revision = await ctx.admin.store.commit([], puts)
    assert revision is not None
    await ctx.reached(revision)


async def ask(peer: Peer, request: Any, version: int) -> Any:
    asked = len(peer.frames)
    peer.send(framed(request, version, asked + 1))
    reply = (await peer.replies(asked + 1))[asked]
    return decoded(reply, RESPONSES[type(request).WIRE.key], version)


MANY = 300
GROUPS = [f"group-{at:03}" for at in range(200)]


async def fill_coordinators(world: World) -> None:
    """Commits offsets of one group in all of a topic, and of many groups; begins transactions;
    adds ACLs."""
    ctx, peer = world.node.ctx, await world.connect()
    ctx.authorizer = Guarded()
    for key_type, key in ((0, "g"), (1, "txn")):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        while (await ask(peer, request, 4)).coordinators[0].error_code:
            await asyncio.sleep(0.1)
    for group, count in (("g", 2_000), *((group, 1) for group in GROUPS)):
        rows = [
            OffsetCommitRequestPartition(
                partition_index=at, committed_offset=at, committed_metadata=""
            )
            for at in range(count)
        ]
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="wide", partitions=rows)],
        )
        while (await ask(peer, commit, 8)).topics[0].partitions[0].error_code:
            await asyncio.sleep(0.1)
    for name in [f"txn-{at}" for at in range(MANY)]:
        begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        while (await ask(peer, begin, 2)).error_code:
            await asyncio.sleep(0.1)
    entry = AclEntry("User:alice", "*", 3, 3)
    for at in range(MANY):
        resource = Resource(2, f"acl-{at}", 3)
        await ctx.reached(await acls.add(ctx.admin.store, ctx.image, resource, [entry]))


class Guarded(AllowAll):
    """ACLs apply, and allow everything."""

    is_on = True


def fetched(*groups: str, topics: Any = None) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups]
    )


NAMED_OFFSETS = [OffsetFetchRequestTopics(name="wide", partition_indexes=list(range(2_000)))]
COORDINATED: dict[str, tuple[Any, int, Callable[[Any], int], int]] = {
    "offsets of a group": (
        fetched("g"), 9, lambda found: len(found.groups[0].topics[0].partitions), 2_000,
    ),
    "named offsets of a group": (
        fetched("g", topics=NAMED_OFFSETS), 9,
        lambda found: len(found.groups[0].topics[0].partitions), 2_000,
    ),
    "offsets of many groups": (
        fetched(*GROUPS), 9,
        lambda found: sum(len(row.topics) for row in found.groups), len(GROUPS),
    ),
    "offsets of a group, oldest": (
        OffsetFetchRequest(group_id="g", topics=None), 2,
        lambda found: len(found.topics[0].partitions), 2_000,
    ),
    "offsets of logs": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="wide",
                    partitions=[
                        ListOffsetsPartition(partition_index=at, timestamp=-1)
                        for at in range(600)
                    ],
                )
            ],
        ),
        7, lambda found: len(found.topics[0].partitions), 600,
    ),
    "log directories": (
        DescribeLogDirsRequest(topics=None), 4,
        lambda found: max(len(topic.partitions) for topic in found.results[0].topics), 1_000,
    ),
    "ACLs": (
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        2, lambda found: len(found.resources), MANY,
    ),
    "transactions": (
        ListTransactionsRequest(), 0, lambda found: len(found.transaction_states), MANY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COORDINATED)
@run_with(in_world)
async def test_large_answer_of_coordinators_is_built_in_steps(world: World, *, case: str) -> None:
    request, version, count, expected = COORDINATED[case]

    await fill(world)
    if case == "log directories":
        await world.node.create("here", expected)
    else:
        await fill_coordinators(world)
    peer = await world.connect()
    asked_s = world.loop.time()
    with Slices() as slices:
        peer.send(framed(request, version, 1))
        [reply] = await peer.replies(1)
    assert count(decoded(reply, RESPONSES[type(request).WIRE.key], version)) == expected
    assert slices.longest <= CALLS_AT_A_STRETCH
    assert world.loop.time() - asked_s >= REST_SECONDS, "other requests had the loop"


CASES = {
    "all topics": (ALL, 12),
    "all topics, oldest": (ALL, 1),
    "named topics": (NAMED, 12),
    "one wide topic": (WIDE, 12),
    "a page": (PAGE, 0),
    "a page of one": (PAGE_OF_ONE, 0),
    "configs": (CONFIGS, 4),
}


@pytest.mark.parametrize("case", CASES)
@run_with(in_world)
async def test_large_response_is_encoded_in_small_steps(world: World, *, case: str) -> None:
    request, version = CASES[case]

    await fill(world)
    peer = await world.connect()
    asked_s = world.loop.time()
    with Slices() as slices:
        peer.send(framed(request, version, 1))
        await peer.replies(1)
    assert slices.longest <= CALLS_AT_A_STRETCH
    assert world.loop.time() - asked_s >= 2 * REST_SECONDS, "other tasks had the event loop"


@run_with(in_world)
async def test_responses_encoded_in_steps_are_complete(world: World) -> None:
    await fill(world)
    peer = await world.connect()
    answer: MetadataResponse = await ask(peer, ALL, 12)
    assert [row.name for row in answer.topics] == list(world.node.ctx.image.topics)
    assert {row.name: len(row.partitions) for row in answer.topics} == {
        "t": 2,
        "wide": 2_000,
        **dict.fromkeys(TOPICS, 10),
    }
    assert [row.partition_index for row in answer.topics[1].partitions] == list(range(2_000))
    named: MetadataResponse = await ask(peer, NAMED, 12)
    assert named.topics == answer.topics[1:]
    assert (await ask(peer, WIDE, 12)).topics == answer.topics[1:2]
    configs = await ask(peer, CONFIGS, 4)
    assert [row.resource_name for row in configs.results] == TOPICS
    assert len({len(row.configs) for row in configs.results}) == 1
    page = await ask(peer, PAGE, 0)
    assert sum(len(row.partitions) for row in page.topics) == 2_000


@run_with(in_world)
async def test_cached_response_is_reused_until_the_image_changes(
    world: World,
) -> None:
    await fill(world)
    peers = [await world.connect() for _ in range(5)]
    first, *rest = await asyncio.gather(*(ask(peer, ALL, 12) for peer in peers))
    assert [other == first for other in rest] == [True] * 4
    assert world.node.ctx.metadata.listings._begun == 1, "made once for all who asked meanwhile"
    assert await ask(peers[0], ALL, 12) == first
    assert world.node.ctx.metadata.listings._begun == 1
    await world.node.create("new", 1)
    assert "new" in {row.name for row in (await ask(peers[0], ALL, 12)).topics}
    assert world.node.ctx.metadata.listings._begun == 2
    await ask(peers[0], ALL, 11)
    assert world.node.ctx.metadata.listings._begun == 3, "another version is another answer"


@run_with(in_world)
async def test_small_requests_are_answered_among_large_responses(world: World) -> None:
    await fill(world)
    crowd = [await world.connect("crowd") for _ in range(20)]
    other = await world.connect("other")
    for number, peer in enumerate(crowd):
        request, version = (CONFIGS, 4) if number % 2 else (NAMED, 12)
        peer.send(framed(request, version, 1))
    with Slices() as slices:
        for count in itertools.count(1):
            other.send(versions_frame(count))
            await other.replies(count)
            if all(len(peer.frames) == 1 for peer in crowd):
                break
    assert slices.longest <= CALLS_AT_A_STRETCH
    assert count > 100, "they were answered one after the other"


@run_with(in_world)
async def test_disconnected_client_does_not_cancel_a_shared_response(world: World) -> None:
    await fill(world)
    first, second = await world.connect(), await world.connect()
    for peer in (first, second):
        peer.send(framed(ALL, 12, 1))
    await asyncio.sleep(5 * REST_SECONDS)
    first.transport.abort()
    [reply] = await second.replies(1)
    assert len(decoded(reply, MetadataResponse, 12).topics) == len(TOPICS) + 2
