"""CreateTopics, DeleteTopics and CreatePartitions: every version and every row."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.broker.api.admin.topics import create_partitions, create_topics, delete_topics
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

AUTHORIZED = (Operation, ResourceType)


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


async def create(node: Node, *topics: CreatableTopic, version: int = 7) -> dict[str, int]:
    answer: CreateTopicsResponse = await node.ask(
        create_topics, version, CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    )
    return {row.name: row.error_code for row in answer.topics}


# CreateTopics.


@pytest.mark.parametrize("version", range(2, 8))
@run_with(on_node)
async def test_topic_is_created_and_served(node: Node, *, version: int) -> None:
    asked = CreateTopicsRequest(
        topics=[topic("t", 3, retention_ms="5000")], timeout_ms=10_000, validate_only=False
    )
    answer = await node.ask(create_topics, version, asked)
    [row] = answer.topics
    assert (row.name, row.error_code, row.error_message) == ("t", ErrorCode.NONE, None)
    made = node.ctx.image.topics["t"]
    assert made.configs == {"retention.ms": "5000"}
    partition = node.ctx.partitions.get("t", 2)
    assert partition is not None
    assert partition.log.config.retention_ms == 5000
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (3, 1)
        configs = {config.name: config for config in row.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
            "5000",
            1,
        )
        assert configs["segment.bytes"].config_source == 5
    if version >= 7:
        assert row.topic_id == made.id


@run_with(on_node, configs={"num.partitions": "4"})
async def test_minus_one_means_the_broker_defaults(node: Node) -> None:
    assert await create(node, topic("t", -1, -1)) == {"t": ErrorCode.NONE}
    assert len(node.ctx.image.topics["t"].partitions) == 4


@run_with(on_node)
async def test_validation_only_creates_nothing(node: Node) -> None:
    asked = CreateTopicsRequest(topics=[topic("t"), topic("u", 0)], validate_only=True)
    answer = await node.ask(create_topics, 7, asked)
    assert [row.error_code for row in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
    ]
    assert node.ctx.image.topics == {}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (topic("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 3000), ErrorCode.POLICY_VIOLATION),
        (topic("t", 1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, -1, {0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", retention_msss="1"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms="x"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    ],
)
@run_with(on_node)
async def test_invalid_topic_is_refused_in_its_row_and_the_rest_created(
    node: Node, *, row: CreatableTopic, code: ErrorCode
) -> None:
    await create(node, topic("there"), topic("a.b"))
    assert await create(node, row, topic("fine")) == {row.name: code, "fine": ErrorCode.NONE}
    assert sorted(node.ctx.image.topics) == ["a.b", "fine", "there"]


@run_with(on_node)
async def test_repeated_name_is_refused(node: Node) -> None:
    assert await create(node, topic("t"), topic("t", 2)) == {"t": ErrorCode.INVALID_REQUEST}
    assert node.ctx.image.topics == {}


@run_with(on_node)
async def test_names_of_one_request_that_collide_are_refused(node: Node) -> None:
    assert await create(node, topic("a.b"), topic("a_b")) == {
        "a.b": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@run_with(on_node)
async def test_partition_limit_counts_all_topics_of_a_request(node: Node) -> None:
    asked = CreateTopicsRequest(topics=[topic("a", 1500), topic("b", 501)], validate_only=True)
    answer = await node.ask(create_topics, 7, asked)
    assert [row.error_code for row in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]


@run_with(on_node)
async def test_create_topics_limits_the_topics_of_a_request(node: Node) -> None:
    many = [topic(f"t{i}") for i in range(2001)]
    answer = await node.ask(create_topics, 7, CreateTopicsRequest(topics=many, validate_only=True))
    codes = [row.error_code for row in answer.topics]
    assert codes == [ErrorCode.NONE] * 2000 + [ErrorCode.POLICY_VIOLATION]


@run_with(on_node)
async def test_creation_requires_the_permission_on_cluster_or_topic(node: Node) -> None:
    node.rights.deny(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    node.rights.deny(Operation.CREATE, ResourceType.TOPIC, "no")
    assert await create(node, topic("no"), topic("yes")) == {
        "no": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "yes": ErrorCode.NONE,
    }


@run_with(on_node)
async def test_configs_of_a_created_topic_require_the_permission(node: Node) -> None:
    node.rights.deny(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "t")
    answer = await node.ask(create_topics, 7, CreateTopicsRequest(topics=[topic("t")]))
    [row] = answer.topics
    assert row.error_code == ErrorCode.NONE
    assert row.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (row.configs, row.num_partitions) == (None, -1)


@run_with(on_node)
async def test_slow_creation_times_out_and_the_topic_exists(node: Node) -> None:
    node.etcd.watch_delay_s = (30.0, 30.0)
    asked = CreateTopicsRequest(topics=[topic("t")], timeout_ms=100)
    answer = await node.ask(create_topics, 7, asked)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert await node.store.get("/topics/t") is not None


# DeleteTopics.


async def delete(node: Node, *names: str, version: int = 5) -> dict[str | None, int]:
    answer = await node.ask(
        delete_topics, version, DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
    )
    return {row.name: row.error_code for row in answer.responses}


@pytest.mark.parametrize("version", range(1, 6))
@run_with(on_node)
async def test_topic_is_deleted_by_name(node: Node, *, version: int) -> None:
    await create(node, topic("t"), topic("u"))
    assert await delete(node, "t", "gone", version=version) == {
        "t": ErrorCode.NONE,
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert list(node.ctx.image.topics) == ["u"]
    assert node.ctx.partitions.get("t", 0) is None


def states(*rows: tuple[str | None, TopicId]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in rows],
        timeout_ms=10_000,
    )


@run_with(on_node)
async def test_topic_is_deleted_by_name_or_by_id(node: Node) -> None:
    await create(node, topic("t"), topic("u"))
    t, u = node.ctx.image.topics["t"].id, node.ctx.image.topics["u"].id
    strange = TopicId(b"?" * 16)
    answer = await node.ask(
        delete_topics, 6, states((None, t), ("u", NO_TOPIC_ID), (None, strange))
    )
    assert [(row.name, row.topic_id, row.error_code) for row in answer.responses] == [
        ("t", t, ErrorCode.NONE),
        ("u", u, ErrorCode.NONE),
        (None, strange, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert node.ctx.image.topics == {}


@run_with(on_node)
async def test_row_must_name_one_topic_in_one_way(node: Node) -> None:
    await create(node, topic("t"), topic("u"))
    t = node.ctx.image.topics["t"].id
    asked = states(
        (None, NO_TOPIC_ID),
        ("t", t),
        ("u", NO_TOPIC_ID),
        ("u", NO_TOPIC_ID),
        (None, t),
        (None, t),
    )
    answer = await node.ask(delete_topics, 6, asked)
    assert [(row.error_code, row.error_message) for row in answer.responses] == [
        (ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
        (ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        (ErrorCode.INVALID_REQUEST, "Duplicate topic id."),
    ]
    assert sorted(node.ctx.image.topics) == ["t", "u"]


@run_with(on_node)
async def test_topic_named_by_name_and_by_id_is_refused_the_second_time(node: Node) -> None:
    await create(node, topic("t"))
    t = node.ctx.image.topics["t"].id
    answer = await node.ask(delete_topics, 6, states((None, t), ("t", NO_TOPIC_ID)))
    assert [row.error_code for row in answer.responses] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
@run_with(on_node, configs={"delete.topic.enable": "false"})
async def test_deletion_can_be_disabled(node: Node, *, version: int, code: ErrorCode) -> None:
    await create(node, topic("t"))
    assert await delete(node, "t", version=version) == {"t": code}
    assert "t" in node.ctx.image.topics


@run_with(on_node)
async def test_deletion_requires_the_permission_and_hides_topics(node: Node) -> None:
    await create(node, topic("t"), topic("hidden"))
    node.rights.deny(Operation.DELETE, ResourceType.TOPIC, "t")
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "hidden")
    node.rights.deny(Operation.DELETE, ResourceType.TOPIC, "hidden")
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "nothing")
    assert await delete(node, "t", "hidden", "nothing") == dict.fromkeys(
        ("t", "hidden", "nothing"), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    ids = [node.ctx.image.topics[name].id for name in ("t", "hidden")]
    answer = await node.ask(delete_topics, 6, states((None, ids[0]), (None, ids[1])))
    assert [(row.name, row.error_code) for row in answer.responses] == [
        ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert len(node.ctx.image.topics) == 2


@run_with(on_node)
async def test_name_can_be_reused_at_once(node: Node) -> None:
    await create(node, topic("t"))
    first = node.ctx.image.topics["t"].id
    await node.produce("t", 3)
    await delete(node, "t")
    assert await create(node, topic("t")) == {"t": ErrorCode.NONE}
    assert node.ctx.image.topics["t"].id != first
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 0


@run_with(on_node)
async def test_delete_topics_limits_the_topics_of_a_request(node: Node) -> None:
    await create(node, topic("last"))
    codes = await delete(node, *(f"t{i}" for i in range(2000)), "last")
    assert codes["last"] == ErrorCode.POLICY_VIOLATION
    assert codes["t1999"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "last" in node.ctx.image.topics


@run_with(on_node)
async def test_slow_partition_addition_times_out_and_stands(node: Node) -> None:
    await create(node, topic("t"))
    node.etcd.watch_delay_s = (30.0, 30.0)
    asked = CreatePartitionsRequest(topics=[growth("t", 2)], timeout_ms=100, validate_only=False)
    answer = await node.ask(create_partitions, 3, asked)
    assert answer.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT


@run_with(on_node)
async def test_slow_deletion_times_out_and_stands(node: Node) -> None:
    await create(node, topic("t"))
    node.etcd.watch_delay_s = (30.0, 30.0)
    asked = DeleteTopicsRequest(topic_names=["t"], timeout_ms=100)
    answer = await node.ask(delete_topics, 5, asked)
    assert answer.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert await node.store.get("/topics/t") is None


# CreatePartitions.


def growth(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    rows = None
    if assignments is not None:
        rows = [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows)


async def grow(
    node: Node, *rows: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> dict[str, int]:
    asked = CreatePartitionsRequest(topics=rows, timeout_ms=10_000, validate_only=validate_only)
    answer = await node.ask(create_partitions, version, asked)
    return {row.name: row.error_code for row in answer.results}


@pytest.mark.parametrize("version", range(4))
@run_with(on_node)
async def test_added_partitions_are_served(node: Node, *, version: int) -> None:
    await create(node, topic("t"), topic("u"))
    rows = [growth("t", 3), growth("u", 2, [[1]])]
    codes = await grow(node, *rows, version=version)
    assert codes == {"t": ErrorCode.NONE, "u": ErrorCode.NONE}
    assert node.ctx.partitions.get("t", 2) is not None
    assert node.ctx.partitions.get("u", 1) is not None


@run_with(on_node)
async def test_validation_only_adds_no_partitions(node: Node) -> None:
    await create(node, topic("t"))
    assert await grow(node, growth("t", 3), validate_only=True) == {"t": ErrorCode.NONE}
    assert len(node.ctx.image.topics["t"].partitions) == 1


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (growth("gone", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (growth("t", 2), ErrorCode.INVALID_PARTITIONS),
        (growth("t", 1), ErrorCode.INVALID_PARTITIONS),
        (growth("t", 3, [[1], [1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth("t", 3, [[5]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (growth("t", 5000), ErrorCode.POLICY_VIOLATION),
        (growth("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
    ],
)
@run_with(on_node)
async def test_invalid_partition_count_is_refused_in_its_row(
    node: Node, *, row: CreatePartitionsTopic, code: ErrorCode
) -> None:
    await create(node, topic("t", 2), topic("u"))
    assert await grow(node, growth("u", 2), row) == {"u": ErrorCode.NONE, row.name: code}


@run_with(on_node)
async def test_adding_partitions_requires_the_permission_and_unique_names(node: Node) -> None:
    await create(node, topic("t"), topic("u"))
    node.rights.deny(Operation.ALTER, ResourceType.TOPIC, "t")
    codes = await grow(node, growth("t", 2), growth("u", 2), growth("u", 3))
    assert codes == {
        "t": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "u": ErrorCode.INVALID_REQUEST,
    }
