"""Publishing over HTTP: one or many messages, JSON, bytes, refusals."""

from typing import Any

import pytest

from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web

MESSAGES = "/topics/t/messages"


@run_with(on_web)
async def test_response_has_the_place_of_the_message(web: Web) -> None:
    first = await web.post(MESSAGES, {"key": "k", "payload": {"a": 1}, "headers": {"h": "1"}})
    assert first.status == 200
    assert (first.json["partition"], first.json["offset"]) == (0, 0)
    second = await web.post(MESSAGES, {"payload": "x"})
    assert second.json["offset"] == 1
    assert second.json["message_id"] != first.json["message_id"]


@run_with(on_web)
async def test_many_messages_are_answered_in_order(web: Web) -> None:
    messages = [{"payload": n} for n in range(5)]
    answer = await web.post(MESSAGES, {"messages": messages})
    assert [entry["offset"] for entry in answer.json["messages"]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "payload",
    ["text", "", "123", '{"a": 1}', "{not json", 5, 1.5, True, None, {"a": [1]}, [], "ü\n"],
    ids=repr,
)
@run_with(on_web)
async def test_payload_round_trips(web: Web, *, payload: object) -> None:
    await web.publish(payload)
    (message,) = await web.poll()
    assert message["payload"] == payload
    assert "payload_base64" not in message


@run_with(on_web)
async def test_bytes_round_trip_as_base64(web: Web) -> None:
    body = {
        "payload_base64": "AP8=",
        "key_base64": "/w==",
        "headers": {"h": {"base64": "gA=="}},
    }
    assert (await web.post(MESSAGES, body)).status == 200
    (message,) = await web.poll()
    assert (message["payload_base64"], message["key_base64"]) == ("AP8=", "/w==")
    assert (message["payload"], message["key"]) == (None, None)
    assert message["headers"]["h"] == {"base64": "gA=="}


@run_with(on_web)
async def test_plain_body_is_the_payload(web: Web) -> None:
    answer = await web.ask(
        "POST",
        MESSAGES + "?key=k&priority=3&dedup_id=d",
        b"\x00\xff",
        content_type="application/octet-stream",
        penstock_header_colour="blue",
    )
    assert answer.status == 200
    (message,) = await web.poll()
    assert (message["key"], message["payload_base64"]) == ("k", "AP8=")
    assert message["headers"]["colour"] == "blue"
    assert message["headers"]["penstock-priority"] == "3"


@run_with(on_web)
async def test_headers_keep_values_and_repetitions(web: Web) -> None:
    headers = {"s": "x", "n": 5, "b": True, "none": None, "l": ["1", "2"]}
    await web.post(MESSAGES, {"payload": 1, "headers": headers})
    (message,) = await web.poll()
    shown = message["headers"]
    assert (shown["s"], shown["n"], shown["b"], shown["none"]) == ("x", "5", "true", None)
    assert shown["l"] == ["1", "2"]


@run_with(on_web)
async def test_envelope_is_added_with_the_trace_of_the_request(web: Web) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    await web.ask("POST", MESSAGES, {"payload": 1}, traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    own = {"message_id": "m", "trace_id": "t", "retry_count": "2"}
    await web.post(MESSAGES, {"payload": 2, "headers": own})
    first, second = await web.poll()
    assert (first["trace_id"], first["retry_count"]) == (trace, 0)
    assert len(first["message_id"]) == 36
    assert (second["message_id"], second["trace_id"], second["retry_count"]) == ("m", "t", 2)


@run_with(on_web)
async def test_delayed_message_is_delivered_when_due(web: Web) -> None:
    await web.post(MESSAGES, {"payload": "later", "delay_ms": 2000})
    assert await web.poll() == []
    (message,) = await web.poll(wait_ms=10_000)
    assert message["payload"] == "later"


@run_with(on_web)
async def test_same_dedup_id_is_delivered_once(web: Web) -> None:
    for _ in range(3):
        await web.post(MESSAGES, {"payload": "once", "dedup_id": "d"})
    assert len(await web.poll(max=10)) == 1


BAD: dict[str, Any] = {
    "priority 10": {"payload": 1, "priority": 10},
    "a negative delay": {"payload": 1, "delay_ms": -1},
    "bad base64": {"payload_base64": "!"},
    "a bad key": {"payload": 1, "key_base64": "!"},
    "a key that is not text": {"payload": 1, "key": 5},
    "no payload": {"key": "k"},
    "two payloads": {"payload": 1, "payload_base64": ""},
    "a missing partition": {"payload": 1, "partition": 7},
    "an empty dedup id": {"payload": 1, "dedup_id": ""},
    "an unknown field": {"payload": 1, "prority": 1},
    "no messages": {"messages": []},
    "a list": [],
}


@pytest.mark.parametrize("what", BAD)
@run_with(on_web)
async def test_invalid_values_are_refused_and_nothing_is_written(web: Web, *, what: str) -> None:
    await web.publish("there")
    answer = await web.post(MESSAGES, BAD[what])
    assert (answer.status, answer.code) == (422, "INVALID_REQUEST")
    if isinstance(BAD[what], dict) and "messages" not in BAD[what]:
        both = await web.post(MESSAGES, {"messages": [{"payload": "good"}, BAD[what]]})
        assert both.status == 422
        assert "messages[1]" in both.json["detail"]
    assert [one["payload"] for one in await web.poll()] == ["there"]


@run_with(on_web)
async def test_malformed_json_is_a_bad_request(web: Web) -> None:
    for body in (b"{", b"", b"\xff", b'{"payload": 1} x'):
        answer = await web.ask("POST", MESSAGES, body)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST")


@run_with(on_web, {"message.max.bytes": "10000"})
async def test_too_large_message_is_refused_and_others_are_written(web: Web) -> None:
    large = "x" * 20_000
    answer = await web.post(MESSAGES, {"payload": large})
    assert (answer.status, answer.code) == (413, "MESSAGE_TOO_LARGE")
    both = await web.post(MESSAGES, {"messages": [{"payload": large}, {"payload": "small"}]})
    assert both.status == 207
    assert [entry.get("code") for entry in both.json["messages"]] == ["MESSAGE_TOO_LARGE", None]
    assert [one["payload"] for one in await web.poll()] == ["small"]


@run_with(on_web, {"auto.create.topics.enable": "false"})
async def test_unknown_topic_is_not_found_without_auto_creation(web: Web) -> None:
    answer = await web.post(MESSAGES, {"payload": 1})
    assert (answer.status, answer.code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


@run_with(on_web)
async def test_empty_request_body_is_a_bad_request(web: Web) -> None:
    answer = await web.ask("POST", "/topics/t/messages", b"")
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")


@run_with(on_web)
async def test_plain_body_supports_all_message_options(web: Web) -> None:
    query = "key=k&timestamp_ms=1000&deliver_at_ms=1&expires_at_ms=9000000000000&priority=3"
    answer = await web.ask(
        "POST", f"/topics/t/messages?{query}", b"x", **{"content-type": "text/plain"}
    )
    assert answer.status == 200, answer.json
    assert answer.json["timestamp_ms"] == 1000
