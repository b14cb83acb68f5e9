"""Size limits of request bodies, single and in all."""

import pytest

from penstock.gateway.http import body_limit
from tests.run_with import run_with
from tests.unit.gateway.http.web import Web, on_web


@run_with(on_web)
async def test_body_over_the_limit_is_refused(web: Web) -> None:
    large = b"x" * (web.limit.bytes_max + 1)
    answer = await web.ask("POST", "/topics/t/messages", large)
    assert (answer.status, answer.code) == (413, "MESSAGE_TOO_LARGE")
    assert web.limit.shares.taken == 0


@run_with(on_web)
async def test_body_limit_follows_the_largest_message_size(web: Web) -> None:
    before = web.limit.bytes_max
    configs = {"max.message.bytes": 10 << 20}
    await web.post("/topics", {"name": "t", "configs": configs})
    assert web.limit.bytes_max > max(before, 10 << 20)
    body = b"x" * (9 << 20)
    answer = await web.ask(
        "POST", "/topics/t/messages", body, content_type="application/octet-stream"
    )
    assert answer.status == 200


def test_bodies_above_the_total_limit_get_503(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_one_sender_cannot_use_the_total_limit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limit, "HOLDER_BYTES_MAX", 100)

    async def test(web: Web) -> None:
        web.who = "User:ann"
        assert web.limit.shares.take(web.who, web.limit.bytes_max), (
            "stands for a body being received"
        )
        assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 503
        web.who = "User:bob"
        assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
        web.limit.shares.give("User:ann", web.limit.bytes_max)
        web.who = "User:ann"
        assert (await web.post("/topics/t/messages", {"payload": "x"})).status == 200
        assert web.limit.shares.taken == 0

    on_web(test)


def test_anonymous_bodies_leave_capacity_for_authenticated_ones(
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
