"""Settling over HTTP: ack, nack, reject, extend; single, batched, repeated, late."""

import asyncio

import pytest

from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web

VERBS = ("ack", "nack", "reject", "extend")


@pytest.mark.parametrize("prefix", ["", "/topics/t"])
@run_with(on_web)
async def test_acknowledged_messages_are_not_redelivered(web: Web, *, prefix: str) -> None:
    await web.publish(*range(3))
    found = await web.poll(lock_ms=1_000)
    body = {"receipts": [one["receipt"] for one in found]}
    answer = await web.post(prefix + "/ack", body)
    assert (answer.status, answer.json) == (200, {"settled": 3, "errors": []})
    await asyncio.sleep(5)
    assert await web.poll() == []


@run_with(on_web)
async def test_nacked_message_is_redelivered_after_its_delay(web: Web) -> None:
    await web.publish("a", "b")
    first, second = await web.poll()
    messages = [
        {"receipt": first["receipt"], "delay_ms": 0},
        {"receipt": second["receipt"], "delay_ms": 3_000, "error": "busy"},
    ]
    assert (await web.post("/nack", {"messages": messages})).json["settled"] == 2
    assert [one["payload"] for one in await web.poll()] == ["a"]
    (again,) = await web.poll(wait_ms=10_000)
    assert (again["payload"], again["delivery_count"]) == ("b", 2)


@run_with(on_web)
async def test_rejected_message_is_dead_lettered(web: Web) -> None:
    await web.publish("bad")
    (message,) = await web.poll()
    body = {"receipt": message["receipt"], "error": "no such user", "error_class": "Unknown"}
    assert (await web.post("/reject", body)).status == 200
    await asyncio.sleep(2)
    (letter,) = await web.poll("t.dlq")
    assert letter["payload"] == "bad"
    assert letter["headers"]["penstock-dlq-error-message"] == "no such user"
    assert letter["headers"]["penstock-dlq-error-class"] == "Unknown"


@run_with(on_web)
async def test_extension_counts_from_now(web: Web) -> None:
    await web.publish("x")
    (message,) = await web.poll(lock_ms=2_000)
    for _ in range(3):
        await asyncio.sleep(1.5)
        body = {"receipt": message["receipt"], "lock_ms": 2_000}
        assert (await web.post("/extend", body)).status == 200
    assert (await web.post("/ack", {"receipt": message["receipt"]})).status == 200


@pytest.mark.parametrize("verb", VERBS)
@run_with(on_web)
async def test_ended_lease_is_a_conflict(web: Web, *, verb: str) -> None:
    await web.publish("x")
    (message,) = await web.poll(lock_ms=1_000)
    await asyncio.sleep(2)
    answer = await web.post(f"/{verb}", {"receipt": message["receipt"]})
    assert (answer.status, answer.code) == (409, "INVALID_RECORD_STATE")
    (again,) = await web.poll(wait_ms=60_000)
    assert (await web.post("/ack", {"receipt": again["receipt"]})).status == 200
    answer = await web.post(f"/{verb}", {"receipt": again["receipt"]})
    assert (answer.status, answer.code) == (409, "INVALID_RECORD_STATE")


@run_with(on_web)
async def test_valid_receipts_are_settled_beside_invalid_ones(web: Web) -> None:
    await web.publish(*range(3))
    receipts = [one["receipt"] for one in await web.poll()]
    await web.post("/ack", {"receipt": receipts[1]})
    answer = await web.post("/ack", {"receipts": [*receipts, "nonsense"]})
    assert (answer.status, answer.json["settled"]) == (207, 2)
    codes = [(one["index"], one["status"]) for one in answer.json["errors"]]
    assert codes == [(1, 409), (3, 422)]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"receipts": []},
        {"receipt": ""},
        {"receipt": 5},
        {"receipt": "a", "receipts": ["b"]},
        {"receipt": "AAAA"},
        {"receipt": "no base64!"},
        {"receipt": "a", "colour": 1},
    ],
    ids=str,
)
@run_with(on_web)
async def test_text_that_is_not_a_receipt_is_refused(web: Web, *, verb: str, body: object) -> None:
    answer = await web.post(f"/{verb}", body)
    assert (answer.status, answer.code) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("verb", "values"),
    [
        ("nack", {"delay_ms": -1}),
        ("nack", {"delay_ms": 10**15}),
        ("nack", {"delay_ms": "soon"}),
        ("extend", {"lock_ms": -1}),
        ("extend", {"lock_ms": 10**9}),
    ],
)
@run_with(on_web)
async def test_invalid_values_are_refused_and_the_lease_stays(
    web: Web, *, verb: str, values: dict[str, object]
) -> None:
    await web.publish("x")
    (message,) = await web.poll()
    answer = await web.post(f"/{verb}", {"receipt": message["receipt"], **values})
    assert (answer.status, answer.code) == (422, "INVALID_REQUEST")
    assert (await web.post("/ack", {"receipt": message["receipt"]})).status == 200


@run_with(on_web)
async def test_receipt_of_a_deleted_topic_is_not_found(web: Web) -> None:
    await web.publish("x")
    (message,) = await web.poll()
    assert (await web.ask("DELETE", "/topics/t")).status == 204
    answer = await web.post("/ack", {"receipt": message["receipt"]})
    assert (answer.status, answer.code) == (404, "UNKNOWN_TOPIC_ID")
