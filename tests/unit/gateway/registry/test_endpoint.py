"""Registry routes as Confluent's clients use them: responses, error codes, content types."""

import json
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from penstock.broker.api.route_row import Needs, Operation, ResourceType
from penstock.gateway.registry.endpoint import BY_ID, FILTERED, OPERATIONS, topic_of
from penstock.gateway.registry.request import RegistryRequest
from penstock.gateway.registry.route_table import ROWS, RegistryRow
from penstock.state.registry import requests
from tests.run_with import run_with
from tests.unit.gateway.http.granted_permissions import EVE, HOST, GrantedPermissions
from tests.unit.gateway.http.web import Answer, Web, on_web

ONE = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}'
ONE_KEPT = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
TWO = (
    '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}, '
    '{"name": "b", "type": "int", "default": 0}]}'
)
BROKEN = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
VENDOR = "application/vnd.schemaregistry.v1+json"


async def register(web: Web, subject: str, schema: str = ONE, **others: Any) -> Answer:
    return await web.post(f"/subjects/{subject}/versions", {"schema": schema, **others})


def refusal(answer: Answer) -> tuple[int, int]:
    assert set(answer.json) == {"error_code", "message"}
    assert answer.json["message"]
    return answer.status, answer.json["error_code"]


@run_with(on_web)
async def test_registered_schema_is_found_by_every_route(web: Web) -> None:
    assert (await web.get("/subjects")).json == []
    registered = await register(web, "s")
    assert registered.status == 200
    assert registered.headers["content-type"] == VENDOR
    assert registered.json["id"] == 1
    assert registered.json["version"] == 1
    guid = registered.json["guid"]
    version = {"subject": "s", "version": 1, "id": 1, "schema": ONE_KEPT, "guid": guid}
    assert (await web.get("/subjects")).json == ["s"]
    assert (await web.get("/subjects/s/versions")).json == [1]
    for path in ("/subjects/s/versions/1", "/subjects/s/versions/latest"):
        assert (await web.get(path)).json == version
    assert (await web.get("/subjects/s/versions/-1/schema")).body.decode() == ONE_KEPT
    assert (await web.get("/schemas")).json == [version]
    text = {"schema": ONE_KEPT, "guid": guid}
    assert (await web.get("/schemas/ids/1")).json == text
    assert (await web.get("/schemas/ids/1?fetchMaxId=true")).json == {**text, "maxId": 1}
    assert (await web.get("/schemas/ids/1/schema")).body.decode() == ONE_KEPT
    assert (await web.get("/schemas/ids/1/subjects")).json == ["s"]
    assert (await web.get("/schemas/ids/1/versions")).json == [{"subject": "s", "version": 1}]
    assert (await web.get(f"/schemas/guids/{guid}")).json == text
    assert (await web.get(f"/schemas/guids/{guid}/ids")).json == [{"context": ".", "id": 1}]
    looked_up = await web.post("/subjects/s", {"schema": ONE_KEPT})
    assert looked_up.json == version


@run_with(on_web)
async def test_same_schema_keeps_its_id_and_a_new_one_gets_another(web: Web) -> None:
    assert (await register(web, "s", ONE)).json["id"] == 1
    assert (await register(web, "s", ONE_KEPT)).json == (await register(web, "s")).json
    assert (await register(web, "t", ONE)).json["id"] == 1
    assert (await register(web, "s", TWO)).json["version"] == 2
    assert (await web.get("/subjects/s/versions/2")).json["id"] == 2


NOT_THERE = [
    ("GET", "/subjects/x/versions", 40401),
    ("GET", "/subjects/x/versions/1", 40401),
    ("GET", "/subjects/s/versions/9", 40402),
    ("GET", "/subjects/s/versions/0", 42202),
    ("GET", "/subjects/s/versions/first", 42202),
    ("GET", "/subjects/s/versions/99999999999", 42202),
    ("GET", "/subjects/s/metadata?key=a&value=b", 40403),
    ("GET", "/schemas/ids/9", 40403),
    ("GET", "/schemas/ids/9/subjects", 40403),
    ("GET", "/schemas/ids/9/versions", 40403),
    ("GET", "/schemas/guids/none", 40403),
    ("GET", "/config/x", 40408),
    ("GET", "/mode/x", 40409),
    ("DELETE", "/subjects/x", 40401),
    ("DELETE", "/subjects/x/versions/1", 40401),
    ("DELETE", "/subjects/s/versions/9", 40402),
    ("DELETE", "/subjects/s?permanent=true", 40405),
    ("DELETE", "/subjects/s/versions/1?permanent=true", 40407),
    ("DELETE", "/config/x", 40401),
    ("DELETE", "/mode/x", 40401),
    ("GET", "/schemas/ids/one", 400),
    ("GET", "/schemas/nothing/here", 404),
    ("PUT", "/subjects/s", 405),
]


