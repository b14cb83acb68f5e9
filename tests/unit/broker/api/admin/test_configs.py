"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections.abc import Sequence

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.admin.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.configs.config_changes import Op
from penstock.cluster.configs.config_types import ConfigSource, ConfigType
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def make(node: Node, name: str, **configs: str) -> None:
    ctx = node.ctx
    values = {key.replace("_", "."): value for key, value in configs.items()}
    plan = plan_topic(NewTopic(name, 1, configs=values), ctx.image, ctx.configs, ctx.random)
    await ctx.reached(await create_topic(ctx.admin.store, plan))


def resource(kind: int, name: str, keys: Sequence[str] | None = None) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)


def asking(
    *resources: DescribeConfigsResource, synonyms: bool = True, documentation: bool = False
) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=synonyms, include_documentation=documentation
    )


async def described(
    node: Node, kind: int, name: str, version: int = 4
) -> dict[str, DescribeConfigsResourceResult]:
    answer = await node.ask(describe_configs, version, asking(resource(kind, name)))
    [result] = answer.results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {row.name: row for row in result.configs}


def code_and_message(answer: object) -> tuple[int, str | None]:
    [result] = answer.results if hasattr(answer, "results") else answer.responses  # type: ignore[attr-defined]
    return result.error_code, result.error_message


# DescribeConfigs.


@pytest.mark.parametrize("version", range(1, 5))
@run_with(on_node, configs={"log.retention.hours": "3"})
async def test_topic_configs_report_their_source(node: Node, *, version: int) -> None:
    await make(node, "t", retention_ms="5000")
    rows = await described(node, TOPIC, "t", version)
    own = rows["retention.ms"]
    assert (own.value, own.config_source) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [
        ("retention.ms", "5000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.hours", "3", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]
    assert not own.read_only
    assert rows["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
    assert "internal.segment.bytes" not in rows
    if version >= 3:
        assert own.config_type == ConfigType.LONG


@run_with(on_node, configs={"log.retention.hours": "3"})
async def test_broker_value_is_a_static_value_of_the_topic(node: Node) -> None:
    await make(node, "t")
    row = (await described(node, TOPIC, "t"))["retention.ms"]
    assert (row.value, row.config_source) == ("10800000", ConfigSource.STATIC_BROKER_CONFIG)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["retention.ms", "nonsense"], ["retention.ms"]),
        (["internal.segment.bytes"], ["internal.segment.bytes"]),
    ],
)
@run_with(on_node)
async def test_describe_configs_returns_only_the_requested_names(
    node: Node, *, keys: list[str], names: list[str]
) -> None:
    await make(node, "t")
    answer = await node.ask(describe_configs, 4, asking(resource(TOPIC, "t", keys)))
    assert [row.name for row in answer.results[0].configs] == names


@run_with(on_node)
async def test_describe_configs_with_an_empty_name_list_returns_everything(node: Node) -> None:
    await make(node, "t")
    answer = await node.ask(describe_configs, 4, asking(resource(TOPIC, "t", [])))
    assert len(answer.results[0].configs) > 30


@run_with(on_node)
async def test_synonyms_and_documentation_are_returned_on_request(node: Node) -> None:
    await make(node, "t")
    quiet = await node.ask(describe_configs, 4, asking(resource(TOPIC, "t"), synonyms=False))
    assert all(not row.synonyms for row in quiet.results[0].configs)
    assert all(row.documentation is None for row in quiet.results[0].configs)
    wordy = await node.ask(describe_configs, 4, asking(resource(TOPIC, "t"), documentation=True))
    assert all(row.documentation for row in wordy.results[0].configs)


