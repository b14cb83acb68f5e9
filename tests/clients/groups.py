"""Groups of confluent-kafka consumers that run in the test's own thread, polled in turn.

Run as a program it is one more member, in a process that can be killed:
`python -m tests.clients.groups BOOTSTRAP GROUP TOPIC SETTINGS-AS-JSON`.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from tests.conftest import Broker, ExternalBroker

POLL_SECONDS = 0.05


class Member:
    """One consumer of a group, and what it was given and has read."""

    def __init__(self, broker: Broker, group: str, topic: str, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        if named.get("group.protocol") != "consumer":
            named = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 300, **named}
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **named,
            }
        )
        self.messages: list[Message] = []
        self.assigned: list[list[int]] = []
        self.revoked: list[list[int]] = []
        self.lost: list[list[int]] = []
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, rows: self.assigned.append(_indexes(rows)),
            on_revoke=lambda _, rows: self.revoked.append(_indexes(rows)),
            on_lost=lambda _, rows: self.lost.append(_indexes(rows)),
        )

    @property
    def partitions(self) -> set[int]:
        return {row.partition for row in self.consumer.assignment()}

    def poll(self) -> None:
        for message in self.consumer.consume(500, POLL_SECONDS):
            assert message.error() is None, message.error()
            self.messages.append(message)

    def values(self) -> Counter[bytes]:
        return Counter(message.value() for message in self.messages)

    def close(self) -> None:
        self.consumer.close()


def _indexes(rows: Sequence[TopicPartition]) -> list[int]:
    return sorted(row.partition for row in rows)


def poll_until(
    members: Sequence[Member], question: Callable[[], Any], what: str, timeout_s: float = 30.0
) -> float:
    """Polls every member in turn until the answer is true; how long that took."""
    started = time.monotonic()
    while not question():
        if time.monotonic() >= started + timeout_s:
            raise TimeoutError(f"never came true: {what}")
        for member in members:
            member.poll()
    return time.monotonic() - started


def share(members: Sequence[Member], count: int) -> bool:
    """True if every partition has exactly one of the members, and every member has some."""
    held = [member.partitions for member in members]
    return all(held) and sum(map(len, held)) == count and set().union(*held) == set(range(count))


def spawn(broker: Broker, group: str, topic: str, **settings: Any) -> "subprocess.Popen[bytes]":
    """A member in a process of its own."""
    command = [sys.executable, "-m", "tests.clients.groups", broker.bootstrap, group, topic]
    return subprocess.Popen([*command, json.dumps(settings)])


def main() -> None:
    bootstrap, group, topic, settings = sys.argv[1:]
    member = Member(ExternalBroker(bootstrap), group, topic, **json.loads(settings))
    while True:
        member.poll()


if __name__ == "__main__":
    main()
