"""Permissions of the registry: refusals and hidden resources."""

from typing import Any

import pytest
from starlette.datastructures import QueryParams

from penstock.broker.api.route_row import Needs, Operation, ResourceType
from penstock.gateway.registry.permissions import BY_ID, FILTERED, OPERATIONS, topic_of
from penstock.gateway.registry.request import RegistryRequest
from penstock.gateway.registry.route_table import ROWS, RegistryRow
from penstock.state.registry import requests
from tests.run_with import run_with
from tests.unit.gateway.http.granted_permissions import EVE, HOST, GrantedPermissions
from tests.unit.gateway.http.web import Answer, Web, on_web

SCHEMA = {"schema": '"int"'}
DENIED: list[tuple[Operation, str, str, Any]] = [
    (Operation.WRITE, "POST", "/subjects/t-value/versions", SCHEMA),
    (Operation.DESCRIBE, "POST", "/subjects/t-value", SCHEMA),
    (Operation.DESCRIBE, "GET", "/subjects/t-value/versions", None),
    (Operation.DESCRIBE, "GET", "/subjects/t-value/versions/1", None),
    (Operation.DESCRIBE, "GET", "/subjects/t-value/versions/1/referencedby", None),
    (Operation.DESCRIBE, "POST", "/compatibility/subjects/t-value/versions", SCHEMA),
    (Operation.DELETE, "DELETE", "/subjects/t-value", None),
    (Operation.DELETE, "DELETE", "/subjects/t-value/versions/1", None),
    (Operation.ALTER_CONFIGS, "PUT", "/config/t-value", {"compatibility": "NONE"}),
    (Operation.ALTER_CONFIGS, "PUT", "/mode/t-value", {"mode": "READONLY"}),
    (Operation.DESCRIBE_CONFIGS, "GET", "/config/t-value", None),
    (Operation.DESCRIBE_CONFIGS, "GET", "/mode/t-value", None),
]


@pytest.mark.parametrize(("operation", "method", "path", "body"), DENIED)
@run_with(on_web)
async def test_request_without_topic_permission_is_denied(
    web: Web, *, operation: Operation, method: str, path: str, body: Any
) -> None:
    await web.post("/subjects/t-value/versions", SCHEMA)
    web.node.rights.deny(operation, ResourceType.TOPIC, "t")
    answer = await web.ask(method, path, body)
    assert (answer.status, answer.json["error_code"]) == (403, 40301)
    other = await web.ask(method, path.replace("t-value", "u-value"), body)
    assert other.status != 403


@run_with(on_web)
async def test_global_settings_need_cluster_permission(web: Web) -> None:
    web.node.rights.deny(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, "kafka-cluster")
    assert (await web.ask("PUT", "/config", {"compatibility": "NONE"})).status == 403
    assert (await web.ask("PUT", "/mode", {"mode": "READONLY"})).status == 403
    assert (await web.get("/config")).status == 200


@run_with(on_web)
async def test_listings_leave_out_hidden_subjects(web: Web) -> None:
    for subject in ("t-value", "t-key", "u-value"):
        await web.post(f"/subjects/{subject}/versions", SCHEMA)
    web.node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert (await web.get("/subjects")).json == ["u-value"]
    assert [row["subject"] for row in (await web.get("/schemas")).json] == ["u-value"]
    assert (await web.get("/schemas/ids/1/subjects")).json == ["u-value"]
    assert len((await web.get("/schemas/ids/1/versions")).json) == 1


def test_every_call_has_a_required_permission() -> None:
    body = b'{"schema": "x", "mode": "x"}'
    asked = RegistryRequest(
        {"subject": "s", "version": "1", "id": "1", "guid": "g", "context": ".c"},
        QueryParams(""),
        body,
    )
    for row in ROWS:
        kind = type(row.call(asked))
        assert kind in OPERATIONS or kind in BY_ID or kind in FILTERED, kind
    # Only nodes send this call.
    assert requests.Vouch not in {type(row.call(asked)) for row in ROWS}


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("t-value", "t"),
        ("t-key", "t"),
        ("shop.User", "shop.User"),
        ("a-value-b", "a-value-b"),
        ("t-key-value", "t-key"),
        ("t-value-key", "t-value"),
    ],
)
def test_subject_has_the_permissions_of_its_topic(subject: str, topic: str) -> None:
    assert topic_of(subject) == topic


BODIES = {"mode": {"mode": "READONLY"}, "config": {"compatibility": "NONE"}}


async def ask(web: Web, row: RegistryRow, subject: str, number: int) -> Answer:
    path = row.path.replace("{subject}", subject).replace("{version}", "1")
    path = path.replace("{id}", str(number)).replace("{guid}", "no-such-guid")
    body = BODIES.get(row.path.split("/")[1], SCHEMA) if row.method in ("POST", "PUT") else None
    return await web.ask(row.method, path, body)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
