"""Metadata and DescribeTopicPartitions: every way to ask, and every row that is an error."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.broker.api.data.metadata import NOT_ASKED, describe_topic_partitions, metadata
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import NODE, Client, Node, on_node

VERSIONS = range(14)


async def make(node: Node, name: str, partitions: int = 1) -> TopicId:
    ctx = node.ctx
    plan = plan_topic(NewTopic(name, partitions), ctx.image, ctx.configs, ctx.random)
    await ctx.reached(await create_topic(ctx.admin.store, plan))
    return plan.id


def request(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )


def by_id(*ids: TopicId) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=key) for key in ids])


@pytest.mark.parametrize("listening", store_keys.EVERYWHERE)
@run_with(on_node)
async def test_wildcard_listener_is_advertised_with_the_client_address(
    node: Node, *, listening: str
) -> None:
    record = store_keys.BrokerRecord(NODE, listening, 9092)
    await node.ctx.reached(await node.ctx.metadata.membership.register(record))
    answer: MetadataResponse = await node.ask(metadata, 12, request())
    assert [(one.host, one.port) for one in answer.brokers] == [(Client.local_host, 9092)]


@pytest.mark.parametrize("version", VERSIONS)
@run_with(on_node)
async def test_cluster_and_topics_are_returned_in_every_version(
    node: Node, *, version: int
) -> None:
    topic_id = await make(node, "t", 2)
    asked = request() if version == 0 else MetadataRequest(topics=None)
    answer: MetadataResponse = await node.ask(metadata, version, asked)
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "localhost", 9092)
    [topic] = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, "t")
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1), (1, 1)]
    assert list(topic.partitions[0].replica_nodes) == [1]
    assert list(topic.partitions[0].isr_nodes) == [1]
    if version >= 1:
        assert (answer.controller_id, broker.rack) == (1, "r1")
    if version >= 2:
        assert answer.cluster_id == "the-cluster"
    if version >= 7:
        assert topic.partitions[0].leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == topic_id


@run_with(on_node)
async def test_empty_topic_list_returns_no_topics(node: Node) -> None:
    await make(node, "t")
    answer = await node.ask(metadata, 1, request())
    assert list(answer.topics) == []
    assert len(answer.brokers) == 1


@run_with(on_node, configs={"num.partitions": "3"})
async def test_missing_topic_is_created_when_client_and_broker_allow_it(node: Node) -> None:
    answer = await node.ask(metadata, 12, request("new", create=True))
    [topic] = answer.topics
    assert topic.error_code == ErrorCode.NONE
    assert len(topic.partitions) == 3
    assert node.ctx.partitions.get("new", 2) is not None


@run_with(on_node)
async def test_versions_before_4_always_create(node: Node) -> None:
    answer = await node.ask(metadata, 3, request("new"))
    assert answer.topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("configs", "create"), [({"auto.create.topics.enable": "false"}, True), ({}, False)]
)
@run_with(on_node, fixtures=["configs"])
async def test_missing_topic_is_unknown_when_client_or_broker_forbids_creation(
    node: Node, *, create: bool
) -> None:
    answer = await node.ask(metadata, 12, request("new", create=create))
    [topic] = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")
    assert node.ctx.image.topics == {}


@run_with(on_node)
async def test_invalid_names_are_never_created(node: Node) -> None:
    await make(node, "a_b")
    names = ("no/slash", "", "x" * 250, "a.b", "good", "good")
    answer = await node.ask(metadata, 12, request(*names, create=True))
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "no/slash": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a.b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "good": ErrorCode.NONE,
    }
    assert sorted(node.ctx.image.topics) == ["a_b", "good"]


@run_with(on_node, configs={"default.replication.factor": "2"})
async def test_creation_that_cannot_be_placed_returns_the_reason(node: Node) -> None:
    answer = await node.ask(metadata, 12, request("t", create=True))
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


@run_with(on_node, configs={"num.partitions": "1000"})
async def test_automatic_creation_limits_the_partitions_of_a_request(node: Node) -> None:
    answer = await node.ask(metadata, 12, request("a", "b", "c", create=True))
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@run_with(on_node)
async def test_topics_are_found_by_id(node: Node) -> None:
    topic_id = await make(node, "t")
    strange = TopicId(b"?" * 16)
    answer = await node.ask(metadata, 12, by_id(topic_id, strange))
    found, missing = answer.topics
    assert (found.name, found.topic_id, found.error_code) == ("t", topic_id, 0)
    assert (missing.name, missing.topic_id) == (None, strange)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
@run_with(on_node)
async def test_topic_ids_are_refused_before_version_12(node: Node, *, version: int) -> None:
    topic_id = await make(node, "t")
    answer = await node.ask(metadata, version, by_id(topic_id))
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]


@run_with(on_node)
async def test_topic_without_describe_permission_is_hidden(node: Node) -> None:
    secret = await make(node, "secret")
    await make(node, "open")
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    everything = await node.ask(metadata, 12, MetadataRequest(topics=None))
    assert [topic.name for topic in everything.topics] == ["open"]
    named = await node.ask(metadata, 12, request("secret", "nothing"))
    assert [(t.name, t.error_code, t.topic_id) for t in named.topics] == [
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_TOPIC_ID),
        ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC_ID),
    ]
    hidden = await node.ask(metadata, 12, by_id(secret))
    assert hidden.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert hidden.topics[0].name is None


@run_with(on_node)
async def test_automatic_creation_requires_the_permission(node: Node) -> None:
    node.rights.deny(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    node.rights.deny(Operation.CREATE, ResourceType.TOPIC, "mine")
    answer = await node.ask(metadata, 12, request("mine", "yours", create=True))
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NONE,
    ]
    assert list(node.ctx.image.topics) == ["yours"]


@run_with(on_node)
async def test_authorized_operations_are_returned_on_request(node: Node) -> None:
    await make(node, "t")
    node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "t")
    asked = MetadataRequest(
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = await node.ask(metadata, 8, asked)
    rights = answer.topics[0].topic_authorized_operations
    assert rights & 1 << Operation.READ
    assert not rights & 1 << Operation.WRITE
    assert answer.cluster_authorized_operations & 1 << Operation.ALTER
    silent = await node.ask(metadata, 8, MetadataRequest(topics=None))
    assert silent.topics[0].topic_authorized_operations == NOT_ASKED
    assert silent.cluster_authorized_operations == NOT_ASKED
    node.rights.deny(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    answer = await node.ask(metadata, 8, asked)
    assert answer.cluster_authorized_operations == 0


@run_with(on_node)
async def test_partition_of_a_dead_leader_has_none(node: Node) -> None:
    topic_id = await make(node, "t")
    record = PartitionRecord(replicas=(9, 1), leader=9, isr=(9,), leader_epoch=3, elr=(1,))
    await node.put(store_keys.partition_key(topic_id, 0), record)
    answer = await node.ask(metadata, 12, request("t"))
    [partition] = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.leader_epoch) == (-1, 3)
    assert list(partition.offline_replicas) == [9]
    described = await node.ask(describe_topic_partitions, 0, pages("t"))
    [partition] = described.topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert list(partition.eligible_leader_replicas) == [1]
    assert list(partition.offline_replicas) == [9]


# DescribeTopicPartitions.


def pages(
    *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1])
        if cursor
        else None,
    )


def shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]


@run_with(on_node)
async def test_topics_are_described_in_name_order(node: Node) -> None:
    for name in ("c", "a", "b"):
        await make(node, name)
    answer = await node.ask(describe_topic_partitions, 0, pages())
    assert shown(answer) == [("a", [0]), ("b", [0]), ("c", [0])]
    assert answer.next_cursor is None
    assert answer.topics[0].topic_authorized_operations > 0


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7])
@run_with(on_node)
async def test_pages_return_every_partition_once(node: Node, *, limit: int) -> None:
    for name, count in (("a", 3), ("b", 1), ("c", 2)):
        await make(node, name, count)
    seen: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        asked = pages(limit=limit, cursor=cursor)
        answer = await node.ask(describe_topic_partitions, 0, asked)
        rows = [(name, index) for name, indexes in shown(answer) for index in indexes]
        assert len(rows) <= limit
        assert all(indexes for _, indexes in shown(answer))
        seen += rows
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


@run_with(on_node, configs={"max.request.partition.size.limit": "2"})
async def test_broker_page_limit_overrides_the_client_limit(node: Node) -> None:
    await make(node, "a", 5)
    answer = await node.ask(describe_topic_partitions, 0, pages(limit=2**31 - 1))
    assert shown(answer) == [("a", [0, 1])]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("a", 2)
    one = await node.ask(describe_topic_partitions, 0, pages(limit=-5))
    assert shown(one) == [("a", [0])]


@run_with(on_node)
async def test_undescribable_topic_is_an_error_in_its_row(node: Node) -> None:
    await make(node, "secret")
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    answer = await node.ask(describe_topic_partitions, 0, pages("secret", "gone", "b/d"))
    assert {row.name: row.error_code for row in answer.topics} == {
        "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert shown(await node.ask(describe_topic_partitions, 0, pages())) == []


@pytest.mark.parametrize(("names", "cursor"), [(("a",), ("b", 0)), (("a",), ("a", -1))])
@run_with(on_node)
async def test_invalid_cursor_is_refused(
    node: Node, *, names: tuple[str, ...], cursor: tuple[str, int]
) -> None:
    await make(node, "a")
    answer = await node.ask(describe_topic_partitions, 0, pages(*names, cursor=cursor))
    assert [row.error_code for row in answer.topics] == [ErrorCode.INVALID_REQUEST]


@run_with(on_node)
async def test_cursor_beyond_the_last_partition_continues_with_the_next_topic(node: Node) -> None:
    await make(node, "a")
    await make(node, "b")
    answer = await node.ask(describe_topic_partitions, 0, pages(cursor=("a", 2**31 - 1)))
    assert shown(answer) == [("a", []), ("b", [0])]
