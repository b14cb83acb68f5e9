"""A full backlog with `max.backlog.policy=block`: each client waits until there is space."""

import asyncio
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import PenstockProcess
from tests.clients.javas import Jvm
from tests.waiting import eventually

pytestmark = pytest.mark.clients

LARGE = b"x" * 10_000
CONFIG = {"max.backlog.bytes": "1000", "max.backlog.policy": "block"}
Send = Callable[[PenstockProcess, str], str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    process = PenstockProcess(tmp_path_factory.mktemp("backlog") / "data")
    yield process
    process.stop()


def by_librdkafka(broker: PenstockProcess, topic: str) -> str:
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(topic, b"late", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(60)
    return "delivered" if outcome == [None] else str(outcome)


def by_aiokafka(broker: PenstockProcess, topic: str) -> str:
    async def go() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, request_timeout_ms=60_000)
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"late")
        finally:
            await producer.stop()

    asyncio.run(go())
    return "delivered"


def by_java(broker: PenstockProcess, topic: str) -> str:
    jvm = Jvm()
    try:
        path = Path(broker.data_dir).with_name("java.properties")
        path.write_text(f"bootstrap.servers={broker.bootstrap}\n")
        said = jvm.run("penstock.clients.Secured", str(path), topic)
    finally:
        jvm.close()
    return "delivered" if '"offset"' in said else said


def put_off(broker: PenstockProcess) -> int:
    """Number of producer throttles because of a backlog."""
    return metric(broker, r'penstock_throttles_total\{kind="backlog"\}')


def full(broker: PenstockProcess) -> int:
    """Number of full backlogs."""
    return metric(broker, "penstock_backlogs_full")


def metric(broker: PenstockProcess, name: str) -> int:
    with urllib.request.urlopen(broker.http + "/metrics", timeout=30) as reply:
        found = re.search(rf"^{name} (\d+)", reply.read().decode(), re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    "send",
    [by_librdkafka, by_aiokafka, pytest.param(by_java, marks=pytest.mark.java)],
)
def test_blocked_producer_continues_when_the_backlog_shrinks(
    broker: PenstockProcess, send: Send
) -> None:
    topic = send.__name__.replace("_", "-")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config=CONFIG)])[topic].result(30)
    fulls = full(broker)
    filler = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    filler.produce(topic, LARGE)
    assert filler.flush(30) == 0
    eventually(lambda: full(broker) > fulls or None, "the backlog is full")
    before = put_off(broker)
    outcome: list[str] = []
    thread = threading.Thread(target=lambda: outcome.append(send(broker, topic)))
    thread.start()
    try:
        eventually(lambda: put_off(broker) > before or None, "the producer is put off")
        assert outcome == [], "it was let in"
    finally:
        caught_up = ConsumerGroupTopicPartitions("readers", [TopicPartition(topic, 0, 1)])
        (done,) = admin.alter_consumer_group_offsets([caught_up]).values()
        done.result(30)
        thread.join(90)
    assert outcome == ["delivered"]
