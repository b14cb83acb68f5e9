"""Users, ACLs and quotas in the console."""

from typing import Any, cast

import pytest

from penstock.broker.api.response_rows import CLUSTER_NAME
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import ConsoleClient, Rights, on_console


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