@run_with(on_node, configs={"ssl.key.password": "hunter2", "num.partitions": "6"})
async def test_broker_configs_hide_secrets_and_mark_read_only_ones(node: Node) -> None:
    rows = await described(node, BROKER, "1")
    secret = rows["ssl.key.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert secret.config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert [synonym.value for synonym in secret.synonyms] == [None]
    assert rows["num.partitions"].read_only
    assert not rows["message.max.bytes"].read_only
    assert rows["num.partitions"].value == "6"
    assert rows["log.retention.ms"].value == "604800000"


@run_with(on_node)
async def test_cluster_resource_lists_only_its_own_values(node: Node) -> None:
    assert await described(node, BROKER, "") == {}
    await alter(node, BROKER, "", [("message.max.bytes", Op.SET, "777")])
    rows = await described(node, BROKER, "")
    assert list(rows) == ["message.max.bytes"]
    assert rows["message.max.bytes"].config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


@run_with(on_node)
async def test_group_configs_default_to_broker_configs(node: Node) -> None:
    await alter(node, GROUP, "g", [("share.auto.offset.reset", Op.SET, "earliest")])
    rows = await described(node, GROUP, "g")
    assert rows["share.auto.offset.reset"].value == "earliest"
    assert rows["share.auto.offset.reset"].config_source == ConfigSource.GROUP_CONFIG
    assert rows["consumer.session.timeout.ms"].value == "45000"
    assert len(await described(node, GROUP, "another")) == len(rows)


@pytest.mark.parametrize(
    ("kind", "name", "code", "words"),
    [
        (TOPIC, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "invalid"),
        (BROKER, "7", ErrorCode.INVALID_REQUEST, "expected 1 or empty string, but received 7"),
        (BROKER, "one", ErrorCode.INVALID_REQUEST, "must be an integer, but it is: one"),
        (BROKER, "9" * 50, ErrorCode.INVALID_REQUEST, "must be an integer"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "must not be empty"),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST, "Log levels"),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST, "Client metrics"),
        (99, "x", ErrorCode.INVALID_REQUEST, "Unexpected resource type 99"),
    ],
)
@run_with(on_node)
async def test_invalid_resource_is_refused_in_its_row(
    node: Node, *, kind: int, name: str, code: ErrorCode, words: str
) -> None:
    answer = await node.ask(describe_configs, 4, asking(resource(kind, name)))
    seen, message = code_and_message(answer)
    assert (seen, words in (message or "")) == (code, True)
    for seen, message in [
        await alter(node, kind, name, [("retention.ms", Op.SET, "1")], check=False),
        await replace(node, kind, name, {"retention.ms": "1"}, check=False),
    ]:
        assert (seen, words in (message or "")) == (code, True)


@pytest.mark.parametrize(
    ("kind", "name", "type_", "code"),
    [
        (TOPIC, "t", ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (BROKER, "1", ResourceType.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (GROUP, "g", ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
@run_with(on_node)
async def test_configs_require_the_permission(
    node: Node, *, kind: int, name: str, type_: ResourceType, code: ErrorCode
) -> None:
    await make(node, "t")
    owner = CLUSTER_NAME if kind == BROKER else name
    node.rights.deny(Operation.DESCRIBE_CONFIGS, type_, owner)
    node.rights.deny(Operation.ALTER_CONFIGS, type_, owner)
    answer = await node.ask(describe_configs, 4, asking(resource(kind, name)))
    assert code_and_message(answer)[0] == code
    assert (await alter(node, kind, name, [], check=False))[0] == code
    assert (await replace(node, kind, name, {}, check=False))[0] == code


@run_with(on_node)
async def test_describe_configs_limits_the_resources_of_a_request(node: Node) -> None:
    many = [resource(GROUP, f"g{i}", ["share.isolation.level"]) for i in range(2001)]
    answer = await node.ask(describe_configs, 4, asking(*many, many[0]))
    codes = [result.error_code for result in answer.results]
    assert codes == [ErrorCode.NONE] * 2000 + [ErrorCode.POLICY_VIOLATION]


# AlterConfigs and IncrementalAlterConfigs.


async def alter(
    node: Node,
    kind: int,
    name: str,
    rows: list[tuple[str, int, str | None]],
    *,
    version: int = 1,
    validate_only: bool = False,
    check: bool = True,
) -> tuple[int, str | None]:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(name=key, config_operation=op, value=value)
                    for key, op, value in rows
                ],
            )
        ],
        validate_only=validate_only,
    )
    result = code_and_message(await node.ask(incremental_alter_configs, version, request))
    assert not check or result == (ErrorCode.NONE, None)
    return result


async def replace(
    node: Node,
    kind: int,
    name: str,
    values: dict[str, str | None],
    *,
    version: int = 2,
    validate_only: bool = False,
    check: bool = True,
) -> tuple[int, str | None]:
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, value=value) for key, value in values.items()],
            )
        ],
        validate_only=validate_only,
    )
    result = code_and_message(await node.ask(alter_configs, version, request))
    assert not check or result == (ErrorCode.NONE, None)
    return result


@pytest.mark.parametrize("version", range(2))
@run_with(on_node)
async def test_topic_config_change_reaches_the_log(node: Node, *, version: int) -> None:
    await make(node, "t", segment_ms="9")
    rows: list[tuple[str, int, str | None]] = [
        ("retention.ms", Op.SET, "77"),
        ("segment.ms", Op.DELETE, None),
        ("cleanup.policy", Op.APPEND, "compact"),
    ]
    await alter(node, TOPIC, "t", rows, version=version)
    assert node.ctx.image.topics["t"].configs == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "77",
    }
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.config.retention_ms == 77
    assert partition.log.config.cleanup_compact


@pytest.mark.parametrize("version", range(3))
@run_with(on_node)
async def test_replacement_removes_configs_it_does_not_name(node: Node, *, version: int) -> None:
    await make(node, "t", segment_ms="9")
    await replace(node, TOPIC, "t", {"retention.ms": "77"}, version=version)
    assert node.ctx.image.topics["t"].configs == {"retention.ms": "77"}


