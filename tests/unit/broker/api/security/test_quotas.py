"""Client quotas over the wire: tools read back the values they set."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.broker.api.security.quotas import alter_client_quotas, describe_client_quotas
from penstock.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    OpData,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

Parts = list[tuple[str, str | None]]


def entry(parts: Parts, *ops: tuple[str, float | None]) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
            for kind, name in parts
        ],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


async def alter(node: Node, *entries: Any, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    answer = await node.ask(alter_client_quotas, 1, request)
    return [row.error_code for row in answer.entries]


async def describe(node: Node, *components: ComponentData, strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    return await node.ask(describe_client_quotas, 1, request)


def told(answer: Any) -> list[tuple[Parts, dict[str, float]]]:
    assert answer.error_code == ErrorCode.NONE
    return [
        (
            [(part.entity_type, part.entity_name) for part in row.entity],
            {value.key: value.value for value in row.values},
        )
        for row in answer.entries
    ]


@run_with(on_node)
async def test_quotas_are_set_described_and_removed(node: Node) -> None:
    alice: Parts = [("user", "alice")]
    both: Parts = [("user", None), ("client-id", "app")]
    done = await alter(
        node, entry(alice, ("producer_byte_rate", 1e6)), entry(both, ("request_percentage", 5))
    )
    assert done == [0, 0]
    assert told(await describe(node)) == [
        (both, {"request_percentage": 5}),
        (alice, {"producer_byte_rate": 1e6}),
    ]
    only = ComponentData(entity_type="user", match_type=0, match="alice")
    assert told(await describe(node, only, strict=True)) == [(alice, {"producer_byte_rate": 1e6})]
    default = ComponentData(entity_type="user", match_type=1, match=None)
    assert [parts for parts, _ in told(await describe(node, default))] == [both]
    assert await alter(node, entry(alice, ("producer_byte_rate", None))) == [0]
    assert len(told(await describe(node))) == 1


@run_with(on_node)
async def test_each_entity_is_answered_in_its_row(node: Node) -> None:
    done = await alter(
        node,
        entry([("user", "alice")], ("producer_byte_rate", 1)),
        entry([("planet", "mars")], ("producer_byte_rate", 1)),
        entry([("user", "a"), ("user", "b")], ("producer_byte_rate", 1)),
        entry([("ip", "10.0.0.1")], ("producer_byte_rate", 1)),
        entry([("user", "twice")], ("producer_byte_rate", 1)),
        entry([("user", "twice")], ("producer_byte_rate", 2)),
        entry([], ("producer_byte_rate", 2)),
    )
    assert done == [0] + [ErrorCode.INVALID_REQUEST] * 6
    assert len(told(await describe(node))) == 1


@run_with(on_node)
async def test_validation_only_reports_refusals_and_changes_nothing(node: Node) -> None:
    good, bad = ("producer_byte_rate", 1.0), ("producer_byte_rate", -1.0)
    rows = entry([("user", "a")], good), entry([("user", "b")], bad)
    assert await alter(node, *rows, validate_only=True) == [0, ErrorCode.INVALID_REQUEST]
    assert told(await describe(node)) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
@run_with(on_node)
async def test_invalid_filter_is_refused(
    node: Node, *, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    rows = [
        ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    ]
    answer = await describe(node, *rows)
    assert answer.error_code == code
    assert answer.error_message


@run_with(on_node)
async def test_quota_requests_require_the_permission(node: Node) -> None:
    for operation in (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS):
        node.rights.deny(operation, ResourceType.CLUSTER, CLUSTER_NAME)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await alter(node, entry([("user", "a")], ("producer_byte_rate", 1))) == [denied]
    assert (await describe(node)).error_code == denied
    assert not node.ctx.image.quotas
