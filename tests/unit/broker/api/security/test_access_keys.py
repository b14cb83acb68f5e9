"""Access keys over the wire: made, listed without their secrets, ended."""

from penstock.base.errors import ErrorCode
from penstock.broker.api.security.users import (
    alter_user_scram_credentials,
    create_access_key,
    delete_access_key,
    describe_access_keys,
)
from penstock.cluster.access.users import KEYS_MAX
from penstock.security.acl_types import NODE_USER
from penstock.wire.messages.internal.admin import (
    CreateAccessKeyRequest,
    CreateAccessKeyResponse,
    DeleteAccessKeyRequest,
    DescribeAccessKeysRequest,
)
from penstock.wire.messages.sasl import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.security.test_users import alter, describe, upsertion


async def create(node: Node, user: str) -> CreateAccessKeyResponse:
    answer: CreateAccessKeyResponse = await node.ask(
        create_access_key, 0, CreateAccessKeyRequest(user=user)
    )
    return answer


async def listed(node: Node, user: str | None = None) -> list[tuple[str, str]]:
    answer = await node.ask(describe_access_keys, 0, DescribeAccessKeysRequest(user=user))
    return [(row.user, row.access_key) for row in answer.keys]


async def delete(node: Node, access_key: str) -> int:
    request = DeleteAccessKeyRequest(access_key=access_key)
    code: int = (await node.ask(delete_access_key, 0, request)).error_code
    return code


@run_with(on_node)
async def test_access_keys_are_created_listed_and_deleted(node: Node) -> None:
    first, second = await create(node, "bob"), await create(node, "ann")
    assert len(first.secret) == 40
    assert first.access_key != second.access_key
    assert await listed(node) == [("ann", second.access_key), ("bob", first.access_key)]
    assert await listed(node, "bob") == [("bob", first.access_key)]
    assert await delete(node, first.access_key) == ErrorCode.NONE
    assert await delete(node, first.access_key) == ErrorCode.RESOURCE_NOT_FOUND
    assert "bob" not in node.ctx.image.users


@run_with(on_node)
async def test_passwords_and_access_keys_are_independent(node: Node) -> None:
    made = await create(node, "bob")
    assert await describe(node) == [], "a user with nothing but a key has no SCRAM credentials"
    assert await alter(node, upsertion()) == [("bob", 0)]
    assert await listed(node) == [("bob", made.access_key)]
    gone = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="bob", mechanism=1)], upsertions=[]
    )
    await node.ask(alter_user_scram_credentials, 0, gone)
    assert await listed(node) == [("bob", made.access_key)]


@run_with(on_node)
async def test_invalid_names_and_too_many_keys_are_refused(
    node: Node,
) -> None:
    for name in ("", NODE_USER, "x" * 256):
        assert (await create(node, name)).error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    for _ in range(KEYS_MAX):
        assert (await create(node, "bob")).error_code == ErrorCode.NONE
    assert (await create(node, "bob")).error_code == ErrorCode.INVALID_REQUEST
