"""SCRAM credentials over the wire."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.broker.api.security.users import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from penstock.cluster.access import users
from penstock.security import scram
from penstock.security.acl_types import NODE_USER
from penstock.wire.messages.sasl import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


def upsertion(name: str = "bob", password: str = "secret", **fields: Any) -> Any:
    salted = scram.salted_password("SCRAM-SHA-256", password, b"salt", 4096)
    values: dict[str, Any] = {
        "name": name,
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": salted,
    }
    return ScramCredentialUpsertion(**(values | fields))


async def alter(node: Node, *rows: Any) -> list[tuple[str, int]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[row for row in rows if isinstance(row, ScramCredentialDeletion)],
        upsertions=[row for row in rows if isinstance(row, ScramCredentialUpsertion)],
    )
    answer = await node.ask(alter_user_scram_credentials, 0, request)
    return [(row.user, row.error_code) for row in answer.results]


async def describe(node: Node, *names: str) -> list[tuple[str, int, list[int]]]:
    asked = [UserName(name=name) for name in names] or None
    request = DescribeUserScramCredentialsRequest(users=asked)
    answer = await node.ask(describe_user_scram_credentials, 0, request)
    assert answer.error_code == ErrorCode.NONE
    return [
        (row.user, row.error_code, [info.mechanism for info in row.credential_infos])
        for row in answer.results
    ]


@run_with(on_node)
async def test_password_is_stored_as_a_verifier(node: Node) -> None:
    assert await alter(node, upsertion()) == [("bob", 0)]
    assert await describe(node) == [("bob", 0, [1])]
    kept = users.credential(node.ctx.image, "bob", "SCRAM-SHA-256")
    assert kept is not None
    assert scram.verifies("SCRAM-SHA-256", kept, "secret")
    assert not scram.verifies("SCRAM-SHA-256", kept, "wrong")
    entry = await node.store.get("/users/bob")
    assert entry is not None
    assert b"secret" not in entry.value


@run_with(on_node)
async def test_user_is_removed_with_the_last_credential(node: Node) -> None:
    await alter(node, upsertion(), upsertion(mechanism=2))
    one = ScramCredentialDeletion(name="bob", mechanism=1)
    assert await alter(node, one) == [("bob", 0)]
    assert await describe(node) == [("bob", 0, [2])]
    await alter(node, ScramCredentialDeletion(name="bob", mechanism=2))
    assert await describe(node) == []
    assert await describe(node, "bob") == [("bob", ErrorCode.RESOURCE_NOT_FOUND, [])]
    assert await alter(node, one) == [("bob", ErrorCode.RESOURCE_NOT_FOUND)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"name": NODE_USER}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 1}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 10**6}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"mechanism": 7}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
@run_with(on_node)
async def test_invalid_credentials_are_refused(
    node: Node, *, fields: dict[str, Any], code: int
) -> None:
    assert [found for _, found in await alter(node, upsertion(**fields))] == [code]
    assert await describe(node) == []


@run_with(on_node)
async def test_repeated_credential_is_refused(node: Node) -> None:
    rows = (upsertion(), upsertion(password="other"))
    assert await alter(node, *rows) == [("bob", ErrorCode.DUPLICATE_RESOURCE)]
    assert await describe(node) == []


@run_with(on_node)
async def test_user_changes_require_the_permission(node: Node) -> None:
    node.rights.deny(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await alter(node, upsertion()) == [("bob", denied)]


@run_with(on_node)
async def test_user_description_requires_the_permission_with_errors_in_rows(node: Node) -> None:
    """An error of the whole answer ends librdkafka's process, whatever the text."""

    await alter(node, upsertion())
    node.rights.deny(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    for names, rows in ((["bob", "eve", "bob"], ["bob", "eve"]), ([], [""])):
        asked = [UserName(name=name) for name in names] or None
        request = DescribeUserScramCredentialsRequest(users=asked)
        answer = await node.ask(describe_user_scram_credentials, 0, request)
        assert answer.error_code == ErrorCode.NONE
        assert [row.user for row in answer.results] == rows
        for row in answer.results:
            assert row.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert "DESCRIBE" in row.error_message
            assert not row.credential_infos
