"""Writes the small data directory that `test_data_directory` opens: a bit of everything.

    python -m tests.golden.data_directory tests/fixtures/data-of-everything.tar.xz

It is made once, by the version whose data later versions have to open, so this module uses only
what every version has: Kafka's protocol by librdkafka, HTTP, SQS by boto3, and the command line.
Beside `data/` the archive has `told.json`: ids and tokens that the broker gave, for the test to
use.
"""

import argparse
import json
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.brokers import COMMAND, PenstockProcess
from tests.clients.aws import client
from tests.ports import free_port
from tests.waiting import eventually

TOLD: Final = "told.json"
KEK: Final = "00" * 31 + "07"
USER, PASSWORD = "bob", "correct horse"
RECORDS: Final = 20
FAR_MS: Final = 4_102_444_800_000
"""The year 2100: such a message is not delivered."""
PLAIN: Final = "plaintext-that-is-not-on-disk"
AVRO: Final = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
JSON_SCHEMA: Final = {"type": "object", "properties": {"id": {"type": "integer"}}}
NEVER: Final = {"retention.ms": "-1"}
TOPICS: Final[Mapping[str, tuple[int, Mapping[str, str]]]] = {
    "orders": (2, {**NEVER, "segment.ms": "50"}),
    "payments": (1, NEVER),
    "settings": (
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "50",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "1",
        },
    ),
    "jobs": (1, NEVER),
    "jobs.dlq": (1, NEVER),
    "secret": (1, {**NEVER, "encryption.enable": "true"}),
}
SHARED: Final = {"share.auto.offset.reset": "earliest", "share.retry.backoff.ms": "0"}
GROUP_CONFIGS: Final = {**SHARED, "share.delivery.count.limit": "7"}


def settings(kek: Path, ports: Sequence[int]) -> dict[str, object]:
    """Broker configs; nothing in the directory may end by its age."""
    plain, secured = ports
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "authorizer.class.name": "acl",
        "super.users": "User:ANONYMOUS",
        "audit.enable": "true",
        "audit.retention.ms": 2**50,
        "encryption.kek.source": f"file:{kek}",
        "log.retention.ms": "-1",
        "offsets.retention.minutes": 2**31 - 1,
        "transactional.id.expiration.ms": 2**31 - 1,
        "producer.id.expiration.ms": 2**31 - 1,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "num.partitions": 1,
    }


