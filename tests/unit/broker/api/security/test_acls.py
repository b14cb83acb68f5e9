"""Access control lists over the wire: created, described, deleted, refused."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.broker.api.security.acls import create_acls, delete_acls, describe_acls
from penstock.security.acl_types import ALL_OPERATIONS, ANY, Pattern, Permission
from penstock.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

VERSION = 3


def creation(**fields: Any) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": Pattern.LITERAL,
        "principal": "User:bob",
        "host": "*",
        "operation": Operation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**(values | fields))


async def create(node: Node, *creations: AclCreation) -> list[int]:
    answer = await node.ask(create_acls, VERSION, CreateAclsRequest(creations=list(creations)))
    return [row.error_code for row in answer.results]


async def describe(node: Node, **fields: Any) -> list[tuple[str, str, int]]:
    values: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    answer = await node.ask(describe_acls, VERSION, DescribeAclsRequest(**(values | fields)))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return [
        (row.resource_name, acl.principal, acl.operation)
        for row in answer.resources
        for acl in row.acls
    ]


@run_with(on_node)
async def test_acls_are_created_once_and_described(node: Node) -> None:
    read, write = creation(), creation(operation=Operation.WRITE)
    assert await create(node, read, write, read) == [0, 0, 0]
    assert await create(node, read) == [0]
    found = [("orders", "User:bob", Operation.READ), ("orders", "User:bob", Operation.WRITE)]
    assert await describe(node) == found
    assert await describe(node, operation=Operation.WRITE) == found[1:]
    assert await describe(node, resource_name_filter="others") == []


@run_with(on_node)
async def test_acl_filter_deletes_and_returns_its_matches(node: Node) -> None:
    prefix = creation(resource_name="ord", resource_pattern_type=Pattern.PREFIXED)
    await create(node, creation(), prefix, creation(principal="User:eve"))
    asked = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=Pattern.MATCH,
        principal_filter="User:bob",
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await node.ask(delete_acls, VERSION, DeleteAclsRequest(filters=[asked]))
    gone = answer.filter_results[0].matching_acls
    assert [acl.resource_name for acl in gone] == ["ord", "orders"]
    assert await describe(node) == [("orders", "User:eve", Operation.READ)]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_pattern_type": Pattern.MATCH},
        {"resource_name": ""},
        {"resource_name": "x" * 2000},
        {"resource_type": ResourceType.CLUSTER, "resource_name": "orders"},
        {"operation": ANY},
        {"operation": Operation.CLUSTER_ACTION},
        {"permission_type": ANY},
        {"principal": "bob"},
        {"principal": "User:"},
        {"host": ""},
    ],
    ids=lambda fields: str(fields)[:40],
)
@run_with(on_node)
async def test_invalid_acl_is_refused_and_the_rest_created(
    node: Node, *, fields: dict[str, Any]
) -> None:
    codes = await create(node, creation(**fields), creation(operation=ALL_OPERATIONS))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(await describe(node)) == 1


@run_with(on_node)
async def test_acl_requests_require_the_permission(node: Node) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    node.rights.deny(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert await create(node, creation()) == [denied]
    node.rights.deny(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    assert (await node.ask(describe_acls, VERSION, request)).error_code == denied


@run_with(on_node)
async def test_acls_are_refused_without_an_authorizer(node: Node) -> None:
    node.rights.is_on = False
    assert await create(node, creation()) == [ErrorCode.SECURITY_DISABLED]
