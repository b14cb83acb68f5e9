"""Topics over HTTP: create, describe, configure, grow, delete."""

from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


@run_with(on_web)
async def test_topic_is_created_described_grown_and_deleted(web: Web) -> None:
    body = {"name": "t", "partitions": 2, "configs": {"queue.order": "key"}}
    created = await web.post("/topics", body | {"retention_ms": 60_000})
    assert created.status == 201
    assert created.json["configs"] == {"queue.order": "key", "retention.ms": "60000"}
    await web.publish("x")
    described = (await web.get("/topics/t")).json
    assert [row["leader"] for row in described["partitions"]] == [1, 1]
    assert sum(row["end_offset"] for row in described["partitions"]) == 1
    grown = await web.post("/topics/t/partitions", {"partitions": 3})
    assert len(grown.json["partitions"]) == 3
    assert (await web.get("/topics")).json["topics"] == [
        {"name": "t", "partitions": 3, "replication_factor": 1}
    ]
    assert (await web.ask("DELETE", "/topics/t")).status == 204
    assert (await web.get("/topics/t")).code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (await web.ask("DELETE", "/topics/t")).status == 404


@run_with(on_web)
async def test_configs_are_shown_set_and_unset(web: Web) -> None:
    await web.post("/topics", {"name": "t"})

    async def retention() -> tuple[str, bool]:
        rows = (await web.get("/topics/t/configs")).json["configs"]
        (row,) = [row for row in rows if row["name"] == "retention.ms"]
        return row["value"], row["is_set"]

    default = await retention()
    assert not default[1]
    answer = await web.ask("PATCH", "/topics/t/configs", {"retention.ms": 1000})
    assert answer.status == 204
    assert await retention() == ("1000", True)
    await web.ask("PATCH", "/topics/t/configs", {"retention.ms": None})
    assert await retention() == default
    for bad in ({"retention.mss": 1}, {"retention.ms": "soon"}, {}):
        assert (await web.ask("PATCH", "/topics/t/configs", bad)).status == 422


@run_with(on_web)
async def test_invalid_topics_are_refused(web: Web) -> None:
    await web.post("/topics", {"name": "t"})
    assert (await web.post("/topics", {"name": "t"})).status == 409
    bad = (
        {"name": "a b"},
        {"name": ""},
        {"name": "u", "partitions": 0},
        {"name": "u", "replication_factor": 9},
        {"name": "u", "configs": {"colour": "blue"}},
        {"partitions": 1},
    )
    for body in bad:
        assert (await web.post("/topics", body)).status == 422, body


@run_with(on_web)
async def test_internal_topics_are_listed_on_request_and_not_readable(web: Web) -> None:
    await web.publish("x")
    await web.publish("x", topic="__dead_letter_audit")  # As a redrive does.
    await web.poll()
    assert [one["name"] for one in (await web.get("/topics")).json["topics"]] == ["t"]
    shown = (await web.get("/topics", internal="true")).json["topics"]
    assert "__share_group_state" in [one["name"] for one in shown]
    answer = await web.get("/topics/__share_group_state/poll", group="g")
    assert answer.status == 422
    answer = await web.post("/topics/__share_group_state/messages", {"payload": 1})
    assert answer.status == 422
