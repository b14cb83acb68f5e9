"""Loads for workers against a real broker, and what must hold of them; also run at full size.

python -m tests.scenarios.working keys 1000 50 100 HOST:PORT
python -m tests.scenarios.working poison 100000 HOST:PORT
"""

import asyncio
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field

from penstock import Client, Message, Outgoing, Reject, Worker
from penstock.app.task import RetryBackoff


class Failed(Exception):
    """Error that a handler is told to raise."""


@dataclass
class OrderCheck:
    """Per key, messages must be done in the order they were sent, each after all before it."""

    done: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    violations: list[str] = field(default_factory=list)
    count: int = 0
    attempts: int = 0

    def begun(self, key: str, number: int) -> None:
        self.attempts += 1
        if number != self.done[key]:
            self.violations.append(f"{key}: {number} is tried, {self.done[key]} is next")

    def finished(self, key: str, number: int) -> None:
        self.done[key] = number + 1
        self.count += 1


@dataclass
class KeysResult:
    check: OrderCheck
    seconds: float
    failures: int


async def run_keys(
    brokers: str, *, keys: int, workers: int, each: int, concurrency: int = 1, share: float = 0.05
) -> KeysResult:
    """`each` messages of every key, a share of the tries fails; until all are done."""
    total = keys * each
    topic = f"ordered-{keys}-{workers}-{each}-{time.monotonic_ns()}"
    rng = random.Random(7)
    check, failures = OrderCheck(), 0
    finished = asyncio.Event()
    async with Client(brokers) as client:
        await client.create_topic(topic, partitions=6, order="key")
        await client.publish_many(
            topic,
            (
                Outgoing(payload={"number": number}, key=f"key-{key}")
                for number in range(each)
                for key in range(keys)
            ),
        )

    def make() -> Worker:
        worker = Worker(brokers, group=f"{topic}-workers")

        @worker.task(
            topic, concurrency=concurrency, retries=9, backoff=RetryBackoff(base=0.05, cap=0.2)
        )
        async def handle(message: Message) -> None:
            nonlocal failures
            assert message.key is not None
            key, number = message.key.decode(), message.json()["number"]
            check.begun(key, number)
            await asyncio.sleep(0)
            if rng.random() < share:
                failures += 1
                raise Failed(f"{key} {number}")
            check.finished(key, number)
            if check.count >= total:
                finished.set()

        return worker

    group = [make() for _ in range(workers)]
    started = time.monotonic()
    serving = [asyncio.create_task(worker.serve()) for worker in group]
    ended = asyncio.create_task(finished.wait())
    await asyncio.wait((ended, *serving), return_when=asyncio.FIRST_COMPLETED)
    seconds = time.monotonic() - started
    for worker in group:
        worker.stop()
    await asyncio.gather(*serving)
    ended.cancel()
    return KeysResult(check, seconds, failures)


@dataclass
class PoisonResult:
    delivered: int
    seconds: float
    last_ms: float
    dead_letters: list[dict[str, bytes | None]]
    is_held_back: bool


async def run_poison(brokers: str, count: int) -> PoisonResult:
    """Runs one message that always fails and one that is held for an hour, among many others."""
    topic = f"poisoned-{count}"
    delivered, held = 0, False
    finished = asyncio.Event()
    worker = Worker(brokers, group=f"{topic}-workers")
    started = time.monotonic()

    @worker.task(topic, concurrency=50, retries=1, backoff=RetryBackoff(base=0.05), prefetch=500)
    async def handle(message: Message) -> None:
        nonlocal delivered, held
        if message.payload == b"poison":
            raise Failed("always")
        if message.payload == b"garbage":
            raise Reject("never")
        held = held or message.payload == b"held"
        delivered += 1
        if delivered >= count:
            finished.set()

    async with Client(brokers) as client:
        await client.create_topic(topic, partitions=1)
        await client.publish(topic, b"held", delay="1h")
        await client.publish(topic, b"poison")
        await client.publish(topic, b"garbage")
        await client.publish_many(topic, (b"x" * 100 for _ in range(count)))
        started = time.monotonic()
        serving = asyncio.create_task(worker.serve())
        ended = asyncio.create_task(finished.wait())
        await asyncio.wait((ended, serving), return_when=asyncio.FIRST_COMPLETED)
        seconds = time.monotonic() - started
        # While the two are still there, a new message does not wait.
        finished.clear()
        count += 1
        published = time.monotonic()
        await client.publish(topic, b"late")
        await asyncio.wait_for(finished.wait(), 30)
        last_ms = (time.monotonic() - published) * 1000
        dead_letters: list[dict[str, bytes | None]] = []
        while len(dead_letters) < 2:
            found = await client.poll(f"{topic}.dlq", "look", max=2, wait=30)
            for dead_letter in found:
                dead_letters.append(dead_letter.headers)
                await dead_letter.ack()
        worker.stop()
        await serving
    return PoisonResult(delivered, seconds, last_ms, dead_letters, not held)


def main(arguments: list[str]) -> None:
    kind, *rest = arguments
    if kind == "keys":
        keys, workers, each = map(int, rest[:3])
        result = asyncio.run(run_keys(rest[3], keys=keys, workers=workers, each=each))
        check = result.check
        print(
            f"{check.count} messages of {keys} keys by {workers} workers in {result.seconds:.1f} s "
            f"({check.count / result.seconds:.0f}/s), {result.failures} failures, "
            f"{len(check.violations)} order violations"
        )
    else:
        poison = asyncio.run(run_poison(rest[1], int(rest[0])))
        print(
            f"{poison.delivered} delivered in {poison.seconds:.1f} s beside one poisoned and one "
            f"held; a new one took {poison.last_ms:.0f} ms; {len(poison.dead_letters)} failed; "
            f"held back: {poison.is_held_back}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
