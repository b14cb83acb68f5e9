"""Generated clicks, and the expected visits computed without Spark.

`python -m examples.activity.data --brokers localhost:9092 --users 200` writes them to the topic.
"""

import argparse
import json
import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from penstock import Outgoing, SyncClient

MINUTE_MS = 60_000
GAP_MS = 30 * MINUTE_MS
LATE_MS = 60 * MINUTE_MS


class Click(NamedTuple):
    user: str
    page: str
    at_ms: int


class Visit(NamedTuple):
    user: str
    start_ms: int
    clicks: int
    first_page: str


def clicks(users: int, seed: int, start_ms: int) -> list[Click]:
    """Clicks of a day, in order; some are duplicates. The last click is long after the others."""
    draw = random.Random(seed)
    made = []
    for number in range(users):
        at_ms = start_ms + draw.randrange(MINUTE_MS * 60)
        for _ in range(draw.randrange(1, 15)):
            made.append(Click(f"u{number}", f"/page/{draw.randrange(9)}", at_ms))
            if draw.random() < 0.05:
                made.append(made[-1])
            long = draw.random() < 0.2
            at_ms += draw.randrange(GAP_MS + 1, 3 * GAP_MS) if long else draw.randrange(1, GAP_MS)
    made.sort(key=lambda click: click.at_ms)
    made.append(Click("last", "/", made[-1].at_ms + 2 * LATE_MS + GAP_MS))
    return made


def expected(given: Iterable[Click]) -> set[Visit]:
    """All finished visits: all except that of the last click."""
    visits: set[Visit] = set()
    under_way: dict[str, list[Click]] = {}

    def finish(those: list[Click]) -> None:
        visits.add(Visit(those[0].user, those[0].at_ms, len(those), those[0].page))

    for click in sorted(set(given), key=lambda click: click.at_ms):
        before = under_way.get(click.user, [])
        if before and click.at_ms - before[-1].at_ms >= GAP_MS:
            finish(before)
            before = []
        under_way[click.user] = [*before, click]
    for user, those in under_way.items():
        if user != "last":
            finish(those)
    return visits


def send(client: SyncClient, given: Iterable[Click]) -> None:
    client.publish_many(
        "clicks",
        [
            Outgoing(
                payload=json.dumps(
                    {
                        "user": click.user,
                        "page": click.page,
                        "at": datetime.fromtimestamp(click.at_ms / 1000, UTC).isoformat(),
                    }
                ),
                key=click.user,
                timestamp_ms=click.at_ms,
            )
            for click in given
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the topic clicks.")
    parser.add_argument("--brokers", default="localhost:9092")
    parser.add_argument("--users", type=int, default=200)
    arguments = parser.parse_args()
    start_ms = int(time.time() * 1000) - 20 * 60 * MINUTE_MS
    with SyncClient(arguments.brokers) as client:
        send(client, clicks(arguments.users, 1, start_ms))
    print(f"clicks of {arguments.users} users sent")


if __name__ == "__main__":
    main()
