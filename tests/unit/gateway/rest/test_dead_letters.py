"""Dead letters over HTTP: list, show, count, redrive, purge."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.consumer import record_reader
from tests.run_with import run_with
from tests.unit.broker.api.harness import Rights
from tests.unit.client.on_cluster import WatchedWorkers
from tests.unit.coordinator.queueing import pack
from tests.unit.gateway.http.served_node import dead_letter, depth, on_served
from tests.unit.gateway.http.web import Web


@run_with(on_served)
async def test_dead_letters_are_listed_shown_and_counted(web: Web) -> None:
    await dead_letter(web, "a", "b", "c")
    await dead_letter(web, "d", error="ValueError")
    (box,) = (await web.get("/dlq")).json["topics"]
    assert (box["topic"], box["letters"]) == ("t.dlq", 4)
    answer = (await web.get("/dlq/t.dlq", error_class="Time*", limit=2)).json
    assert answer["has_more"]
    assert [one["message"]["payload"] for one in answer["letters"]] == ["a", "b"]
    letter = (await web.get("/dlq/t.dlq/letters/0:3")).json
    assert (letter["error_class"], letter["group"]) == ("ValueError", "g")
    assert letter["source"] == {"topic": "t", "partition": 0, "offset": 3}
    kinds = (await web.get("/dlq/t.dlq/stats", by="class")).json
    counted = {kind["name"]["error"]: kind["count"] for kind in kinds["kinds"]}
    assert counted == {"Timeout": 3, "ValueError": 1}


@run_with(on_served)
async def test_dead_letters_are_redriven_once(web: Web) -> None:
    await dead_letter(web, "a", "b", "c")
    dry = (await web.post("/dlq/t.dlq/redrive", {"dry_run": True})).json
    assert (dry["executed"], dry["letters"], len(dry["first"])) == (False, 3, 3)
    done = (await web.post("/dlq/t.dlq/redrive", {"letters": ["0:1", "0:2"]})).json
    assert (done["executed"], done["letters"]) == (True, 2)
    assert done["targets"] == [{"topic": "t", "partition": 0, "letters": 2}]
    assert [one["payload"] for one in await web.poll(max=10)] == ["b", "c"]
    assert (await web.post("/dlq/t.dlq/redrive", {"letters": ["0:1"]})).json["letters"] == 0
    assert await depth(web, "t.dlq") == 1


@run_with(on_served)
async def test_dead_letter_is_redriven_with_another_payload(web: Web) -> None:
    await dead_letter(web, "wrong")
    body = {"letters": ["0:0"], "payload": {"right": True}}
    assert (await web.post("/dlq/t.dlq/redrive", body)).json["letters"] == 1
    assert [one["payload"] for one in await web.poll()] == [{"right": True}]
    refused = await web.post("/dlq/t.dlq/redrive", {"payload": "for all?"})
    assert (refused.status, refused.code) == (422, "INVALID_REQUEST")


@run_with(on_served)
async def test_purge_of_all_dead_letters_must_be_explicit(web: Web) -> None:
    await dead_letter(web, "a", "b")
    assert (await web.post("/dlq/t.dlq/purge", {})).code == "INVALID_REQUEST"
    assert (await web.post("/dlq/t.dlq/purge", {"all": True})).json["letters"] == 2
    assert await depth(web, "t.dlq") == 0


@run_with(on_served)
async def test_invalid_requests_are_refused(web: Web) -> None:
    await dead_letter(web, "a")
    assert (await web.get("/dlq/nowhere")).status == 404
    assert (await web.get("/dlq/t.dlq/letters/0:99")).status == 404
    assert (await web.get("/dlq/t.dlq/letters/x")).code == "INVALID_REQUEST"
    assert (await web.get("/dlq/t.dlq", source_partition="x")).code == "INVALID_REQUEST"
    assert (await web.post("/dlq/t.dlq/redrive", {"rate": 0})).code == "INVALID_REQUEST"
    assert (await web.post("/dlq/t.dlq/redrive", {"limit": 0})).code == "INVALID_REQUEST"
    assert (await web.post("/dlq/t.dlq/redrive", {"erorr": "x"})).status == 422


def without_write_permission(test: Callable[[Web], Awaitable[None]]) -> None:
    """Runs a test as a user who may not write to the topic `other`."""
    rights = Rights()
    rights.deny(Operation.WRITE, ResourceType.TOPIC, "other")
    on_served(test, rights)


@run_with(without_write_permission)
async def test_redrive_to_a_topic_without_write_permission_is_refused(web: Web) -> None:
    await dead_letter(web, "a")
    answer = await web.post("/dlq/t.dlq/redrive", {"to": "other"})
    # Not 403, because the client is anonymous.
    assert (answer.status, answer.code) == (401, "TOPIC_AUTHORIZATION_FAILED")
    assert await depth(web, "t.dlq") == 1


@run_with(on_served)
async def test_background_redrive_reports_its_progress(web: Web) -> None:
    await dead_letter(web, "a", "b", "c")
    begun = await web.post("/dlq/t.dlq/redrive", {"background": True})
    assert (begun.status, begun.json["status"]) == (202, "running")
    path = f"/dlq/t.dlq/tasks/{begun.json['task']}"
    while (now := (await web.get(path)).json)["status"] == "running":
        await asyncio.sleep(0.05)
    assert (now["status"], now["settled"]) == ("completed", 3)
    assert now["targets"] == [{"topic": "t", "partition": 0, "letters": 3}]
    assert (await web.get("/dlq/t.dlq/tasks")).json["tasks"] == [now]
    assert [one["payload"] for one in await web.poll(max=10)] == ["a", "b", "c"]
    assert (await web.get("/dlq/t.dlq/tasks/none")).status == 404
    assert (await web.get(path.replace("t.dlq", "t"))).status == 404


@run_with(on_served)
async def test_cancelled_background_redrive_is_resumed_by_another(web: Web) -> None:
    await dead_letter(web, *"abcdef")
    begun = await web.post("/dlq/t.dlq/redrive", {"background": True, "rate": 1})
    path = f"/dlq/t.dlq/tasks/{begun.json['task']}"
    while not (now := (await web.get(path)).json)["settled"]:
        await asyncio.sleep(0.05)
    assert (now["status"], now["settled"] < 6) == ("running", True)
    stopped = (await web.ask("DELETE", path)).json
    assert (stopped["status"], stopped["settled"] < 6) == ("cancelled", True)
    assert (await web.post("/dlq/t.dlq/redrive", {})).json["letters"] == 6 - stopped["settled"]
    assert [one["payload"] for one in await web.poll(max=10)] == list("abcdef")


@run_with(without_write_permission)
async def test_failed_background_redrive_reports_the_reason(web: Web) -> None:
    await dead_letter(web, "a")
    path = "/dlq/t.dlq/redrive"
    assert (await web.post(path, {"background": True, "limit": 0})).code == "INVALID_REQUEST"
    begun = await web.post(path, {"background": True, "to": "other"})
    path = f"/dlq/t.dlq/tasks/{begun.json['task']}"
    while (now := (await web.get(path)).json)["status"] == "running":
        await asyncio.sleep(0.05)
    assert now["status"] == "failed"
    assert "other" in now["reason"]


@run_with(on_served)
async def test_compressed_dead_letters_are_decompressed_by_workers(web: Web) -> None:
    """A mebibyte of them decompresses to seventy: on the loop, all clients would wait a second."""

    await dead_letter(web, "small")
    web.node.ctx.admin.workers = workers = WatchedWorkers()
    assert len((await web.get("/dlq/t.dlq")).json["letters"]) == 1
    assert record_reader.__name__ not in workers.modules
    await pack(web.node, 1 << 19, 1 << 19, topic="t.dlq")
    for method, path, body in (
        ("GET", "/dlq/t.dlq", None),
        ("GET", "/dlq/t.dlq/letters/0:2", None),
        ("GET", "/dlq/t.dlq/stats?by=key", None),
        ("POST", "/dlq/t.dlq/redrive", {"dry_run": True}),
        ("POST", "/dlq/t.dlq/redrive", {"letters": ["0:0", "0:1"], "to": "t"}),
        ("POST", "/dlq/t.dlq/purge", {"all": True}),
    ):
        workers.modules.clear()
        answer = await web.ask(method, path, body)
        assert (answer.status, record_reader.__name__ in workers.modules) == (200, True), path
    assert await depth(web, "t.dlq") == 0
    found = await web.poll(max=10)
    assert [len(one["payload"]) for one in found] == [len("small"), 1 << 19]
