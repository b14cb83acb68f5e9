"""Encryption at rest with real clients: what is planted is found by consumers, and nowhere else."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.brokers import PenstockProcess
from tests.chaos.writers import create_topic
from tests.clients.test_cli import Cli
from tests.conftest import FreshBroker
from tests.files import contents_below
from tests.processes import ProcessFailed
from tests.waiting import eventually

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

PLANTED = b"sesame-7c1e-open"
OLD, NEW = "11" * 32, "22" * 32


def found_in(directory: Path) -> list[str]:
    """Files that hold what was planted."""
    files = dict(contents_below(directory))
    assert len(files) > 5
    return [str(path) for path, data in files.items() if PLANTED in data]


def consume(
    broker: PenstockProcess, topic: str, count: int, group: str = "readers", patience_s: float = 30
) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    for number in range(count):
        message = consumer.poll(patience_s)
        assert message is not None, f"only {number} of {count}"
        assert message.error() is None
        assert (message.key(), message.value()) == (PLANTED, PLANTED * 20)
        assert message.headers() == [(PLANTED.decode(), PLANTED)]
    return consumer


def produce(broker: PenstockProcess, topic: str, count: int, **options: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **options})
    if "transactional.id" in options:
        producer.init_transactions(30)
        producer.begin_transaction()
    for _ in range(count):
        headers = [(PLANTED.decode(), PLANTED)]
        producer.produce(topic, PLANTED * 20, PLANTED, 0, headers=headers)
    assert producer.flush(30) == 0
    if "transactional.id" in options:
        producer.abort_transaction(30)


def test_encrypted_records_are_served_and_nowhere_on_disk(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str
) -> None:
    kek = tmp_path / "kek"
    kek.write_text(OLD)
    sets = {"encryption.kek.source": f"command:cat {kek}", "encryption.enable": "true"}
    data = tmp_path / "data"
    broker = fresh_broker(data, sets=sets)
    create_topic(broker.bootstrap, topic, 1, segment_bytes="1048576")
    produce(broker, topic, 1500)
    produce(broker, topic, 1500, **{"compression.type": "none", "batch.size": 4096})
    produce(broker, topic, 50, **{"transactional.id": f"id-{topic}"})
    consumer = consume(broker, topic, 3000)
    position = TopicPartition(topic, 0, 7, metadata=PLANTED.decode())
    consumer.commit(offsets=[position], asynchronous=False)
    assert found_in(data) == []
    broker.kill()
    assert found_in(data) == []
    broker.start()
    consumer.close()
    consumer = consume(broker, topic, 3000)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
    assert (committed.offset, committed.metadata) == (7, PLANTED.decode())
    consumer.close()
    assert broker.stop() == 0
    assert found_in(data) == []
    assert "Traceback" not in broker.log_path.read_text()


def test_search_finds_unencrypted_records(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str
) -> None:
    """Without the broker's default only the topics that say so are encrypted."""
    kek = tmp_path / "kek"
    kek.write_text(OLD)
    broker = fresh_broker(tmp_path / "data", sets={"encryption.kek.source": f"file:{kek}"})
    create_topic(broker.bootstrap, topic, 1, encryption_enable="true")
    create_topic(broker.bootstrap, f"plain-{topic}", 1)
    produce(broker, topic, 100)
    assert found_in(tmp_path / "data") == []
    produce(broker, f"plain-{topic}", 100)
    assert all(f"plain-{topic}" in path for path in found_in(tmp_path / "data"))
    assert found_in(tmp_path / "data")
    cli = Cli(broker.bootstrap)
    cli.ok("topic", "alter", topic, "-c", "encryption.enable=false")
    produce(broker, topic, 100)
    consume(broker, topic, 200).close()
    assert any(f"logs/{topic}" in path for path in found_in(tmp_path / "data"))


def test_dead_letters_of_an_encrypted_topic_are_encrypted(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str
) -> None:
    kek = tmp_path / "kek"
    kek.write_text(OLD)
    data = tmp_path / "data"
    broker = fresh_broker(data, sets={"encryption.kek.source": f"file:{kek}"})
    create_topic(broker.bootstrap, topic, 1, encryption_enable="true")
    produce(broker, topic, 1)
    (message,) = ask(broker, f"/topics/{topic}/poll?group=g&wait_ms=20000")["messages"]
    assert message["payload"] == (PLANTED * 20).decode()
    ask(broker, "/reject", {"receipt": message["receipt"], "error_class": "Bad"})
    path = f"/topics/{topic}.dlq/poll?group=h&wait_ms=20000"
    eventually(lambda: dead_letter_of(broker, path) == message["payload"], "a dead letter")
    assert found_in(data) == []


def ask(broker: PenstockProcess, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.http + path, data)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read() or b"null")


def dead_letter_of(broker: PenstockProcess, path: str) -> str | None:
    try:
        messages = ask(broker, path)["messages"]
    except urllib.error.HTTPError as error:  # It is not there yet.
        error.close()
        return None
    return messages[0]["payload"] if messages else None


def test_keys_are_rotated_from_the_command_line(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kek = tmp_path / "kek"
    monkeypatch.setenv("PENSTOCK_TEST_KEK", OLD)
    sets = {"encryption.kek.source": "env:PENSTOCK_TEST_KEK"}
    broker = fresh_broker(tmp_path / "data", sets=sets)
    create_topic(broker.bootstrap, topic, 3, encryption_enable="true")
    produce(broker, topic, 10)
    cli = Cli(broker.bootstrap)

    def uses() -> dict[str | None, int]:
        rows = json.loads(cli.ok("encryption", "status", "--format", "json"))
        return {row["key"]: row["logs"] for row in rows}

    assert sorted(uses().values()) == [0, 3]
    assert broker.stop() == 0
    kek.write_text(f"{cli.ok('encryption', 'new-key')}{OLD}\n")
    broker.sets = {"encryption.kek.source": f"file:{kek}"}
    broker.start()
    cli = Cli(broker.bootstrap)
    assert sorted(uses().values()) == [0, 0, 3]
    assert "3 logs now use" in cli.ok("encryption", "rotate")
    assert "0 logs" in cli.ok("encryption", "rotate")
    new = kek.read_text().splitlines()[0]
    kek.write_text(new)
    cli.ok("encryption", "rotate")
    assert sorted(uses().values()) == [0, 3]
    broker.kill()
    kek.write_text(OLD)
    with pytest.raises(ProcessFailed, match=r"does not contain.*nothing was changed"):
        broker.start()
    kek.write_text(new)
    broker.start()
    consume(broker, topic, 10).close()


def test_tampered_records_are_never_served(
    fresh_broker: FreshBroker, tmp_path: Path, topic: str
) -> None:
    kek = tmp_path / "kek"
    kek.write_text(OLD)
    broker = fresh_broker(tmp_path / "data", sets={"encryption.kek.source": f"file:{kek}"})
    create_topic(broker.bootstrap, topic, 1, encryption_enable="true")
    produce(broker, topic, 10)
    assert broker.stop() == 0
    (log,) = (tmp_path / "data" / "logs").rglob("*.log")
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    broker.start()
    with pytest.raises((AssertionError, KafkaException)):
        consume(broker, topic, 1, patience_s=10)
    assert "goes offline" in broker.log()
