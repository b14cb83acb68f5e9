"""Bad requests over HTTP: the right status, helpful errors, and nothing is lost or changed.

Against a broker process. `ROWS` is the table: what is wrong, the request, and the status. After
every one of them the leased message still has its lease, and the queue has the same number of
messages.
"""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.brokers import PenstockProcess

MESSAGES = "/topics/jobs/messages"
HELD, ACKED, EXPIRED, FOREIGN = "{held}", "{acked}", "{expired}", "{foreign}"


class Row(NamedTuple):
    """One bad request; receipts are filled in where they are named."""

    what: str
    method: str
    path: str
    body: Any
    status: int
    code: str = "INVALID_REQUEST"


def settle(what: str, verb: str, body: Any, status: int, code: str = "INVALID_REQUEST") -> Row:
    return Row(what, "POST", f"/{verb}", body, status, code)


LOST = (409, "INVALID_RECORD_STATE")
UNKNOWN_TOPIC = (404, "UNKNOWN_TOPIC_OR_PARTITION")
TOO_LARGE = (413, "MESSAGE_TOO_LARGE")
BAD_NAME = (422, "INVALID_TOPIC_EXCEPTION")
VERBS = ("ack", "nack", "reject", "extend")

ROWS = [
    # Receipts.
    *(settle(f"{verb} a foreign receipt", verb, {"receipt": FOREIGN}, 422) for verb in VERBS),
    *(settle(f"{verb} no receipt", verb, {"receipt": "nonsense"}, 422) for verb in VERBS),
    *(settle(f"{verb} half a receipt", verb, {"receipt": HELD[:-1]}, 422) for verb in VERBS),
    *(settle(f"{verb} an expired receipt", verb, {"receipt": EXPIRED}, *LOST) for verb in VERBS),
    *(settle(f"{verb} after ack", verb, {"receipt": ACKED}, *LOST) for verb in VERBS),
    *(settle(f"{verb} nothing", verb, {}, 422) for verb in VERBS),
    *(settle(f"{verb} an empty list", verb, {"receipts": []}, 422) for verb in VERBS),
    *(settle(f"{verb} a number", verb, {"receipt": 5}, 422) for verb in VERBS),
    # Values.
    settle("nack with a negative delay", "nack", {"receipt": HELD, "delay_ms": -1}, 422),
    settle("nack with a delay of ages", "nack", {"receipt": HELD, "delay_ms": 10**16}, 422),
    settle("nack with a delay in words", "nack", {"receipt": HELD, "delay_ms": "soon"}, 422),
    settle("extend into the past", "extend", {"receipt": HELD, "lock_ms": -1}, 422),
    settle("extend for a year", "extend", {"receipt": HELD, "lock_ms": 31_536_000_000}, 422),
    Row("priority 10", "POST", MESSAGES, {"payload": 1, "priority": 10}, 422),
    Row("priority -1", "POST", MESSAGES, {"payload": 1, "priority": -1}, 422),
    Row("a negative delay", "POST", MESSAGES, {"payload": 1, "delay_ms": -5}, 422),
    Row("bad base64", "POST", MESSAGES, {"payload_base64": "a"}, 422),
    Row("a bad key", "POST", MESSAGES, {"payload": 1, "key_base64": "?"}, 422),
    Row("no payload", "POST", MESSAGES, {}, 422),
    Row("no such partition", "POST", MESSAGES, {"payload": 1, "partition": 99}, 422),
    Row("a header without a name", "POST", MESSAGES, {"payload": 1, "headers": {"": 1}}, 422),
    Row("one bad of two", "POST", MESSAGES, {"messages": [{"payload": 1}, {"payloda": 1}]}, 422),
    Row("a body too large", "POST", MESSAGES, b"x" * (8 << 20), *TOO_LARGE),
    Row("a message too large", "POST", MESSAGES, {"payload": "x" * 2_000_000}, *TOO_LARGE),
    Row("no JSON", "POST", MESSAGES, b"{", 400, "BAD_REQUEST"),
    # Names.
    Row("an unknown queue", "GET", "/topics/nowhere/poll?group=g", None, *UNKNOWN_TOPIC),
    Row("an unknown log", "GET", "/topics/nowhere/poll?group=g&mode=log", None, *UNKNOWN_TOPIC),
    Row("an unknown stream", "GET", "/topics/nowhere/stream?group=g", None, *UNKNOWN_TOPIC),
    Row("no group", "GET", "/topics/jobs/poll", None, 422),
    Row("a max of 0", "GET", "/topics/jobs/poll?group=g&max=0", None, 422),
    Row("a negative wait", "GET", "/topics/jobs/poll?group=g&wait_ms=-1", None, 422),
    Row("an unknown mode", "GET", "/topics/jobs/poll?group=g&mode=stack", None, 422),
    Row("a bad name", "POST", "/topics/a%20b/messages", {"payload": 1}, *BAD_NAME),
    Row("an unknown group", "GET", "/groups/unknown", None, 404, "GROUP_ID_NOT_FOUND"),
    Row("an unknown page", "GET", "/colours", None, 404, "NOT_FOUND"),
    Row("another method", "DELETE", "/ack", None, 405, "METHOD_NOT_ALLOWED"),
    Row(
        "a negative position",
        "POST",
        "/offsets/commit",
        {"group": "l", "topic": "jobs", "partition": 0, "offset": -1},
        422,
    ),
]  # fmt: skip