@run_with(on_node)
async def test_validation_only_changes_nothing(node: Node) -> None:
    await make(node, "t")
    await alter(node, TOPIC, "t", [("retention.ms", Op.SET, "7")], validate_only=True)
    await replace(node, TOPIC, "t", {"retention.ms": "7"}, validate_only=True)
    assert node.ctx.image.topics["t"].configs == {}


@pytest.mark.parametrize("name", ["", "1"])
@run_with(on_node)
async def test_dynamic_broker_config_reaches_every_topic(node: Node, *, name: str) -> None:
    await make(node, "t")
    await alter(node, BROKER, name, [("message.max.bytes", Op.SET, "5000")])
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.config.message_bytes_max == 5000
    await replace(node, BROKER, name, {})
    assert partition.log.config.message_bytes_max == 1048588


@pytest.mark.parametrize(
    ("kind", "name", "row", "code"),
    [
        (TOPIC, "t", ("retention.mss", Op.SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", Op.SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", Op.SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", Op.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("num.partitions", Op.SET, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("no.such.config", Op.SET, "2"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("share.session.timeout.ms", Op.SET, "1"), ErrorCode.INVALID_CONFIG),
    ],
)
@run_with(on_node)
async def test_invalid_alteration_is_refused(
    node: Node, *, kind: int, name: str, row: tuple[str, int, str | None], code: ErrorCode
) -> None:
    await make(node, "t")
    seen, message = await alter(node, kind, name, [row], check=False)
    assert seen == code
    assert message


@run_with(on_node)
async def test_misspelled_config_is_answered_with_the_nearest_name(node: Node) -> None:
    await make(node, "t")
    _, message = await alter(node, TOPIC, "t", [("retention.mss", Op.SET, "1")], check=False)
    assert message == "unknown topic config 'retention.mss', did you mean 'retention.ms'?"


@run_with(on_node)
async def test_repeated_resource_is_refused(node: Node) -> None:
    await make(node, "t")
    row = IncrementalAlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[
            IncrementalAlterableConfig(name="retention.ms", config_operation=Op.SET, value="7")
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[row, row], validate_only=False)
    answer = await node.ask(incremental_alter_configs, 1, request)
    assert code_and_message(answer) == (ErrorCode.INVALID_REQUEST, "Duplicate resource.")
    assert node.ctx.image.topics["t"].configs == {}


@run_with(on_node)
async def test_repeated_config_is_refused(node: Node) -> None:
    await make(node, "t")
    rows = [AlterableConfig(name="retention.ms", value=value) for value in ("7", "8")]
    row = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=rows)
    request = AlterConfigsRequest(resources=[row], validate_only=False)
    code, message = code_and_message(await node.ask(alter_configs, 2, request))
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    )
    assert node.ctx.image.topics["t"].configs == {}


@run_with(on_node)
async def test_alter_configs_of_an_empty_topic_name_is_refused(node: Node) -> None:
    row = AlterConfigsResource(resource_type=TOPIC, resource_name="", configs=[])
    request = AlterConfigsRequest(resources=[row], validate_only=False)
    code, _ = code_and_message(await node.ask(alter_configs, 2, request))
    assert code == ErrorCode.INVALID_REQUEST


@run_with(on_node)
async def test_alter_configs_limits_the_resources_of_a_request(node: Node) -> None:
    rows = [
        AlterConfigsResource(resource_type=GROUP, resource_name=f"g{i}", configs=[])
        for i in range(2001)
    ]
    request = AlterConfigsRequest(resources=rows, validate_only=True)
    answer = await node.ask(alter_configs, 2, request)
    codes = [row.error_code for row in answer.responses]
    assert codes == [ErrorCode.NONE] * 2000 + [ErrorCode.POLICY_VIOLATION]


# ListConfigResources.


@run_with(on_node)
async def test_resources_with_configs_are_listed(node: Node) -> None:
    await make(node, "t")
    await alter(node, GROUP, "g", [("share.auto.offset.reset", Op.SET, "earliest")])
    asked = ListConfigResourcesRequest(resource_types=[])
    answer = await node.ask(list_config_resources, 1, asked)
    assert {(row.resource_type, row.resource_name) for row in answer.config_resources} == {
        (TOPIC, "t"),
        (BROKER, "1"),
        (BROKER_LOGGER, "1"),
        (GROUP, "g"),
    }
    asked = ListConfigResourcesRequest(resource_types=[GROUP, GROUP])
    answer = await node.ask(list_config_resources, 1, asked)
    assert [row.resource_name for row in answer.config_resources] == ["g"]
    old = await node.ask(list_config_resources, 0, ListConfigResourcesRequest())
    assert (old.error_code, list(old.config_resources)) == (ErrorCode.NONE, [])


@run_with(on_node)
async def test_unknown_resource_types_and_missing_permissions_are_errors(node: Node) -> None:
    asked = ListConfigResourcesRequest(resource_types=[TOPIC, 99])
    answer = await node.ask(list_config_resources, 1, asked)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    node.rights.deny(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    answer = await node.ask(list_config_resources, 1, asked)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
