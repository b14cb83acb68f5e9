"""Redrive of dead letters by a user with only the permissions for it."""

import base64
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import SyncClient
from tests.guarded import ADMIN, Guarded

OLGA = ("olga", "battery staple")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guarded"), **{"auto.create.topics.enable": "true"})
    try:
        guarded.add_user(*OLGA)
        guarded.run("topic", "create", "orders", "--partitions", "1")
        yield guarded
    finally:
        guarded.process.stop()


def dead_letter(broker: Guarded, payload: bytes) -> None:
    """Publishes a message that a worker rejects; returns when its dead letter exists."""
    security = {"sasl.username": ADMIN[0], "sasl.password": ADMIN[1]}
    with SyncClient(broker.process.bootstrap, security=security) as client:
        client.publish("orders", payload)
        (message,) = client.poll("orders", "workers", wait=30)
        message.reject("it does not work")
    for _ in range(600):
        boxes = json.loads(broker.run("dlq", "list", "--format", "json"))
        if any(box["topic"] == "orders.dlq" and box["letters"] for box in boxes):
            return
    raise TimeoutError("no dead letter came")


def orders(broker: Guarded) -> list[bytes]:
    security = {"sasl.username": ADMIN[0], "sasl.password": ADMIN[1]}
    with SyncClient(broker.process.bootstrap, security=security) as client:
        found = client.poll("orders", "workers", wait=20)
        for message in found:
            message.ack()
        return [message.payload for message in found]


def test_redriver_with_minimal_permissions_redrives_by_command(broker: Guarded) -> None:
    dead_letter(broker, b"one")
    redrive = ("dlq", "redrive", "orders.dlq", "-y")
    refused = broker.attempt(*redrive, who="olga")
    assert refused.returncode != 0
    assert "orders.dlq" in refused.stderr
    broker.run("acl", "allow", "olga", "redriver", "--topic", "orders.dlq")
    refused = broker.attempt(*redrive, who="olga")
    assert refused.returncode != 0, "where it goes needs a right of its own"
    broker.run("acl", "allow", "olga", "write", "--topic", "orders")
    broker.run(*redrive, who="olga")
    assert orders(broker) == [b"one"]
    assert "redrive" in broker.run("dlq", "history", "--format", "json")


def test_http_redrive_needs_permissions_on_source_and_target_only(broker: Guarded) -> None:
    broker.add_user("pete", "open sesame")
    dead_letter(broker, b"two")
    broker.run("acl", "allow", "pete", "read", "--topic", "orders.dlq")
    broker.run("acl", "allow", "pete", "write", "--topic", "orders")
    assert ask(broker, "/dlq/orders.dlq/redrive", {})["letters"] == 1
    assert orders(broker) == [b"two"]


def ask(broker: Guarded, path: str, body: Any) -> Any:
    request = urllib.request.Request(broker.process.http + path, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    token = base64.b64encode(b"pete:open sesame").decode()
    request.add_header("authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)
