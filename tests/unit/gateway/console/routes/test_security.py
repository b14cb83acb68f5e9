"""Users, ACLs and quotas in the console."""

from typing import Any, TypeVar, cast

import pytest

from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.gateway.core.permissions import Principal
from penstock.security.acl_types import NODE_USER
from penstock.wire.messages.internal.admin import (
    CreateAccessKeyRequest,
    CreateAccessKeyResponse,
    DescribeAccessKeysRequest,
    DescribeAccessKeysResponse,
)
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import ConsoleClient, Rights, on_console

T = TypeVar("T")


@run_with(on_console)
async def test_users_acls_and_quotas_are_shown_and_changed(web: ConsoleClient) -> None:
    line = {"resource": "TOPIC", "name": "t", "pattern": "LITERAL", "principal": "User:ann",
            "host": "*", "operation": "READ", "permission": "ALLOW"}  # fmt: skip
    quota = {"entity": {"user": "ann"}, "key": "producer_byte_rate", "value": 1000.0}
    user = {"name": "ann", "password": "secret"}
    for path, body in (("users", user), ("quotas", quota)):
        answer = await web.change(f"/security/{path}", body)
        assert answer.status == 204, answer
    # ACLs need an authorizer.
    assert (await web.change("/security/acls", line)).status == 409
    seen = await web.own("/security")
    assert (seen["is_guarded"], seen["acls"]) == (False, None)
    assert seen["users"] == [{"name": "ann", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}]
    assert seen["quotas"] == [{"entity": {"user": "ann"}, "values": {"producer_byte_rate": 1000.0}}]
    assert (await web.change("/security/users", {"name": "ann"}, "DELETE")).status == 204
    gone = await web.change("/security/quotas", quota | {"value": None})
    assert gone.status == 204
    seen = await web.own("/security")
    assert (seen["users"], seen["quotas"]) == ([], [])


@pytest.mark.parametrize("has_password", [True, False])
@run_with(on_console)
async def test_deleting_a_user_deletes_its_access_keys(
    web: ConsoleClient, *, has_password: bool
) -> None:
    for name in ("ann", "bob"):
        await _ask(web, CreateAccessKeyRequest(user=name), CreateAccessKeyResponse)
    user = {"name": "ann"}
    if has_password:
        assert (await web.change("/security/users", user | {"password": "secret"})).status == 204
    assert (await web.change("/security/users", user, "DELETE")).status == 204
    left = await _ask(web, DescribeAccessKeysRequest(user=None), DescribeAccessKeysResponse)
    assert [key.user for key in left.keys] == ["bob"]
    assert (await web.change("/security/users", user, "DELETE")).status == 404


@run_with(on_console)
async def test_sections_without_permission_are_null(web: ConsoleClient) -> None:
    web.node.ctx.authorizer = cast("Any", Rights(CLUSTER_NAME))
    seen = await web.own("/security")
    assert (seen["users"], seen["acls"], seen["quotas"]) == (None, None, None)


@pytest.mark.parametrize("name", ["", "x" * 300, "é" * 200, "x" * 32_767, "x" * 40_000])
@run_with(on_console)
async def test_invalid_user_name_is_a_client_error(web: ConsoleClient, *, name: str) -> None:
    answer = await web.change("/security/users", {"name": name, "password": "secret"})
    assert answer.status == 422, answer
    assert (await web.own("/security"))["users"] == []


async def _ask(web: ConsoleClient, request: object, answer: type[T]) -> T:
    return await web.gateway.handlers.ask(Principal(NODE_USER), request, answer)
