"""Server-sent events: messages as they come, no more than are settled, and what is left is free."""

import asyncio
import json
from typing import Any

from tests.run_with import run_with
from tests.unit.gateway.http.asking import Visit, Web, on_web


def events(visit: Visit) -> list[dict[str, Any]]:
    """The messages that have come so far."""
    found = []
    for block in visit.answer.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[1:])
        if lines.get("event") == "message":
            found.append({"id": lines["id"], **json.loads(lines["data"])})
    return found


async def stream(web: Web, query: str) -> Visit:
    visit = web.begin("GET", f"/topics/t/stream?{query}")
    await asyncio.sleep(1)
    return visit


@run_with(on_web)
async def test_messages_come_as_they_are_published(web: Web) -> None:
    await web.publish("a")
    visit = await stream(web, "group=g")
    assert visit.answer.headers["content-type"].startswith("text/event-stream")
    assert [one["payload"] for one in events(visit)] == ["a"]
    await web.publish({"b": 1})
    await asyncio.sleep(1)
    assert [one["id"] for one in events(visit)] == ["0:0", "0:1"]
    assert events(visit)[1]["payload"] == {"b": 1}
    await visit.hang_up()


@run_with(on_web)
async def test_no_more_messages_come_than_are_settled(web: Web) -> None:
    await web.publish(*range(10))
    visit = await stream(web, "group=g&prefetch=3")
    for count in (3, 4, 5):
        assert len(events(visit)) == count
        receipt = events(visit)[count - 3]["receipt"]
        assert (await web.post("/ack", {"receipt": receipt})).status == 200
        await asyncio.sleep(1)
    await visit.hang_up()


@run_with(on_web)
async def test_leases_that_run_out_make_room(web: Web) -> None:
    await web.publish(*range(4))
    visit = await stream(web, "group=g&prefetch=2&lock_ms=3000")
    assert [one["payload"] for one in events(visit)] == [0, 1]
    await asyncio.sleep(3)
    assert len(events(visit)) == 4
    await visit.hang_up()


@run_with(on_web)
async def test_what_a_lost_stream_held_is_free_at_once(web: Web) -> None:
    await web.publish(*range(3))
    visit = await stream(web, "group=g")
    assert len(events(visit)) == 3
    await web.post("/ack", {"receipt": events(visit)[0]["receipt"]})
    await visit.hang_up()
    found = await web.poll()
    assert [(one["payload"], one["delivery_count"]) for one in found] == [(1, 2), (2, 2)]


@run_with(on_web)
async def test_somebody_who_hears_nothing_hears_that(web: Web) -> None:
    await web.publish("x")
    await web.post("/ack", {"receipt": (await web.poll())[0]["receipt"]})
    visit = await stream(web, "group=g")
    await asyncio.sleep(61)
    assert visit.answer.body.count(b": still here") >= 4
    await visit.hang_up()


@run_with(on_web)
async def test_a_log_is_streamed_from_the_groups_position(web: Web) -> None:
    await web.publish(*range(3))
    commit = {"group": "g", "topic": "t", "partition": 0, "offset": 1}
    await web.post("/offsets/commit", commit)
    visit = await stream(web, "group=g&mode=log")
    await web.publish(3)
    await asyncio.sleep(1)
    assert [one["payload"] for one in events(visit)] == [1, 2, 3]
    await visit.hang_up()


@run_with(on_web)
async def test_streams_end_when_the_server_stops(web: Web) -> None:
    await web.publish("x")
    visit = await stream(web, "group=g")
    web.state.waits.end()
    answer = await visit.ended()
    assert answer.status == 200
    assert [one["delivery_count"] for one in await web.poll()] == [2]


@run_with(on_web)
async def test_what_is_wrong_is_said_before_the_stream_begins(web: Web) -> None:
    await web.publish("x")
    for query in ("", "group=g&prefetch=0", "group=g&mode=heap"):
        answer = await web.ask("GET", f"/topics/t/stream?{query}")
        assert (answer.status, answer.code) == (422, "INVALID_REQUEST")
    answer = await web.ask("GET", "/topics/nowhere/stream?group=g")
    assert answer.status == 404