class Visitor:
    """A client of one broker, by every protocol."""

    def __init__(self, process: PenstockProcess, ports: Sequence[int]) -> None:
        self.process = process
        self.http = process.http
        self.bootstrap, self.secured = (f"127.0.0.1:{port}" for port in ports)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.http + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.read()!r}") from error
        return json.loads(text) if text else None

    def call(self, *words: str) -> str:
        """The command line; answers what it printed."""
        command = [COMMAND, *words, "-b", self.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def poll(self, topic: str, group: str, count: int, **more: object) -> list[dict[str, Any]]:
        query = "&".join(f"{name}={value}" for name, value in more.items())
        path = f"/topics/{topic}/poll?group={group}&max={count}&wait_ms=2000&{query}"
        messages: list[dict[str, Any]] = self.ask("GET", path)["messages"]
        return messages

    def publish(self, topic: str, *messages: Mapping[str, object]) -> list[dict[str, Any]]:
        placed: list[dict[str, Any]] = self.ask(
            "POST", f"/topics/{topic}/messages", {"messages": messages}
        )["messages"]
        return placed

    def dead_letters(self, topic: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", f"/dlq/{topic}")["letters"]
        return found


def write(visitor: Visitor) -> dict[str, Any]:
    """Fills the broker; answers what the test needs to know."""
    told: dict[str, Any] = {}
    for name, (partitions, configs) in TOPICS.items():
        new = NewTopic(name, partitions, 1, config=dict(configs))
        visitor.admin.create_topics([new])[name].result(30)
    _records(visitor)
    _groups(visitor)
    _transactions(visitor)
    told |= _queue(visitor)
    told |= _registry(visitor)
    told |= _rights(visitor)
    told |= _sqs(visitor, told["access_key"])
    visitor.call("quota", "set", "--user", USER, "producer_byte_rate=1048576")
    visitor.call("config", "set", "message.max.bytes=1048000")
    visitor.call("config", "set", "max.connections=500", "--broker", "1")
    return told


def _records(visitor: Visitor) -> None:
    producer = Producer(
        {"bootstrap.servers": visitor.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    for number in range(RECORDS):
        producer.produce(
            "orders",
            b"order %d %s" % (number, b"." * 100),
            b"key %d" % number,
            partition=number % 2,
            headers={"number": b"%d" % number},
            timestamp=1_700_000_000_000 + number,
        )
        producer.flush(30)
    for number in range(12):
        producer.produce("settings", b"value %d" % number, b"name %d" % (number % 3), partition=0)
        assert producer.flush(30) == 0
    producer.produce("secret", PLAIN.encode(), partition=0)
    assert producer.flush(30) == 0


def _groups(visitor: Visitor) -> None:
    for group, protocol in (("billing", "classic"), ("shipping", "consumer")):
        consumer = Consumer(
            {
                "bootstrap.servers": visitor.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["orders"])
        seen = 0
        while seen < RECORDS:
            seen += sum(message.error() is None for message in consumer.consume(100, 1))
        offsets = [
            TopicPartition("orders", 0, 7, f"beside {group}"),
            TopicPartition("orders", 1, 9),
        ]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()


def _transactions(visitor: Visitor) -> None:
    """One that was committed with a position, one aborted, and one that stays open."""
    reader = Consumer({"bootstrap.servers": visitor.bootstrap, "group.id": "ledger"})
    for name, values, ends in (
        ("done", (b"committed 0", b"committed 1"), True),
        ("undone", (b"aborted",), False),
        ("open", (b"open",), None),
    ):
        producer = Producer(
            {"bootstrap.servers": visitor.bootstrap, "transactional.id": name, "log_level": 0}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce("payments", value, partition=0)
        assert producer.flush(30) == 0
        if ends:
            metadata = reader.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition("orders", 0, 5)], metadata, 30)
            producer.commit_transaction(30)
        elif ends is False:
            producer.abort_transaction(30)
        else:
            KEPT.append(producer)
    reader.close()


KEPT: Final[list[Producer]] = []
"""Producers whose transactions stay open until the broker has stopped."""


def _queue(visitor: Visitor) -> dict[str, Any]:
    """Messages that are done, leased, given up, given back, delayed, and sent back."""
    visitor.ask("PATCH", "/groups/workers/configs", GROUP_CONFIGS)
    names = ("done", "leased", "rejected", "again", "returned")
    visitor.publish("jobs", *({"payload": name, "key": name} for name in names))
    found: dict[str, dict[str, Any]] = {}
    while len(found) < len(names):
        found |= {one["payload"]: one for one in visitor.poll("jobs", "workers", 5)}
    receipts = {name: one["receipt"] for name, one in found.items()}
    visitor.ask("POST", "/ack", {"receipts": [receipts["done"]]})
    why = {"error": "no such customer", "error_class": "ValueError"}
    for name in ("rejected", "returned"):
        visitor.ask("POST", "/reject", {"receipts": [receipts[name]], **why})
    visitor.ask("POST", "/nack", {"receipts": [receipts["again"]], "delay_ms": 0})
    eventually(lambda: len(visitor.dead_letters("jobs.dlq")) == 2, "two dead letters")
    dead_letter = next(
        one for one in visitor.dead_letters("jobs.dlq") if one["message"]["payload"] == "returned"
    )
    visitor.ask("POST", "/dlq/jobs.dlq/redrive", {"letters": [dead_letter["letter"]]})
    visitor.publish(
        "jobs",
        {"payload": "far", "deliver_at_ms": FAR_MS},
        {"payload": "soon", "delay_ms": 1},
        {"payload": "first", "priority": 9, "headers": {"color": "red"}},
    )
    return {"receipt": receipts["leased"]}


def _registry(visitor: Visitor) -> dict[str, Any]:
    avro = {"schema": json.dumps(AVRO)}
    of_json = {"schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"}
    ids = {
        "avro": visitor.ask("POST", "/subjects/orders-value/versions", avro)["id"],
        "json": visitor.ask("POST", "/subjects/jobs-value/versions", of_json)["id"],
        "context": visitor.ask("POST", "/subjects/:.eu:orders-value/versions", avro)["id"],
    }
    visitor.ask("PUT", "/config/orders-value", {"compatibility": "FULL"})
    visitor.ask("PUT", "/mode/jobs-value", {"mode": "READONLY"})
    return {"schemas": ids}


def _rights(visitor: Visitor) -> dict[str, Any]:
    rows = [
        UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), PASSWORD.encode()
        )
    ]
    visitor.admin.alter_user_scram_credentials(rows)[USER].result(30)
    for kind, name, pattern, operation in (
        (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, AclOperation.ALL),
        (ResourceType.TOPIC, "sqs-", ResourcePatternType.PREFIXED, AclOperation.ALL),
        (ResourceType.TOPIC, "sns-", ResourcePatternType.PREFIXED, AclOperation.ALL),
        (ResourceType.GROUP, "*", ResourcePatternType.LITERAL, AclOperation.ALL),
    ):
        allowed = (f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
        binding = AclBinding(kind, name, pattern, *allowed)
        visitor.admin.create_acls([binding])[binding].result(30)
    key = json.loads(visitor.call("user", "key", "create", USER, "--format", "json"))
    return {"access_key": [key["access_key"], key["secret"]]}


def _sqs(visitor: Visitor, key: Sequence[str]) -> dict[str, Any]:
    with client("sqs", visitor.http, *key) as sqs, client("sns", visitor.http, *key) as sns:
        attributes = {"VisibilityTimeout": "60", "MessageRetentionPeriod": "1209600"}
        url = sqs.create_queue(QueueName="sqs-work", Attributes=attributes, tags={"team": "a"})[
            "QueueUrl"
        ]
        number = {"DataType": "Number", "StringValue": "1.5"}
        message_id = sqs.send_message(
            QueueUrl=url, MessageBody="from sqs", MessageAttributes={"number": number}
        )["MessageId"]
        topic = sns.create_topic(Name="sns-news", Tags=[{"Key": "team", "Value": "a"}])["TopicArn"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        sns.subscribe(
            TopicArn=topic,
            Protocol="sqs",
            Endpoint=arn["QueueArn"],
            Attributes={"RawMessageDelivery": "true"},
        )
    # The queue's retention would delete its messages: it is a topic, so its config is changed.
    visitor.ask("PATCH", "/topics/sqs-work/configs", {"retention.ms": "-1"})
    return {"message_id": message_id, "sns_topic": topic}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.data_directory")
    parser.add_argument("archive", type=Path, help="where the archive is written to")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "kek").write_text(KEK + "\n")
        ports = free_port(), free_port()
        process = PenstockProcess(root / "data", settings(root / "kek", ports))
        try:
            told = write(Visitor(process, ports))
            logs = root / "data" / "logs"
            eventually(lambda: any(logs.glob("settings.*/0/gaps")), "it is compacted", 120)
        finally:
            process.stop()
        (root / TOLD).write_text(json.dumps(told, indent=1))
        with tarfile.open(given.archive, "w:xz", preset=9) as archive:
            for name in ("data", TOLD):
                archive.add(root / name, name, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
