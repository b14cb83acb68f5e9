"""One message over every protocol: they share one lease and one delivery count."""

import subprocess
import time
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer

from penstock import SyncClient
from tests.brokers import PenstockProcess
from tests.clients.aws import client, receive
from tests.clients.javas import CLASSES, JAVA, LIBS, build
from tests.clients.shares import ShareMember
from tests.clients.test_http import ask, poll
from tests.conftest import FreshBroker

pytestmark = pytest.mark.clients

GROUP = "everyone"
PATIENCE_S = 60.0


class Protocols:
    """The same queue through each protocol; received messages are held until they are released."""

    def __init__(self, broker: PenstockProcess, python: SyncClient, sqs: Any, url: str) -> None:
        self.broker = broker
        self.python = python
        self.sqs = sqs
        self.url = url

    def require_empty(self) -> None:
        """Asserts that the message is leased: no other protocol receives it."""
        assert self.python.poll("t", GROUP) == []
        assert poll(self.broker, "t", group=GROUP, wait_ms=0) == []
        assert receive(self.sqs, self.url, WaitTimeSeconds=0) == []

    def through_http(self) -> int:
        (message,) = poll(self.broker, "t", group=GROUP, wait_ms=30_000)
        self.require_empty()
        ask(self.broker, "POST", "/nack", {"receipt": message["receipt"], "delay_ms": 0})
        count: int = message["delivery_count"]
        return count

    def through_sqs(self) -> int:
        (message,) = receive(self.sqs, self.url, WaitTimeSeconds=20)
        self.require_empty()
        self.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
        return int(message["Attributes"]["ApproximateReceiveCount"])

    def through_python(self) -> int:
        (message,) = self.python.poll("t", GROUP, wait=30)
        self.require_empty()
        message.nack(delay=0)
        return message.attempt

    def through_kafka(self) -> int:
        with ShareMember(self.broker.bootstrap, GROUP, "t") as member:
            deadline = time.monotonic() + PATIENCE_S
            while not (found := member.poll()):
                if time.monotonic() >= deadline:
                    raise TimeoutError("no record")
            (message,) = found
            self.require_empty()
            member.answer(message, AcknowledgeType.RELEASE)
            member.commit()
            count: int = message.delivery_count()
            return count

    def through_java(self) -> int:
        build()
        command = [*JAVA, "-cp", f"{CLASSES}:{LIBS}/*", "penstock.clients.OneShare"]
        command += [self.broker.bootstrap, GROUP, "t"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(done.stdout.split()[-1])


@pytest.mark.java
def test_all_protocols_share_one_lease_and_one_delivery_count(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker()
    with SyncClient(broker.bootstrap) as python, client("sqs", broker.http) as sqs:
        python.configure_group(
            GROUP,
            {
                "share.auto.offset.reset": "earliest",
                "share.retry.backoff.ms": "0",
                "share.delivery.count.limit": "10",
            },
        )
        url = sqs.create_queue(QueueName="t", Attributes={"PenstockGroup": GROUP})["QueueUrl"]
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"one for all")
        assert producer.flush(20) == 0
        protocols = Protocols(broker, python, sqs, url)
        counts = [
            protocols.through_python(),
            protocols.through_http(),
            protocols.through_sqs(),
            protocols.through_kafka(),
            protocols.through_python(),
            protocols.through_java(),
        ]
        assert counts == [1, 2, 3, 4, 5, 6]
        protocols.require_empty()
