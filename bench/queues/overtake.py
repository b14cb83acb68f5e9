"""`python -m bench.queues.overtake`: latency of an urgent message behind a million others.

    python -m bench.queues.overtake [--messages N] [--rounds R]

confluent-kafka publishes the backlog without priority. Then each round publishes one message with
priority 9 and measures the time until its receipt: by a poll over HTTP, by an idle share consumer,
and by share consumers that process the backlog. It must be received first, before the backlog.
"""

import argparse
import json
import statistics
import sys
import threading
import time
import urllib.request

from confluent_kafka import Message, Producer, ShareConsumer
from rich.console import Console
from rich.progress import track

from bench.queues.cycles import percentile
from bench.queues.report import PAGE, put
from bench.queues.share_consumers import ShareConsumers
from bench.run import CACHE
from bench.sides import penstock
from tests.clients.shares import configure_group

SIZE = 100
TOPIC, GROUP = "backlog", "workers"
URGENT = b"urgent"
PRIORITY = [("penstock-priority", b"9")]
PATIENCE_S = 60.0
LIMIT_MS = 100.0
AT_WORK = "by share consumers that process the backlog"


def fill(bootstrap: str, count: int, console: Console) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    payload = b"." * SIZE
    for _ in track(range(count), "publishing", console=console, transient=True):
        while True:
            try:
                producer.produce(TOPIC, payload)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0


class Urgent:
    """Publishes one urgent message and waits for its receipt."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def publish(self) -> float:
        began = time.monotonic()
        self._producer.produce(TOPIC, URGENT, headers=PRIORITY)
        assert self._producer.flush(30) == 0
        return began


def learn(http: str, count: int) -> None:
    """Creates the group, which loads the backlog."""
    queue = f"{http}/topics/{TOPIC}"
    urllib.request.urlopen(f"{queue}/poll?group={GROUP}&max=1").close()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with urllib.request.urlopen(f"{queue}/queues/{GROUP}") as answer:
            if json.load(answer)["ready"] >= count - 1:
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def by_http(http: str, urgent: Urgent) -> float:
    began = urgent.publish()
    address = f"{http}/topics/{TOPIC}/poll?group={GROUP}&max=1&wait_ms=10000"
    with urllib.request.urlopen(address) as answer:
        (message,) = json.load(answer)["messages"]
    took = time.monotonic() - began
    assert message["payload"] == URGENT.decode(), message
    body = json.dumps({"receipt": message["receipt"]}).encode()
    request = urllib.request.Request(f"{http}/ack", body, {"content-type": "application/json"})
    urllib.request.urlopen(request).close()
    return took * 1000


def by_kafka(bootstrap: str, urgent: Urgent, rounds: int) -> list[float]:
    """Measures an idle share consumer that has already joined."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "max.poll.records": 1,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    while not consumer.poll(0.5):
        pass  # Joins, and takes a record that is not urgent.
    took = []
    for _ in range(rounds):
        began = urgent.publish()
        while True:
            found = consumer.poll(5)
            if any(message.value() == URGENT for message in found):
                break
        took.append((time.monotonic() - began) * 1000)
    consumer.commit_sync()
    consumer.close()
    return took


def by_crowd(bootstrap: str, urgent: Urgent, rounds: int) -> tuple[list[float], int]:
    """Measures consumers that process the backlog; also returns their number of messages."""
    came, done = threading.Event(), 0

    def note(found: list[Message], now: float) -> None:
        nonlocal done
        done += len(found)
        if any(message.value() == URGENT for message in found):
            came.set()

    consumers = ShareConsumers(bootstrap, TOPIC, GROUP, 2, note, **{"max.poll.records": 500})
    deadline = time.monotonic() + PATIENCE_S
    while not done and time.monotonic() < deadline:
        time.sleep(0.01)
    took = []
    for _ in range(rounds):
        came.clear()
        began = urgent.publish()
        assert came.wait(PATIENCE_S)
        took.append((time.monotonic() - began) * 1000)
        time.sleep(0.05)
    consumers.stop()
    return took, done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    with penstock({"num.partitions": 1}).running(CACHE / "overtake") as process:
        http = process.http  # type: ignore[attr-defined]
        configure_group(process.bootstrap, GROUP, {"share.auto.offset.reset": "earliest"})
        fill(process.bootstrap, options.messages, console)
        urgent = Urgent(process.bootstrap)
        learn(http, options.messages)
        found = {
            "by a poll over HTTP": [by_http(http, urgent) for _ in range(options.rounds)],
            "by an idle share consumer": by_kafka(process.bootstrap, urgent, options.rounds),
        }
        found[AT_WORK], done = by_crowd(process.bootstrap, urgent, options.rounds)
    lines = [
        f"An urgent message behind {options.messages:,} others, from publish to receipt "
        f"({options.rounds} times each):",
        "",
    ]
    for name, took in found.items():
        lines.append(
            f"- {name}: p50 {statistics.median(took):.1f} ms, p99 {percentile(took, 0.99):.1f} ms, "
            f"at most {max(took):.1f} ms"
        )
    lines[-1] += f"; they did {done:,} of the backlog meanwhile"
    console.print("\n".join(lines))
    if options.write:
        put("overtaking", "\n".join(lines))
    return 0 if all(percentile(took, 0.99) < LIMIT_MS for took in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
