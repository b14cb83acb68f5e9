"""HTTP with users: the same ones as Kafka's, with the same rights."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guarded import ADMIN, Guarded

ALICE = ("alice", "battery staple")


class Site(Guarded):
    """With the user alice, who may use one topic."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.add_user(*ALICE)
        self.run("topic", "create", "orders")
        names = ("--topic", "orders", "--group", "g")
        self.run("acl", "allow", "alice", "producer", "consumer", *names)

    def ask(
        self, path: str, body: Any = None, who: tuple[str, str] | None = None
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.process.http + path, data)
        request.add_header("content-type", "application/json")
        if who is not None:
            token = base64.b64encode(":".join(who).encode()).decode()
            request.add_header("authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                self.asked = error.headers.get("www-authenticate")
                return error.code, json.load(error)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    guarded = Site(tmp_path_factory.mktemp("guarded"))
    try:
        yield guarded
    finally:
        guarded.process.stop()


MESSAGE = {"payload": {"id": 1}}


def test_authorized_user_publishes_and_polls(broker: Site) -> None:
    for _ in range(3):
        status, _ = broker.ask("/topics/orders/messages", MESSAGE, ALICE)
        assert status in (200, 201)
    status, found = broker.ask("/topics/orders/poll?group=g&max=1&wait_ms=5000", who=ALICE)
    assert status == 200
    assert len(found["messages"]) == 1


def test_anonymous_request_is_challenged(broker: Site) -> None:
    status, told = broker.ask("/topics/orders/messages", MESSAGE)
    assert status == 401
    assert broker.asked is not None
    assert broker.asked.startswith("Basic")
    assert told["code"] == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("who", [("alice", "wrong"), ("unknown", "x"), ("__node", "x"), ("", "")])
def test_wrong_password_is_refused_before_any_change(broker: Site, who: tuple[str, str]) -> None:
    status, told = broker.ask("/topics/orders/messages", MESSAGE, who)
    assert status == 401
    assert told["detail"] == "Authentication failed: wrong user, password or token."


def test_unauthorized_user_is_forbidden(broker: Site) -> None:
    broker.run("topic", "create", "payroll")
    status, told = broker.ask("/topics/payroll/messages", MESSAGE, ALICE)
    assert status == 403
    assert told["code"] == "TOPIC_AUTHORIZATION_FAILED"
    status, listed = broker.ask("/topics", who=ALICE)
    assert status == 200
    assert "payroll" not in json.dumps(listed)
    assert broker.ask("/topics/payroll/messages", MESSAGE, ADMIN)[0] in (200, 201)


def test_cached_password_is_invalid_after_the_user_is_deleted(broker: Site) -> None:
    assert broker.ask("/topics/orders", who=ALICE)[0] == 200
    broker.run("user", "delete", "alice", "-y")
    assert broker.ask("/topics/orders", who=ALICE)[0] == 401


def test_health_needs_no_authentication(broker: Site) -> None:
    with urllib.request.urlopen(broker.process.http + "/healthz", timeout=30) as reply:
        assert reply.status == 200
