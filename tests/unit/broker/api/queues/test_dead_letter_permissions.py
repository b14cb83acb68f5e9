"""Setting a dead-letter topic requires the permission to write to it."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.admin.configs import GROUP, TOPIC
from penstock.broker.api.admin.topics import create_topics
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.configs.config_changes import Op
from penstock.coordinator.queues.policy import GROUP_DEAD_LETTERS, TOPIC_DEAD_LETTERS
from penstock.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.admin.test_configs import alter, make, replace
from tests.unit.broker.api.harness import Node, on_node

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
KINDS = [(TOPIC, "mine", TOPIC_DEAD_LETTERS), (GROUP, "mine", GROUP_DEAD_LETTERS)]


async def name(node: Node, kind: int, of: str, config: str, target: str) -> int:
    code, _ = await alter(node, kind, of, [(config, Op.SET, target)], check=False)
    again, _ = await replace(node, kind, of, {config: target}, check=False)
    assert again == code
    return code


@pytest.mark.parametrize(("kind", "of", "config"), KINDS)
@run_with(on_node)
async def test_dead_letter_topic_requires_the_write_permission(
    node: Node, *, kind: int, of: str, config: str
) -> None:
    await make(node, "mine")
    await make(node, "theirs")
    node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "theirs")
    assert await name(node, kind, of, config, "theirs") == DENIED
    assert await name(node, kind, of, config, "missing") == ErrorCode.NONE
    node.rights.deny(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    node.rights.deny(Operation.CREATE, ResourceType.TOPIC, "not-made-yet")
    assert await name(node, kind, of, config, "not-made-yet") == DENIED


@pytest.mark.parametrize(("kind", "of", "config"), KINDS)
@pytest.mark.parametrize("target", ["__schemas", "__consumer_offsets", "__audit", "no name"])
@run_with(on_node)
async def test_internal_topic_is_refused_as_dead_letter_topic(
    node: Node, *, kind: int, of: str, config: str, target: str
) -> None:
    await make(node, "mine")
    assert await name(node, kind, of, config, target) == ErrorCode.INVALID_CONFIG


@run_with(on_node)
async def test_dead_letter_topic_set_earlier_may_stay(node: Node) -> None:
    await make(node, "mine", queue_dead_letter_topic="theirs")
    node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "theirs")
    await replace(node, TOPIC, "mine", {TOPIC_DEAD_LETTERS: "theirs", "retention.ms": "77"})
    await alter(node, TOPIC, "mine", [(TOPIC_DEAD_LETTERS, Op.DELETE, None)])


@pytest.mark.parametrize(
    ("target", "code"), [("theirs", DENIED), ("__schemas", ErrorCode.INVALID_CONFIG)]
)
@run_with(on_node)
async def test_dead_letter_topic_of_a_new_topic_requires_the_permission(
    node: Node, *, target: str, code: ErrorCode
) -> None:
    node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "theirs")
    wanted = CreatableTopic(
        name="mine",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=TOPIC_DEAD_LETTERS, value=target)],
    )
    answer = await node.ask(create_topics, 7, CreateTopicsRequest(topics=[wanted]))
    assert answer.topics[0].error_code == code
    assert "mine" not in node.ctx.image.topics