@run_with(on_web)
async def test_missing_resources_have_their_error_codes(web: Web) -> None:
    await register(web, "s")
    for method, path, number in NOT_THERE:
        answer = await web.ask(method, path, {} if method == "PUT" else None)
        status = number // 100 if number > 999 else number
        assert refusal(answer) == (status, number), path


BAD_BODIES: list[tuple[str, str, Any, int]] = [
    ("POST", "/subjects/s/versions", {"schema": "{"}, 42201),
    ("POST", "/subjects/s/versions", {"schema": ""}, 42201),
    ("POST", "/subjects/s/versions", {}, 42201),
    ("POST", "/subjects/s/versions", {"schema": ONE, "schemaType": "XML"}, 42201),
    ("POST", "/subjects/s/versions", {"schema": '"x"' + " " * 1_000_000}, 42209),
    ("POST", "/subjects/s/versions", {"schema": BROKEN}, 40901),
    ("POST", "/subjects/s/versions", {"schema": TWO, "id": 7}, 42205),
    ("POST", "/subjects/s/versions", {"schema": TWO, "version": 9}, 42201),
    ("POST", "/subjects/__GLOBAL/versions", {"schema": ONE}, 42208),
    ("POST", "/subjects/:*:s/versions", {"schema": ONE}, 42208),
    ("POST", "/subjects/s/versions", {"schema": 1}, 422),
    ("POST", "/subjects/s", {"schema": BROKEN}, 40403),
    ("POST", "/subjects/x", {"schema": ONE}, 40401),
    ("POST", "/compatibility/subjects/s/versions/9", {"schema": ONE}, 40402),
    ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
    ("PUT", "/mode", {"mode": "SLEEPING"}, 42204),
    ("PUT", "/mode/s", {"mode": "READONLY_OVERRIDE"}, 42204),
    ("PUT", "/mode/s", {"mode": "IMPORT"}, 42205),
    (
        "POST",
        "/subjects/s/versions",
        {"schema": ONE, "references": [{"name": "a", "subject": "none", "version": 1}]},
        42201,
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "number"), BAD_BODIES, ids=[str(n) for *_, n in BAD_BODIES]
)
@run_with(on_web)
async def test_invalid_bodies_have_their_error_codes(
    web: Web, *, method: str, path: str, body: Any, number: int
) -> None:
    await register(web, "s")
    status = number // 100 if number > 999 else number
    assert refusal(await web.ask(method, path, body)) == (status, number)


@run_with(on_web)
async def test_body_that_is_not_json_is_refused(web: Web) -> None:
    path = "/subjects/s/versions"
    assert refusal(await web.ask("POST", path, b"{")) == (400, 400)
    form = "application/x-www-form-urlencoded"
    body = json.dumps({"schema": ONE}).encode()
    assert refusal(await web.ask("POST", path, body, content_type=form)) == (415, 415)
    assert (await web.ask("POST", path, body, content_type=VENDOR)).status == 200


@run_with(on_web)
async def test_plain_json_is_returned_only_on_request(web: Web) -> None:
    for accept, kind in (
        ("application/json", "application/json"),
        (f"{VENDOR}, application/json", VENDOR),
        ("*/*", VENDOR),
    ):
        answer = await web.ask("GET", "/subjects", accept=accept)
        assert answer.headers["content-type"] == kind


@run_with(on_web)
async def test_deletion_has_two_steps(web: Web) -> None:
    await register(web, "s", ONE)
    await register(web, "s", TWO)
    assert (await web.ask("DELETE", "/subjects/s/versions/1")).json == 1
    assert (await web.get("/subjects/s/versions")).json == [2]
    assert (await web.get("/subjects/s/versions?deleted=true")).json == [1, 2]
    assert (await web.get("/subjects/s/versions?deletedOnly=true")).json == [1]
    assert (await web.get("/schemas/ids/1")).status == 200
    again = await web.ask("DELETE", "/subjects/s/versions/1")
    assert refusal(again) == (404, 40406)
    assert (await web.ask("DELETE", "/subjects/s/versions/1?permanent=true")).json == 1
    assert refusal(await web.get("/schemas/ids/1")) == (404, 40403)
    assert (await web.ask("DELETE", "/subjects/s")).json == [2]
    assert (await web.get("/subjects")).json == []
    assert (await web.get("/subjects?deleted=true")).json == ["s"]
    assert refusal(await web.ask("DELETE", "/subjects/s")) == (404, 40404)
    assert (await web.ask("DELETE", "/subjects/s?permanent=true")).json == [2]
    assert (await web.get("/subjects?deleted=true")).json == []