@dataclass
class Scene:
    """A broker with a queue of three messages: one leased, one that was, one finished."""

    connection: http.client.HTTPConnection
    receipts: dict[str, str]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        self.connection.request(method, path, data)
        response = self.connection.getresponse()
        content = response.read()
        kind = response.headers.get("content-type", "")
        return response.status, kind, json.loads(content) if content else None

    def filled(self, body: Any) -> Any:
        if isinstance(body, dict):
            return {name: self.filled(value) for name, value in body.items()}
        if isinstance(body, str) and body.startswith("{"):
            name = body.strip("{}")
            receipt = self.receipts[name]
            return receipt if body.endswith("}") else receipt[: len(receipt) // 2]
        return body

    def standing(self) -> tuple[int, int]:
        _, _, queue = self.ask("GET", "/topics/jobs/queues/g")
        return queue["leased"], queue["unfinished"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("http")
    sets = {"share.coordinator.state.topic.num.partitions": 1, "offsets.topic.num.partitions": 1}
    other = PenstockProcess(folder / "other", sets)
    elsewhere, foreign = _receipt(other, lock_ms=600_000)
    elsewhere.connection.close()
    other.stop()
    broker = PenstockProcess(folder / "broker", sets)
    scene, held = _receipt(broker, lock_ms=600_000)
    # The other receipts are of other messages, and the first one stays leased throughout.
    scene.ask("POST", MESSAGES, {"messages": [{"payload": "acked"}, {"payload": "expired"}]})
    _, _, found = scene.ask("GET", "/topics/jobs/poll?group=g&max=1")
    acked = found["messages"][0]["receipt"]
    assert scene.ask("POST", "/ack", {"receipt": acked})[0] == 200
    _, _, found = scene.ask("GET", "/topics/jobs/poll?group=g&max=1&lock_ms=1000")
    expired = found["messages"][0]["receipt"]
    # Its next receiver holds it for the rest of the test.
    _, _, found = scene.ask("GET", "/topics/jobs/poll?group=g&max=1&wait_ms=60000&lock_ms=600000")
    assert found["messages"][0]["delivery_count"] == 2
    scene.receipts = {"held": held, "acked": acked, "expired": expired, "foreign": foreign}
    yield scene
    scene.connection.close()
    broker.stop()


def _receipt(broker: PenstockProcess, lock_ms: int) -> tuple[Scene, str]:
    connection = http.client.HTTPConnection(broker.http.removeprefix("http://"), timeout=90)
    scene = Scene(connection, {})
    assert scene.ask("POST", MESSAGES, {"payload": "held"})[0] == 200
    _, _, found = scene.ask("GET", f"/topics/jobs/poll?group=g&wait_ms=30000&lock_ms={lock_ms}")
    return scene, found["messages"][0]["receipt"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_invalid_request_is_refused_and_changes_nothing(scene: Scene, row: Row) -> None:
    before = scene.standing()
    status, kind, answer = scene.ask(row.method, row.path, scene.filled(row.body))
    assert (status, kind) == (row.status, "application/problem+json"), answer
    assert answer["code"] == row.code
    assert answer["status"] == status
    assert len(answer["detail"]) > 10
    assert scene.standing() == before == (2, 2)


def test_lease_is_valid_after_all_invalid_requests(scene: Scene) -> None:
    status, _, answer = scene.ask("POST", "/extend", {"receipt": scene.receipts["held"]})
    assert (status, answer["settled"]) == (200, 1)
    status, _, answer = scene.ask("POST", "/ack", {"receipt": scene.receipts["held"]})
    assert (status, answer["settled"]) == (200, 1)
    assert scene.standing() == (1, 1)
