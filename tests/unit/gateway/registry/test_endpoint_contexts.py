"""Contexts over HTTP: qualified subjects, paths below a context, permissions."""

import pytest

from penstock.broker.api.route_row import Operation, ResourceType
from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web
from tests.unit.gateway.registry.test_endpoint import ONE, ONE_KEPT, TWO, refusal, register

INT = {"schema": '"int"'}
LONG = {"schema": '"long"'}


@run_with(on_web)
async def test_qualified_subjects_have_ids_and_lists_per_context(web: Web) -> None:
    assert (await web.get("/contexts")).json == ["."]
    assert (await register(web, ":.c1:t1", ONE)).json["id"] == 1
    assert (await register(web, ":.c1:t1", TWO)).json["id"] == 2
    assert (await register(web, ":.c2:t2", TWO)).json["id"] == 1
    assert (await register(web, "t1", TWO)).json["id"] == 1
    assert (await web.get("/contexts")).json == [".", ".c1", ".c2"]
    assert (await web.get("/contexts?contextPrefix=.c&offset=1")).json == [".c2"]
    everything = [":.c1:t1", ":.c2:t2", "t1"]
    for query, subjects in (
        ("", everything),
        ("?subjectPrefix=:*:", everything),
        ("?subjectPrefix=:*:t1", [":.c1:t1", "t1"]),
        ("?subjectPrefix=", ["t1"]),
        ("?subjectPrefix=:.:", ["t1"]),
        ("?subjectPrefix=:.c1:", [":.c1:t1"]),
    ):
        assert (await web.get(f"/subjects{query}")).json == subjects, query
    for query, count in (("", 1), ("?subjectPrefix=:*:", 4), ("?subjectPrefix=:*:t1", 3)):
        assert len((await web.get(f"/schemas{query}")).json) == count, query
    assert (await web.get("/subjects/:.:t1/versions")).json == [1]
    assert (await web.get("/schemas/ids/1?subject=:.c1:")).json["schema"] == ONE_KEPT
    assert (await web.get("/schemas/ids/1?subject=:.c1:t1")).json["subject"] == ":.c1:t1"
    assert (await web.get("/schemas/ids/1/subjects?subject=:.c1:")).json == [":.c1:t1"]
    assert refusal(await web.get("/schemas/ids/2")) == (404, 40403)
    # A schema missing in the default context may be in another one.
    assert (await web.get("/subjects/t2/versions/1")).json["subject"] == ":.c2:t2"
    assert (await web.post("/subjects/t2", {"schema": TWO})).json["subject"] == ":.c2:t2"


@run_with(on_web)
async def test_path_below_a_context_selects_it(web: Web) -> None:
    for context, subject in (("/contexts/.c1", "s"), ("/contexts/:.c2:", "s"), ("", "d")):
        path = f"{context}/subjects/{subject}/versions"
        assert (await web.post(path, {"schema": ONE})).json["id"] == 1
    assert (await web.post("/contexts/c1/subjects/u/versions", INT)).json["id"] == 2
    for path, found in (
        ("/contexts/.c1/subjects", [":.c1:s", ":.c1:u"]),
        ("/contexts/.c1/subjects?subjectPrefix=u", [":.c1:u"]),
        ("/contexts/.c1/subjects?subjectPrefix=:.c2:", [":.c2:s"]),
        ("/contexts/:.:/subjects", ["d"]),
        ("/contexts/.c1/subjects/s/versions", [1]),
        ("/contexts/.c1/subjects/:.c2:s/versions", [1]),
        ("/contexts/.c1/schemas/ids/2/subjects", [":.c1:u"]),
        ("/contexts/.c1/contexts", [".", ".c1", ".c2"]),
    ):
        assert (await web.get(path)).json == found, path
    assert [row["id"] for row in (await web.get("/contexts/.c1/schemas")).json] == [1, 2]
    assert (await web.get("/contexts/.c1/schemas/ids/2")).json["schema"] == '"int"'
    assert (await web.get("/contexts/.c1/schemas/ids/2/schema")).body == b'"int"'
    assert refusal(await web.get("/contexts/:.:/schemas/ids/2")) == (404, 40403)
    check = "/contexts/.c1/compatibility/subjects/s/versions"
    assert (await web.post(check, INT)).json == {"is_compatible": False}
    assert refusal(await web.get("/contexts/a:b/subjects")) == (422, 42208)
    assert refusal(await web.get("/contexts/.c1/nothing")) == (404, 404)


@run_with(on_web)
async def test_qualified_references_are_returned_on_request(web: Web) -> None:
    await register(web, ":.c1:inner")
    reference = {"name": "R", "subject": "inner", "version": 1}
    outer = {"schema": '{"type": "array", "items": "R"}', "references": [reference]}
    await web.post("/contexts/.c1/subjects/outer/versions", outer)
    for path in (
        "/subjects/:.c1:outer/versions/1?",
        "/contexts/.c1/schemas/ids/2?",
        "/schemas/ids/2?subject=:.c1:outer&",
    ):
        assert (await web.get(path)).json["references"] == [reference]
        (shown,) = (await web.get(f"{path}referenceFormat=qualified")).json["references"]
        assert shown == {**reference, "subject": ":.c1:inner"}