@run_with(on_web)
async def test_compatibility_levels_are_set_shown_and_unset(web: Web) -> None:
    assert (await web.get("/config")).json == {"compatibilityLevel": "BACKWARD"}
    put = await web.ask("PUT", "/config", {"compatibility": "full"})
    assert put.json == {"compatibility": "FULL"}
    await web.ask("PUT", "/config/s", {"compatibility": "NONE", "normalize": True})
    shown = {"compatibilityLevel": "NONE", "normalize": True}
    assert (await web.get("/config/s")).json == shown
    inherited = await web.get("/config/t?defaultToGlobal=true")
    assert inherited.json == {"compatibilityLevel": "FULL"}
    assert (await web.ask("DELETE", "/config/s")).json == shown
    assert (await web.ask("DELETE", "/config")).json == {"compatibilityLevel": "FULL"}
    assert (await web.get("/config")).json == {"compatibilityLevel": "BACKWARD"}


@run_with(on_web)
async def test_incompatibility_is_reported_with_reasons(web: Web) -> None:
    path = "/compatibility/subjects/s/versions"
    assert (await web.post(f"{path}/latest", {"schema": ONE})).json == {"is_compatible": True}
    await register(web, "s")
    assert (await web.post(path, {"schema": TWO})).json == {"is_compatible": True}
    said = (await web.post(f"{path}/1?verbose=true", {"schema": BROKEN})).json
    assert not said["is_compatible"]
    assert "/a" in said["messages"][0]


@run_with(on_web)
async def test_import_mode_accepts_given_ids_and_versions(web: Web) -> None:
    assert (await web.ask("PUT", "/mode", {"mode": "IMPORT"})).json == {"mode": "IMPORT"}
    imported = await register(web, "s", TWO, id=70, version=5)
    assert imported.json["id"] == 70
    assert imported.json["version"] == 5
    assert refusal(await register(web, "s", ONE)) == (422, 42205)
    assert refusal(await register(web, "s", ONE, id=70, version=6)) == (422, 42205)
    assert (await web.ask("DELETE", "/mode")).json == {"mode": "IMPORT"}
    assert (await web.get("/mode")).json == {"mode": "READWRITE"}
    following = await register(web, "s", ONE)
    assert following.json["id"] == 71
    assert following.json["version"] == 6


@run_with(on_web)
async def test_references_are_shown_and_protect_schemas(web: Web) -> None:
    await register(web, "inner")
    reference = {"name": "R", "subject": "inner", "version": 1}
    outer = '{"type": "array", "items": "R"}'
    assert refusal(await register(web, "outer", outer)) == (422, 42201)
    registered = await register(web, "outer", outer, references=[reference])
    assert registered.status == 200
    assert (await web.get("/subjects/outer/versions/1")).json["references"] == [reference]
    assert (await web.get("/subjects/inner/versions/1/referencedby")).json == [2]
    assert refusal(await web.ask("DELETE", "/subjects/inner")) == (422, 42206)
    resolved = await web.get("/schemas/ids/2?format=resolved")
    assert json.loads(resolved.json["schema"])["items"]["name"] == "R"


@run_with(on_web)
async def test_metadata_is_stored_and_searchable(web: Web) -> None:
    metadata = {"properties": {"owner": "billing"}}
    await register(web, "s", ONE, metadata=metadata)
    await register(web, "s", TWO, metadata={"properties": {"owner": "sales"}})
    found = await web.get("/subjects/s/metadata?key=owner&value=billing")
    assert found.json["version"] == 1
    assert found.json["metadata"] == metadata


RULES = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}]}


@run_with(on_web)
async def test_schema_without_metadata_inherits_it_from_the_version_before(web: Web) -> None:
    metadata = {"properties": {"owner": "billing"}}
    first = (await register(web, "s", ONE, metadata=metadata, ruleSet=RULES)).json
    assert (await register(web, "s", ONE)).json == first
    assert (await web.post("/subjects/s", {"schema": ONE})).json["version"] == 1
    # A later registration without metadata inherits that of the version before.
    assert (await register(web, "s", TWO)).json["version"] == 2
    second = (await web.get("/subjects/s/versions/2")).json
    assert (second["metadata"], second["ruleSet"]) == (metadata, RULES)
    other = await register(web, "s", TWO, metadata={"properties": {"owner": "sales"}})
    assert other.json["version"] == 3
    # In another subject there is nothing to inherit: there it is another schema.
    plain = (await register(web, "t", ONE)).json
    assert plain["id"] != first["id"]


