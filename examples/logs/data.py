"""Generated log lines, and their expected counts computed without Spark.

`python -m examples.logs.data --brokers localhost:9092 --count 10000` writes them to the topic.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from examples.logs.pipeline import LEVELS
from penstock import Outgoing, SyncClient

SERVICES = ("shop", "billing", "search")


def lines(count: int, seed: int, start_ms: int) -> list[bytes]:
    """Lines of half an hour; one in fifty is malformed."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        at = datetime.fromtimestamp((start_ms + number * 1_800_000 // count) / 1000, UTC)
        level = draw.choice(LEVELS)
        if draw.random() < 0.01:
            level = "LOUD"
        text = f"{at.isoformat()} {level} [{draw.choice(SERVICES)}] request {number}"
        if draw.random() < 0.01:
            text = text.replace("[", "")
        made.append(text.encode())
    return made


def expected(given: Iterable[bytes]) -> tuple[dict[str, int], int]:
    """Number of lines by service, level and minute, and of malformed lines."""
    counts: Counter[str] = Counter()
    bad = 0
    for line in given:
        at, level, service, *_ = line.decode().split(" ")
        if level not in LEVELS or not service.startswith("["):
            bad += 1
            continue
        minute = datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M")
        counts[f"{service.strip('[]')}/{level}/{minute}"] += 1
    return dict(counts), bad


def send(client: SyncClient, given: Iterable[bytes]) -> None:
    client.publish_many("logs", [Outgoing(payload=line) for line in given])


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the topic logs.")
    parser.add_argument("--brokers", default="localhost:9092")
    parser.add_argument("--count", type=int, default=10_000)
    arguments = parser.parse_args()
    with SyncClient(arguments.brokers) as client:
        send(client, lines(arguments.count, 1, int(time.time() * 1000) - 1_800_000))
    print(f"{arguments.count} lines sent")


if __name__ == "__main__":
    main()
