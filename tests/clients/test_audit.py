"""The audit log of a broker with authentication: every protocol, one entry each, never a secret."""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from tests.clients import aws
from tests.clients.secured import PASSWORD, USER, Secured, secured
from tests.clients.test_cli import Cli

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

WAIT_S = 30
ADMIN = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {"sqs.credentials": "key:secret"}
    with secured(tmp_path_factory.mktemp("audit"), **settings) as found:
        yield found


def read(broker: Secured, *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(
        Cli(broker.at("PLAINTEXT")).ok("audit", "--format", "json", *options)
    )
    return rows


def wait_for(broker: Secured, count: int, *options: str) -> list[dict[str, Any]]:
    """Entries are written a moment after the answer."""
    deadline = time.monotonic() + WAIT_S
    while len(rows := read(broker, *options)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(rows) == count, rows
    return rows


def ask(method: str, url: str, body: object = None, auth: tuple[str, str] | None = None) -> int:
    """The status of an answer."""
    request = urllib.request.Request(url, method=method)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("content-type", "application/json")
    if auth is not None:
        token = base64.b64encode(":".join(auth).encode()).decode()
        request.add_header("authorization", f"Basic {token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def bob(broker: Secured) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.at("SASL_SSL"),
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": broker.ca_file,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
    )


def test_kafka_requests_are_audited(broker: Secured, topic: str) -> None:
    broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    broker.add_user(f"user-of-{topic}", "a secret password")
    broker.allow(f"User:user-of-{topic}", AclOperation.READ, topic=topic)
    (created,) = wait_for(broker, 1, "--action", "CreateTopics", "--resource", f"topic:{topic}")
    assert (created["principal"], created["outcome"]) == (ADMIN, "done")
    assert (created["peer"], created["door"]) == ("127.0.0.1", "kafka")
    wait_for(broker, 1, "--resource", f"user:user-of-{topic}")
    wait_for(broker, 1, "--resource", f"acl:topic:{topic}")
    outsider = bob(broker)
    for _ in range(5):
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            outsider.delete_topics([topic])[topic].result(30)
    (denied,) = wait_for(broker, 1, "--principal", USER, "--action", "DeleteTopics")
    assert (denied["outcome"], denied["codes"]) == ("denied", ["TOPIC_AUTHORIZATION_FAILED"])
    assert denied["resources"] == [f"topic:{topic}"]
    assert "a secret password" not in json.dumps(read(broker))


def test_http_and_registry_requests_are_audited(broker: Secured, topic: str) -> None:
    url = broker.process.http
    as_bob = (USER, PASSWORD)
    assert ask("POST", f"{url}/topics", {"name": topic}) == 201
    (created,) = wait_for(broker, 1, "--action", "POST /topics", "--resource", f"topic:{topic}")
    assert (created["door"], created["principal"]) == ("http", ADMIN)
    assert ask("DELETE", f"{url}/topics/{topic}", auth=as_bob) == 403
    (denied,) = wait_for(broker, 1, "--action", "DELETE *", "--outcome", "denied")
    assert (denied["principal"], denied["resources"]) == (f"User:{USER}", [f"topic:{topic}"])
    assert ask("GET", f"{url}/topics", auth=(USER, "wrong")) == 401
    wait_for(broker, 1, "--action", "Authenticate", "--endpoint", "http")
    schema = {"schema": '"string"'}
    subject = f"{url}/subjects/{topic}-value/versions"
    assert ask("POST", subject, schema, as_bob) == 403
    assert ask("POST", subject, schema) == 200
    about = ("--endpoint", "registry", "--resource", f"subject:{topic}-value")
    assert [row["outcome"] for row in wait_for(broker, 2, *about)] == ["denied", "done"]


def test_sqs_requests_are_audited(broker: Secured, topic: str) -> None:
    queue = topic[:80].rstrip("-")
    with (
        aws.client("sqs", broker.process.http) as sqs,
        pytest.raises(ClientError, match="AccessDenied"),
    ):
        sqs.create_queue(QueueName=queue)
    (denied,) = wait_for(broker, 1, "--endpoint", "sqs", "--action", "CreateQueue")
    assert (denied["outcome"], denied["principal"]) == ("denied", "User:key")
    with aws.client("sqs", broker.process.http, secret="wrong") as sqs, pytest.raises(ClientError):
        sqs.list_queues()
    wait_for(broker, 1, "--endpoint", "sqs", "--action", "Authenticate")


def test_audit_topic_is_protected_and_survives_a_restart(
    broker: Secured,
) -> None:
    before = len(read(broker, "-n", "1000"))
    assert before
    broker.process.kill()
    broker.process.start()
    assert len(read(broker, "-n", "1000")) >= before
    cli = Cli(broker.at("PLAINTEXT"))
    first = json.loads(cli.ok("consume", "__audit", "-o", "start", "-n", "1", "-f", "%v\n"))
    assert {"time_ms", "principal", "peer", "action", "outcome", "door"} <= first.keys()
    produced = cli.run("produce", "__audit", given=b"forged")
    assert produced.returncode != 0
