"""Streaming: delivery, prefetch limit, release at the end, errors."""

import asyncio
import json
from typing import Any

from tests.run_with import run_with
from tests.unit.gateway.http.web import PendingRequest, Web, on_web


def events(request: PendingRequest) -> list[dict[str, Any]]:
    """Returns the messages received so far."""
    found = []
    for block in request.answer.body.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[1:])
        if lines.get("event") == "message":
            found.append({"id": lines["id"], **json.loads(lines["data"])})
    return found


async def stream(web: Web, query: str) -> PendingRequest:
    request = web.begin("GET", f"/topics/t/stream?{query}")
    await asyncio.sleep(1)
    return request


@run_with(on_web)
async def test_stream_delivers_messages_as_they_are_published(web: Web) -> None:
    await web.publish("a")
    request = await stream(web, "group=g")
    assert request.answer.headers["content-type"].startswith("text/event-stream")
    assert [one["payload"] for one in events(request)] == ["a"]
    await web.publish({"b": 1})
    await asyncio.sleep(1)
    assert [one["id"] for one in events(request)] == ["0:0", "0:1"]
    assert events(request)[1]["payload"] == {"b": 1}
    await request.disconnect()


@run_with(on_web)
async def test_stream_stops_at_the_prefetch_limit(web: Web) -> None:
    await web.publish(*range(10))
    request = await stream(web, "group=g&prefetch=3")
    for count in (3, 4, 5):
        assert len(events(request)) == count
        receipt = events(request)[count - 3]["receipt"]
        assert (await web.post("/ack", {"receipt": receipt})).status == 200
        await asyncio.sleep(1)
    await request.disconnect()


@run_with(on_web)
async def test_expired_leases_free_prefetch_capacity(web: Web) -> None:
    await web.publish(*range(4))
    request = await stream(web, "group=g&prefetch=2&lock_ms=3000")
    assert [one["payload"] for one in events(request)] == [0, 1]
    await asyncio.sleep(3)
    assert len(events(request)) == 4
    await request.disconnect()


@run_with(on_web)
async def test_messages_of_a_lost_stream_are_released_at_once(web: Web) -> None:
    await web.publish(*range(3))
    request = await stream(web, "group=g")
    assert len(events(request)) == 3
    await web.post("/ack", {"receipt": events(request)[0]["receipt"]})
    await request.disconnect()
    found = await web.poll()
    assert [(one["payload"], one["delivery_count"]) for one in found] == [(1, 2), (2, 2)]


@run_with(on_web)
async def test_idle_stream_sends_keep_alives(web: Web) -> None:
    await web.publish("x")
    await web.post("/ack", {"receipt": (await web.poll())[0]["receipt"]})
    request = await stream(web, "group=g")
    await asyncio.sleep(61)
    assert request.answer.body.count(b": still here") >= 4
    await request.disconnect()


@run_with(on_web)
async def test_log_is_streamed_from_the_committed_offset(web: Web) -> None:
    await web.publish(*range(3))
    commit = {"group": "g", "topic": "t", "partition": 0, "offset": 1}
    await web.post("/offsets/commit", commit)
    request = await stream(web, "group=g&mode=log")
    await web.publish(3)
    await asyncio.sleep(1)
    assert [one["payload"] for one in events(request)] == [1, 2, 3]
    await request.disconnect()


@run_with(on_web)
async def test_streams_end_when_the_server_stops(web: Web) -> None:
    await web.publish("x")
    request = await stream(web, "group=g")
    web.state.waits.end()
    answer = await request.ended()
    assert answer.status == 200
    assert [one["delivery_count"] for one in await web.poll()] == [2]


@run_with(on_web)
async def test_errors_are_reported_before_the_stream_starts(web: Web) -> None:
    await web.publish("x")
    for query in ("", "group=g&prefetch=0", "group=g&mode=heap"):
        answer = await web.ask("GET", f"/topics/t/stream?{query}")
        assert (answer.status, answer.code) == (422, "INVALID_REQUEST")
    answer = await web.ask("GET", "/topics/nowhere/stream?group=g")
    assert answer.status == 404
