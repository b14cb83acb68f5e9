"""HTTP with users: the same ones as Kafka's, with the same rights."""

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import COMMAND, QUICK, PenstockProcess

ADMIN = ("admin", "correct horse")
ALICE = ("alice", "battery staple")


class Guarded:
    """A broker that asks who is there, with the user alice, who may use one topic."""

    def __init__(self, directory: Path) -> None:
        (directory / "admin").write_text(ADMIN[1] + "\n")
        (directory / "alice").write_text(ALICE[1] + "\n")
        self.process = PenstockProcess(
            directory / "data",
            {
                **QUICK,
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "authorizer.class.name": "acl",
                "admin.password.file": directory / "admin",
            },
        )
        self._properties = directory / "admin.properties"
        self._properties.write_text(f"sasl.username={ADMIN[0]}\nsasl.password={ADMIN[1]}\n")
        self.run("user", "set", "alice", "--password-file", str(directory / "alice"))
        self.run("topic", "create", "orders")
        self.run(
            "acl", "allow", "alice", "producer", "consumer", "--topic", "orders", "--group", "g"
        )

    def run(self, *arguments: str) -> None:
        command = [COMMAND, "--command-config", str(self._properties), *arguments]
        command += ["-b", self.process.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

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
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guarded"))
    try:
        yield guarded
    finally:
        guarded.process.stop()


MESSAGE = {"payload": {"id": 1}}


def test_a_user_with_the_right_publishes_and_polls(broker: Guarded) -> None:
    for _ in range(3):
        status, _ = broker.ask("/topics/orders/messages", MESSAGE, ALICE)
        assert status in (200, 201)
    status, found = broker.ask("/topics/orders/poll?group=g&max=1&wait_ms=5000", who=ALICE)
    assert status == 200
    assert len(found["messages"]) == 1


def test_who_does_not_say_who_they_are_is_asked(broker: Guarded) -> None:
    status, told = broker.ask("/topics/orders/messages", MESSAGE)
    assert status == 401
    assert broker.asked is not None
    assert broker.asked.startswith("Basic")
    assert told["code"] == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize("who", [("alice", "wrong"), ("nobody", "x"), ("__node", "x"), ("", "")])
def test_a_wrong_password_is_refused_before_anything_is_done(
    broker: Guarded, who: tuple[str, str]
) -> None:
    status, told = broker.ask("/topics/orders/messages", MESSAGE, who)
    assert status == 401
    assert told["detail"] == "Authentication failed: wrong user, password or token."


def test_a_user_without_the_right_is_forbidden(broker: Guarded) -> None:
    broker.run("topic", "create", "payroll")
    status, told = broker.ask("/topics/payroll/messages", MESSAGE, ALICE)
    assert status == 403
    assert told["code"] == "TOPIC_AUTHORIZATION_FAILED"
    status, listed = broker.ask("/topics", who=ALICE)
    assert status == 200
    assert "payroll" not in json.dumps(listed)
    assert broker.ask("/topics/payroll/messages", MESSAGE, ADMIN)[0] in (200, 201)


def test_a_password_that_was_remembered_is_forgotten_when_it_changes(broker: Guarded) -> None:
    assert broker.ask("/topics/orders", who=ALICE)[0] == 200
    broker.run("user", "delete", "alice", "-y")
    assert broker.ask("/topics/orders", who=ALICE)[0] == 401


def test_health_is_everybodys_business(broker: Guarded) -> None:
    with urllib.request.urlopen(broker.process.http + "/healthz", timeout=30) as reply:
        assert reply.status == 200