@run_with(on_web)
async def test_defaults_and_overrides_become_part_of_the_schema(web: Web) -> None:
    config = {
        "defaultMetadata": {"properties": {"a": "default", "b": "default"}},
        "overrideMetadata": {"properties": {"c": "override"}},
        "defaultRuleSet": RULES,
    }
    assert (await web.ask("PUT", "/config", config)).json == config
    shown = (await web.get("/config")).json
    assert shown == {**config, "compatibilityLevel": "BACKWARD"}
    own = {"properties": {"b": "own", "c": "own"}}
    await register(web, "s", ONE, metadata=own)
    kept = (await web.get("/subjects/s/versions/1")).json
    assert kept["metadata"] == {"properties": {"a": "default", "b": "own", "c": "override"}}
    assert kept["ruleSet"] == RULES
    assert (await register(web, "s", ONE, metadata=own)).json["version"] == 1
    assert (await web.post("/subjects/s", {"schema": ONE, "metadata": own})).status == 200
    large = {"defaultMetadata": {"properties": {"a": "x" * 200_000}}}
    assert refusal(await web.ask("PUT", "/config", large)) == (422, 42209)


@run_with(on_web)
async def test_schema_by_id_names_its_subject_and_version(web: Web) -> None:
    await register(web, "s", ONE)
    await register(web, "t", ONE)
    shown = (await web.get("/schemas/ids/1?subject=t")).json
    assert (shown["subject"], shown["version"]) == ("t", 1)
    assert "subject" not in (await web.get("/schemas/ids/1")).json
    assert "subject" not in (await web.get("/schemas/ids/1?subject=x")).json


@run_with(on_web)
async def test_deleted_only_lists_fully_deleted_subjects(web: Web) -> None:
    for subject in ("s", "t"):
        await register(web, subject, ONE)
        await register(web, subject, TWO)
    await web.ask("DELETE", "/subjects/s")
    await web.ask("DELETE", "/subjects/t/versions/1")
    assert (await web.get("/subjects?deletedOnly=true")).json == ["s"]
    assert (await web.get("/subjects?deleted=true")).json == ["s", "t"]
    assert (await web.get("/subjects")).json == ["t"]
    assert (await web.get("/subjects/t/versions?deletedOnly=true")).json == [1]
    await register(web, "u", ONE)
    assert refusal(await web.get("/subjects/u/versions?deletedOnly=true")) == (404, 40401)


@pytest.mark.parametrize(
    ("name", "is_right"),
    [
        ("a\0b", False),
        ("a\tb", False),
        ("a\x7fb", False),
        ("a\x85b", False),
        ("a b", True),
        ("a\xa0b", True),
        ("a\u2028b", True),
    ],
)
@run_with(on_web)
async def test_subject_with_control_characters_is_refused(
    web: Web, *, name: str, is_right: bool
) -> None:
    answer = await register(web, name, ONE)
    if is_right:
        assert answer.status == 200
        assert (await web.get(f"/subjects/{name}/versions")).json == [1]
    else:
        assert refusal(answer) == (422, 42208)


@run_with(on_web)
async def test_listings_are_paginated(web: Web) -> None:
    for subject in ("a1", "a2", "b1"):
        await register(web, subject)
    assert (await web.get("/subjects?subjectPrefix=a")).json == ["a1", "a2"]
    assert (await web.get("/subjects?offset=1&limit=1")).json == ["a2"]
    assert len((await web.get("/schemas?latestOnly=true&limit=2")).json) == 2


@run_with(on_web)
async def test_static_pages_describe_the_registry(web: Web) -> None:
    assert (await web.get("/schemas/types")).json == ["AVRO", "JSON", "PROTOBUF"]
    assert (await web.get("/contexts")).json == ["."]
    assert "kafka-cluster" in (await web.get("/v1/metadata/id")).json["scope"]["clusters"]
    assert (await web.get("/v1/metadata/version")).json["version"]


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
    web.node.ctx.authorizer, allowing = GrantedPermissions(), web.node.ctx.authorizer
    web.who = EVE
    there = await ask(web, row, "t-value", 1)
    missing = await ask(web, row, "u-value", 2)
    assert there.body.replace(b"t-value", b"u-value") == missing.body.replace(b"2", b"1")
    if there.status == 200:
        # The default context always exists.
        assert there.json in ([], ["."]), "only listings succeed, and they are empty"
    else:
        assert there.status in (403, 404)
    web.node.ctx.authorizer = allowing
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