@run_with(on_web)
async def test_routes_without_permission_reveal_and_change_nothing(
    web: Web, *, row: RegistryRow
) -> None:
    """Every route responds for existing resources as for missing ones."""

    await web.post("/subjects/t-value/versions", SCHEMA)
    before = (await web.get("/schemas")).body
    web.node.ctx.authorizer, everybody = GrantedPermissions(), web.node.ctx.authorizer
    web.who = EVE
    there = await ask(web, row, "t-value", 1)
    missing = await ask(web, row, "u-value", 2)
    assert there.body.replace(b"t-value", b"u-value") == missing.body.replace(b"2", b"1")
    if there.status == 200:
        # The default context always exists.
        assert there.json in ([], ["."]), "only listings succeed, and they are empty"
    else:
        assert there.status in (403, 404)
    web.node.ctx.authorizer = everybody
    assert (await web.get("/schemas")).body == before


@run_with(on_web)
async def test_schema_by_id_needs_permission_on_a_subject_that_has_it(
    web: Web,
) -> None:
    await web.post("/subjects/t-value/versions", SCHEMA)
    lists = web.node.ctx.authorizer = GrantedPermissions()
    web.who, web.host = EVE, HOST
    assert (await web.get("/schemas/ids/1")).status == 404
    lists.give([Needs(ResourceType.TOPIC, Operation.READ)], topic="t")
    found = await web.get("/schemas/ids/1")
    assert found.json["schema"] == SCHEMA["schema"]
    guid = found.json.get("guid") or (await web.get("/subjects/t-value/versions/1")).json["guid"]
    assert (await web.get(f"/schemas/guids/{guid}")).status == 200
    lists.give([Needs(ResourceType.TOPIC, Operation.READ)], topic="u")
    assert (await web.get(f"/schemas/guids/{guid}")).status == 404


@run_with(on_web)
async def test_references_need_describe_permission(web: Web) -> None:
    await web.post("/subjects/t-value/versions", SCHEMA)
    lists = web.node.ctx.authorizer = GrantedPermissions()
    web.who, web.host = EVE, HOST
    lists.give([Needs(ResourceType.TOPIC, Operation.WRITE)], topic="u")
    reference = {"name": "x", "subject": "t-value", "version": 1}
    answer = await web.post("/subjects/u-value/versions", SCHEMA | {"references": [reference]})
    assert answer.status == 403


@run_with(on_web)
async def test_alias_needs_write_permission_on_its_subject(web: Web) -> None:
    await web.post("/subjects/t-value/versions", SCHEMA)
    lists = web.node.ctx.authorizer = GrantedPermissions()
    web.who, web.host = EVE, HOST
    mine = [Needs(ResourceType.TOPIC, Operation.ALTER_CONFIGS)]
    lists.give(mine, topic="u")
    assert (await web.ask("PUT", "/config/u-value", {"alias": "t-value"})).status == 403
    assert (await web.ask("PUT", "/config/u-value", {"alias": ":.:t-value"})).status == 403
    assert (await web.ask("PUT", "/config/u-value", {"alias": "u-key"})).status == 403
    assert (await web.ask("PUT", "/config/u-value", {"compatibility": "NONE"})).status == 200
    web.node.ctx.authorizer = web.node.rights
    web.node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "t")
    assert (await web.ask("PUT", "/config/u-value", {"alias": "t-value"})).status == 403
    assert (await web.ask("PUT", "/config/u-value", {"alias": "v-value"})).status == 200


@run_with(on_web)
async def test_alias_of_a_read_only_subject_is_read_only(web: Web) -> None:
    await web.ask("PUT", "/config/u-value", {"alias": "t-value"})
    await web.ask("PUT", "/mode/t-value", {"mode": "READONLY"})
    answer = await web.post("/subjects/u-value/versions", SCHEMA)
    assert (answer.status, answer.json["error_code"]) == (422, 42205)


@run_with(on_web)
async def test_import_mode_needs_cluster_permission(web: Web) -> None:
    web.node.rights.deny(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, "kafka-cluster")
    for mode in ("IMPORT", "import"):
        assert (await web.ask("PUT", "/mode/t-value", {"mode": mode})).status == 403
    assert (await web.ask("PUT", "/mode/t-value", {"mode": "READONLY"})).status == 200
    web.node.rights.denied.clear()
    assert (await web.ask("PUT", "/mode/u-value", {"mode": "IMPORT"})).status == 200
    web.node.rights.deny(Operation.ALTER_CONFIGS, ResourceType.TOPIC, "u")
    assert (await web.ask("PUT", "/mode/u-value", {"mode": "IMPORT"})).status == 403
