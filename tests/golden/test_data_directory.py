"""A data directory of an earlier version opens, and everything in it is served.

`data-of-everything.tar.xz` was written by the last version before modules, classes and functions
were renamed; see `data_directory` for what is in it.
"""

import base64
import json
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.clients.aws import client
from tests.conftest import FreshBroker
from tests.golden.data_directory import (
    AVRO,
    GROUP_CONFIGS,
    KEK,
    PASSWORD,
    PLAIN,
    RECORDS,
    TOLD,
    USER,
    Visitor,
    settings,
)
from tests.ports import free_port
from tests.waiting import eventually

ARCHIVE: Final = Path(__file__).parents[1] / "fixtures" / "data-of-everything.tar.xz"

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
Opening = tuple[Visitor, dict[str, Any]]


@pytest.fixture(params=["stopped", "killed"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, fresh_broker: FreshBroker) -> Opening:
    """A broker on the directory; `killed`: as if its last life had not stopped cleanly."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    if request.param == "killed":
        (tmp_path / "data" / "clean-shutdown").unlink()
    (tmp_path / "kek").write_text(KEK + "\n")
    ports = free_port(), free_port()
    process = fresh_broker(tmp_path / "data", settings(tmp_path / "kek", ports))
    return Visitor(process, ports), json.loads((tmp_path / TOLD).read_text())


def test_data_of_an_earlier_version_is_served(opened: Opening) -> None:
    """One broker for all of it: each part is a function below."""
    visitor, told = opened
    assert "offline" not in visitor.process.log()
    for check in (_records, _compacted, _encrypted, _groups, _transactions, _configs, _audit):
        check(visitor)
    for check_told in (_registry, _queue, _rights, _sqs):
        check_told(visitor, told)
    _goes_on(visitor)


def read(
    visitor: Visitor, topic: str, partition: int = 0, isolation: str = "read_uncommitted"
) -> list[Any]:
    """All messages that there are now."""
    consumer = Consumer(
        {
            "bootstrap.servers": visitor.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Any] = []
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic}-{partition} says nothing"
            if message.error() is not None:
                return found
            found.append(message)
    finally:
        consumer.close()


def _records(visitor: Visitor) -> None:
    for partition in (0, 1):
        found = read(visitor, "orders", partition)
        numbers = range(partition, RECORDS, 2)
        assert [message.value()[:9].split()[1] for message in found] == _texts(numbers)
        assert [message.key() for message in found] == [b"key %d" % one for one in numbers]
        assert [message.headers() for message in found] == [
            [("number", b"%d" % one)] for one in numbers
        ]
        times = [message.timestamp()[1] - 1_700_000_000_000 for message in found]
        assert times == list(numbers)


def _texts(numbers: range) -> list[bytes]:
    return [b"%d" % one for one in numbers]


def _compacted(visitor: Visitor) -> None:
    last = {message.key(): message.value() for message in read(visitor, "settings")}
    assert last == {b"name %d" % one: b"value %d" % (9 + one) for one in range(3)}


def _encrypted(visitor: Visitor) -> None:
    assert [message.value() for message in read(visitor, "secret")] == [PLAIN.encode()]
    (log,) = visitor.process.data_dir.glob("logs/secret.*/0/*.log")
    assert PLAIN.encode() not in log.read_bytes()


def _groups(visitor: Visitor) -> None:
    for group in ("billing", "shipping"):
        assert _committed(visitor, group) == [(7, f"beside {group}"), (9, None)]
    found = visitor.admin.list_consumer_groups().result(30).valid
    kinds = {one.group_id: one.type.name for one in found}
    assert (kinds["billing"], kinds["shipping"]) == ("CLASSIC", "CONSUMER")


def _committed(visitor: Visitor, group: str) -> list[tuple[int, str | None]]:
    """Offset and text of a group's positions; listed as an administrator, librdkafka may crash
    where the broker refuses."""
    consumer = Consumer({"bootstrap.servers": visitor.bootstrap, "group.id": group})
    try:
        rows = consumer.committed([TopicPartition("orders", 0), TopicPartition("orders", 1)], 30)
        return [(row.offset, row.metadata) for row in rows]
    finally:
        consumer.close()


def _transactions(visitor: Visitor) -> None:
    committed = [b"committed 0", b"committed 1"]
    found = [message.value() for message in read(visitor, "payments", 0, "read_committed")]
    assert found == committed, "the aborted one and the open one are left out"
    assert _committed(visitor, "ledger")[0][0] == 5
    # The same producer in a new life: what it left open is aborted, and it goes on.
    producer = Producer({"bootstrap.servers": visitor.bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("payments", b"later", partition=0)
    producer.commit_transaction(30)
    found = [message.value() for message in read(visitor, "payments", 0, "read_committed")]
    assert found == [*committed, b"later"]


def _configs(visitor: Visitor) -> None:
    shown = visitor.ask("GET", "/groups/workers/configs")["configs"]
    values = {one["name"]: one["value"] for one in shown}
    assert {name: values[name] for name in GROUP_CONFIGS} == GROUP_CONFIGS
    shown = visitor.ask("GET", "/topics/settings/configs")["configs"]
    assert {one["name"]: one["value"] for one in shown}["cleanup.policy"] == "compact"
    told = visitor.call("config", "list", "--format", "json")
    assert "1048000" in told
    told = visitor.call("config", "list", "--broker", "1", "--format", "json")
    assert '"500"' in told
    told = visitor.call("quota", "list", "--format", "json")
    assert USER in told
    assert "1048576" in told


def _audit(visitor: Visitor) -> None:
    entries = [json.loads(message.value()) for message in read(visitor, "__audit")]
    actions = {entry["action"] for entry in entries}
    assert {"CreateTopics", "CreateAcls", "AlterUserScramCredentials", "Register"} <= actions


def _registry(visitor: Visitor, told: dict[str, Any]) -> None:
    ids = told["schemas"]
    assert json.loads(visitor.ask("GET", f"/schemas/ids/{ids['avro']}")["schema"]) == AVRO
    assert visitor.ask("GET", f"/schemas/ids/{ids['json']}")["schemaType"] == "JSON"
    versions = visitor.ask("GET", "/subjects/:.eu:orders-value/versions/1")
    assert versions["id"] == ids["context"]
    assert visitor.ask("GET", "/config/orders-value")["compatibilityLevel"] == "FULL"
    assert visitor.ask("GET", "/mode/jobs-value")["mode"] == "READONLY"
    again = visitor.ask("POST", "/subjects/orders-value/versions", {"schema": json.dumps(AVRO)})
    assert again["id"] == ids["avro"]
    other = {"schema": '"string"'}
    new = visitor.ask("POST", "/subjects/others-value/versions", other)["id"]
    assert new > max(ids["avro"], ids["json"]), "no id is given twice"


def _queue(visitor: Visitor, told: dict[str, Any]) -> None:
    (dead_letter,) = visitor.dead_letters("jobs.dlq")
    assert dead_letter["message"]["payload"] == "rejected"
    assert (dead_letter["error_class"], dead_letter["error_message"]) == (
        "ValueError",
        "no such customer",
    )
    assert dead_letter["source"]["topic"] == "jobs"
    # A receipt of then is understood: its lease has ended, and it is one of this cluster's.
    with pytest.raises(AssertionError) as refused:
        visitor.ask("POST", "/ack", {"receipt": told["receipt"]})
    assert "no receipt" not in str(refused.value)
    found: dict[str, dict[str, Any]] = {}

    def take() -> bool:
        found.update({one["payload"]: one for one in visitor.poll("jobs", "workers", 10)})
        return len(found) >= 5

    eventually(take, "five messages", explain=lambda: sorted(found))
    counts = {name: one["delivery_count"] for name, one in found.items()}
    assert counts == {"leased": 2, "again": 2, "returned": 1, "soon": 1, "first": 1}
    assert next(iter(found)) == "first", "the one with the highest priority"
    assert found["first"]["headers"]["color"] == "red"
    visitor.ask("POST", "/ack", {"receipts": [one["receipt"] for one in found.values()]})
    assert visitor.poll("jobs", "workers", 10) == [], "what is delayed is not delivered"
    stands = visitor.ask("GET", "/topics/jobs/queues/workers")
    assert "delayed" in json.dumps(stands)
    redriven = visitor.ask("POST", "/dlq/jobs.dlq/redrive", {"letters": [dead_letter["letter"]]})
    assert redriven["letters"] == 1
    (message,) = eventually(lambda: visitor.poll("jobs", "workers", 10), "the redriven one")
    assert message["payload"] == "rejected"


def _rights(visitor: Visitor, told: dict[str, Any]) -> None:
    anything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    rows = visitor.admin.describe_acls(anything).result(30)
    assert {(row.restype.name, row.name, row.resource_pattern_type.name) for row in rows} == {
        ("TOPIC", "orders", "LITERAL"),
        ("TOPIC", "sqs-", "PREFIXED"),
        ("TOPIC", "sns-", "PREFIXED"),
        ("GROUP", "*", "LITERAL"),
    }
    assert {row.principal for row in rows} == {f"User:{USER}"}
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        assert _send_as(visitor, mechanism, PASSWORD, "orders") == []
        assert _send_as(visitor, mechanism, PASSWORD, "payments") != []
    assert _status(visitor, "/topics/orders", PASSWORD) == 200
    assert _status(visitor, "/topics/payments", PASSWORD) in (403, 404)
    assert _status(visitor, "/topics/orders", "wrong") == 401


def _send_as(visitor: Visitor, mechanism: str, password: str, topic: str) -> list[object]:
    """Errors of one record that a user sends."""
    errors: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": visitor.secured,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
            "message.timeout.ms": 20_000,
            "log_level": 0,
        }
    )

    def note(error: object, message: object) -> None:
        if error is not None:
            errors.append(error)

    try:
        producer.produce(
            topic, b"of a user", partition=1 if topic == "orders" else 0, on_delivery=note
        )
        producer.flush(30)
    except KafkaException as error:
        errors.append(error)
    return errors


def _status(visitor: Visitor, path: str, password: str) -> int:
    login = base64.b64encode(f"{USER}:{password}".encode()).decode()
    request = urllib.request.Request(
        visitor.http + path, headers={"authorization": f"Basic {login}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _sqs(visitor: Visitor, told: dict[str, Any]) -> None:
    key = told["access_key"]
    with client("sqs", visitor.http, *key) as sqs, client("sns", visitor.http, *key) as sns:
        url = sqs.get_queue_url(QueueName="sqs-work")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert attributes["VisibilityTimeout"] == "60"
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a"}
        sns.publish(TopicArn=told["sns_topic"], Message="from sns")
        found: dict[str, Any] = {}

        def take() -> bool:
            answer = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
            )
            found.update({one["Body"]: one for one in answer.get("Messages", [])})
            return len(found) == 2

        eventually(take, "a message of then and one of now", explain=lambda: sorted(found))
        assert found["from sqs"]["MessageId"] == told["message_id"]
        number = found["from sqs"]["MessageAttributes"]["number"]
        assert number == {"DataType": "Number", "StringValue": "1.5"}
        assert "from sns" in found
        for one in found.values():
            sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])


def _goes_on(visitor: Visitor) -> None:
    """New records are there after a kill, beside the old ones."""
    ends = [len(read(visitor, "orders", partition)) for partition in (0, 1)]
    producer = Producer({"bootstrap.servers": visitor.bootstrap, "enable.idempotence": True})
    for partition in (0, 1):
        producer.produce("orders", b"order 99", partition=partition)
    assert producer.flush(30) == 0
    visitor.process.kill()
    visitor.process.start()
    visitor.http = visitor.process.http
    for partition in (0, 1):
        values = [message.value() for message in read(visitor, "orders", partition)]
        assert len(values) == ends[partition] + 1
        assert values[-1] == b"order 99"
    assert visitor.poll("jobs", "workers", 10) == []