@run_with(on_web)
async def test_context_has_its_own_settings(web: Web) -> None:
    await web.ask("PUT", "/contexts/.c1/config", {"compatibility": "FULL"})
    assert (await web.get("/config/:.c1:")).json == {"compatibilityLevel": "FULL"}
    assert (await web.get("/contexts/.c1/config")).json == {"compatibilityLevel": "FULL"}
    assert (await web.get("/config")).json == {"compatibilityLevel": "BACKWARD"}
    asked = "/contexts/.c1/config/s?defaultToGlobal=true"
    assert (await web.get(asked)).json == {"compatibilityLevel": "FULL"}
    assert refusal(await web.get("/contexts/.c2/config")) == (404, 40408)
    await web.ask("PUT", "/config/:.:", {"compatibility": "NONE"})
    assert (await web.get("/config")).json == {"compatibilityLevel": "NONE"}
    await web.ask("PUT", "/mode/:.c1:", {"mode": "READONLY"})
    assert refusal(await register(web, ":.c1:s")) == (422, 42205)
    assert (await register(web, "s")).status == 200
    assert (await web.ask("DELETE", "/contexts/.c1/mode")).json == {"mode": "READONLY"}
    assert (await register(web, ":.c1:s")).status == 200
    assert (await web.ask("DELETE", "/contexts/.c1/config")).status == 200
    assert refusal(await web.get("/config/:.c1:")) == (404, 40408)


@pytest.mark.parametrize("written", [".c1", "c1", ":.c1:"])
@run_with(on_web)
async def test_empty_context_is_deleted(web: Web, *, written: str) -> None:
    assert refusal(await web.ask("DELETE", f"/contexts/{written}")) == (404, 40401)
    await register(web, ":.c1:s")
    assert refusal(await web.ask("DELETE", f"/contexts/{written}")) == (422, 42211)
    for permanent in ("", "?permanent=true"):
        await web.ask("DELETE", f"/contexts/.c1/subjects/s{permanent}")
    deleted = await web.ask("DELETE", f"/contexts/{written}")
    assert (deleted.status, deleted.body) == (204, b"")
    assert (await web.get("/contexts")).json == ["."]
    assert refusal(await web.ask("DELETE", "/contexts/.")) == (422, 42205)


@pytest.mark.parametrize("subject", ["a\nb", "a\n", "\n", "a\rb", "a\x00b", "a\x85b"])
@run_with(on_web)
async def test_control_character_in_a_path_is_refused_by_the_registry(
    web: Web, *, subject: str
) -> None:
    assert refusal(await register(web, subject)) == (422, 42208)
    assert refusal(await web.post(f"/contexts/.c/subjects/{subject}/versions", INT)) == (
        422,
        42208,
    )
    answer = await web.ask("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    assert refusal(answer) == (422, 42208)
    assert refusal(await web.get(f"/subjects/{subject}/versions")) == (404, 40401)


# -- permissions --------------------------------------------------------------------------------


@run_with(on_web)
async def test_qualified_subject_has_its_own_permissions(web: Web) -> None:
    await register(web, "t-value")
    await register(web, ":.c1:t-value", TWO)
    rights = web.node.rights
    rights.deny(Operation.WRITE, ResourceType.TOPIC, ":.c1:t")
    assert refusal(await register(web, ":.c1:t-value")) == (403, 40301)
    assert (await register(web, "t-value", TWO)).status == 200
    answer = await web.post("/contexts/.c1/subjects/t-value/versions", {"schema": ONE})
    assert refusal(answer) == (403, 40301)
    rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, ":.c1:t")
    assert (await web.get("/subjects")).json == ["t-value"]
    assert refusal(await web.get("/schemas/ids/1?subject=:.c1:")) == (404, 40403)
    assert (await web.get("/schemas/ids/1")).status == 200
    referring = {"references": [{"name": "R", "subject": "t-value", "version": 1}], **INT}
    answer = await web.post("/contexts/.c1/subjects/u/versions", referring)
    assert refusal(answer) == (403, 40301)


@run_with(on_web)
async def test_subject_found_in_another_context_needs_its_own_permission(web: Web) -> None:
    await register(web, ":.c1:t-value")
    paths = (
        *("/subjects/t-value/versions/1", "/subjects/t-value/versions/1/schema"),
        "/schemas/ids/1?subject=t-value",
    )
    for path in paths:
        assert (await web.get(path)).status == 200
    web.node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, ":.c1:t")
    for path in paths:
        assert (await web.get(path)).status == 404, path
    assert refusal(await web.post("/subjects/t-value", {"schema": ONE})) == (404, 40401)


@run_with(on_web)
async def test_context_itself_has_permissions(web: Web) -> None:
    for context in (".c1", ".c2"):
        await register(web, f":{context}:s")
    rights = web.node.rights
    rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, ":.c1:")
    assert (await web.get("/contexts")).json == [".", ".c2"]
    rights.deny(Operation.DELETE, ResourceType.TOPIC, ":.c1:")
    assert refusal(await web.ask("DELETE", "/contexts/.c1")) == (403, 40301)
    rights.deny(Operation.ALTER_CONFIGS, ResourceType.TOPIC, ":.c1:")
    answer = await web.ask("PUT", "/contexts/.c1/config", {"compatibility": "NONE"})
    assert refusal(answer) == (403, 40301)
    rights.deny(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, "kafka-cluster")
    answer = await web.ask("PUT", "/config/:.__GLOBAL:", {"compatibility": "NONE"})
    assert refusal(answer) == (403, 40301)
    answer = await web.ask("PUT", "/contexts/.c2/config", {"compatibility": "NONE"})
    assert answer.status == 200
