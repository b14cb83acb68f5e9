"""How large bodies may be: as the largest message asks for, and not all at once."""

import pytest

from penstock.gateway.http import body_limit
from tests.run_with import run_with
from tests.unit.gateway.http.asking import Web, on_web


@run_with(on_web)
async def test_a_body_over_the_limit_is_a_problem(web: Web) -> None:
    large = b"x" * (web.limit.bytes_max + 1)
    answer = await web.ask("POST", "/topics/t/messages", large)
    assert (answer.status, answer.code) == (413, "MESSAGE_TOO_LARGE")
    assert web.limit.shares.taken == 0


@run_with(on_web)
async def test_the_limit_grows_with_the_largest_message_of_any_topic(web: Web) -> None:
    before = web.limit.bytes_max
    configs = {"max.message.bytes": 10 << 20}
    await web.post("/topics", {"name": "t", "configs": configs})
    assert web.limit.bytes_max > max(before, 10 << 20)
    body = b"x" * (9 << 20)
    answer = await web.ask(
        "POST", "/topics/t/messages", body, content_type="application/octet-stream"
    )
    assert answer.status == 200


def test_too_much_at_once_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "BODIES_BYTES_MAX", 100)

    async def test(web: Web) -> None:
        assert web.limit.shares.take("somebody", 100)
        answer = await web.post("/topics/t/messages", {"payload": "x" * 200})
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        web.limit.shares.give("somebody", 100)
        assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
        assert web.limit.shares.taken == 0

    on_web(test)


def test_one_who_sends_much_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "HOLDER_BYTES_MAX", 100)

    async def test(web: Web) -> None:
        web.who = "User:ann"
        assert web.limit.shares.take(web.who, web.limit.bytes_max), "as if it were being received"
        assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 503
        web.who = "User:bob"
        assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
        web.limit.shares.give("User:ann", web.limit.bytes_max)
        web.who = "User:ann"
        assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
        assert web.limit.shares.taken == 0

    on_web(test)


def test_strangers_leave_room_for_those_who_said_who_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_limit, "ANONYMOUS_BYTES_MAX", 100)

    async def test(web: Web) -> None:
        web.node.rights.is_on = True
        body = {"payload": "x" * 200}
        assert (await web.post("/topics/t/messages", body)).status == 503
        web.who = "User:ann"
        assert (await web.post("/topics/t/messages", body)).status == 200
        assert (web.limit.shares.taken, web.limit.anonymous_bytes) == (0, 0)

    on_web(test)
