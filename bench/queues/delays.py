"""`python -m bench.queues.delays`: lateness and memory of a million delayed messages.

    python -m bench.queues.delays [--messages N] [--due N] [--seconds S] [--no-kill] ...
    python -m bench.queues.delays --day [--messages N]

The first form uses a real broker process and real clients. confluent-kafka publishes messages with
a delivery time: `--due` of them, anywhere in the log, within the next `--seconds`, all others up to
a day later. Share consumers record the lateness of each message. In the middle the broker is killed
(-9) and restarted. Memory per message is the growth of the broker's resident set while it reads all
messages, divided by their number.

Messages due while the broker is down cannot be on time. They count in the p99 like all others, and
are also reported separately: from the kill until the broker has delivered all overdue messages. In
a run of minutes they are a larger share than in a day. `--seconds` is such that an outage of 5 s is
less than 1 % of it; in a day it is 0.006 %. `--day` simulates a whole day in virtual time
(`virtual_day`).
"""

import argparse
import json
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from confluent_kafka import Message, Producer
from rich.console import Console
from rich.progress import track

from bench.proc import cpu_s, rss_mib
from bench.queues.cycles import percentile
from bench.queues.report import PAGE, put
from bench.queues.share_consumers import ShareConsumers
from bench.queues.virtual_day import DOWN_S, run_day
from bench.run import CACHE
from bench.sides import fresh_dir
from tests.brokers import PenstockProcess
from tests.clients.shares import configure_group

MIB = 1 << 20
SIZE = 100
GROUP = "delayed"
TOPIC = "delays"
LEAD_S = 40.0
"""Delay before the first message is due: all are published before."""
CONSUMERS = 2
PATIENCE_S = 120.0
DAY_MS = 86_400_000
LATE_MS_MAX, BYTES_MAX = 100.0, 100.0


class Receipts:
    """Time of the first receipt of each message, by its number."""

    def __init__(self, count: int, due: int) -> None:
        self.came_ms = array("d", bytes(8 * count))
        self.repeated = 0
        self.left = due
        self.all_there = threading.Event()

    def __call__(self, found: list[Message], now: float) -> None:
        for message in found:
            number = int(message.value()[:10])
            if self.came_ms[number]:
                self.repeated += 1
                continue
            self.came_ms[number] = now * 1000
            self.left -= 1
        if not self.left:
            self.all_there.set()


@dataclass
class Lateness:
    """Lateness statistics of a part of the messages."""

    count: int
    early: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, late_ms: list[float]) -> "Lateness":
        if not late_ms:
            return cls(0, 0, 0.0, 0.0, 0.0)
        early = sum(late < 0 for late in late_ms)
        p50, p99 = percentile(late_ms, 0.5), percentile(late_ms, 0.99)
        return cls(len(late_ms), early, p50, p99, max(late_ms))

    def __str__(self) -> str:
        return (
            f"{self.count:,} messages, {self.early} early; late by p50 {self.p50_ms:.1f} ms, "
            f"p99 {self.p99_ms:.1f} ms, at most {self.max_ms:,.0f} ms"
        )


@contextmanager
def broker(partitions: int) -> Iterator[PenstockProcess]:
    with fresh_dir(CACHE / "delays") as directory:
        process = PenstockProcess(directory / "data", {"num.partitions": partitions})
        # Uses the same addresses after the kill.
        process.kafka_port = int(process.bootstrap.rpartition(":")[2])
        process.http_port = int(process.http.rpartition(":")[2])
        try:
            yield process
        finally:
            process.stop()


def queue(process: PenstockProcess) -> dict[str, int]:
    """State of the queue, once the broker has loaded it."""
    while True:
        try:
            return _queue(process)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            time.sleep(0.1)


def _queue(process: PenstockProcess) -> dict[str, int]:
    with urllib.request.urlopen(f"{process.http}/topics/{TOPIC}/queues/{GROUP}") as answer:
        found: dict[str, int] = json.load(answer)
        return found


def wait_learned(process: PenstockProcess, count: int) -> None:
    """Waits until the queue has loaded so many unsettled messages from its log."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        seen = queue(process)
        if seen["delayed"] + seen["ready"] + seen["leased"] >= count:
            return
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def publish(bootstrap: str, due_ms: "array[int]", console: Console) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0, "acks": "all"}
    )
    for number in track(range(len(due_ms)), "publishing", console=console, transient=True):
        payload = f"{number:010d}".encode().ljust(SIZE, b".")
        headers = [("penstock-deliver-at", str(due_ms[number]).encode())]
        while True:
            try:
                producer.produce(TOPIC, payload, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(60) == 0


@dataclass
class Outage:
    """Times of the kill and of the completed load of all messages, in milliseconds."""

    killed_ms: float
    serves_ms: float
    knows_ms: float

    def over_ms(self, due_ms: "array[int]", came_ms: "array[float]") -> float:
        """Time at which nearly all messages due during the outage were delivered."""
        owed = zip(due_ms, came_ms, strict=True)
        return percentile(
            [came for due, came in owed if came > self.killed_ms and due < self.knows_ms], 0.99
        )


class Run:
    """Result of a run."""

    def __init__(self, due: int, seconds: float, due_ms: "array[int]", bytes_each: float) -> None:
        self.due = due
        """Number of messages due during the measurement; the others are due later."""
        self.seconds = seconds
        self.due_ms = due_ms
        self.bytes_each = bytes_each
        self.receipts = Receipts(len(due_ms), due)
        self.cpu_s = 0.0
        self.outage: Outage | None = None

    def lateness(self) -> tuple[Lateness, Lateness, Lateness]:
        """Lateness of messages due while the broker ran, due during the outage, and of all."""
        late: tuple[list[float], list[float]] = ([], [])
        killed_ms = over_ms = 0.0
        if self.outage is not None:
            killed_ms = self.outage.killed_ms
            over_ms = self.outage.over_ms(self.due_ms, self.receipts.came_ms)
        for due, came in zip(self.due_ms, self.receipts.came_ms, strict=True):
            if not came:
                continue
            late[due <= over_ms and came >= killed_ms > 0].append(came - due)
        return Lateness.of(late[0]), Lateness.of(late[1]), Lateness.of(late[0] + late[1])

    @property
    def is_good(self) -> bool:
        *_, of_all = self.lateness()
        is_late = of_all.p99_ms >= LATE_MS_MAX or of_all.early
        return not (self.receipts.left or is_late or self.bytes_each >= BYTES_MAX)

    def lines(self) -> list[str]:
        steady, hit, of_all = self.lateness()
        lines = [
            f"{len(self.due_ms):,} messages delayed up to a day: {self.bytes_each:.0f} bytes of "
            f"the broker's memory each. {self.due:,} of them, anywhere in the log, were due within "
            f"{self.seconds:.0f} s: {self.cpu_s / self.due * 1e6:.0f} us of the broker's CPU each; "
            f"{self.receipts.left} lost, {self.receipts.repeated} twice.",
            "",
            f"- all of them, the outage included: {of_all}",
            f"- while there was a broker: {steady}",
        ]
        if self.outage is not None:
            outage = self.outage
            over_s = outage.over_ms(self.due_ms, self.receipts.came_ms) - outage.killed_ms
            lines.append(
                f"- killed in the middle: it served after "
                f"{(outage.serves_ms - outage.killed_ms) / 1000:.1f} s, knew of all messages after "
                f"{(outage.knows_ms - outage.killed_ms) / 1000:.1f} s, and owed nothing after "
                f"{over_s / 1000:.1f} s: {hit}"
            )
        return lines


def due_times(count: int, due: int, began_ms: int, seconds: float) -> "array[int]":
    rng = random.Random(6)
    soon = set(rng.sample(range(count), due))
    return array(
        "q",
        (
            began_ms + int(rng.random() * seconds * 1000)
            if number in soon
            else began_ms + int((seconds + PATIENCE_S) * 1000 + rng.random() * DAY_MS)
            for number in range(count)
        ),
    )


def run(options: argparse.Namespace, console: Console) -> Run:
    count, seconds = options.messages, options.seconds
    due = min(options.due, count)
    with broker(options.partitions) as process:
        configure_group(process.bootstrap, GROUP, {"share.auto.offset.reset": "earliest"})
        publish_one(process)
        before = rss_mib(process.pid)
        began_ms = int((time.time() + LEAD_S) * 1000)
        due_ms = due_times(count, due, began_ms, seconds)
        publish(process.bootstrap, due_ms, console)
        wait_learned(process, count)
        found = Run(due, seconds, due_ms, (rss_mib(process.pid) - before) * MIB / count)
        console.print(f"[dim]{found.bytes_each:.1f} bytes of memory each[/dim]")
        receipts = found.receipts
        found.cpu_s = -cpu_s(process.pid)
        consumers = ShareConsumers(process.bootstrap, TOPIC, GROUP, CONSUMERS, receipts)
        if not options.no_kill:
            time.sleep(max(0.0, began_ms / 1000 + seconds / 2 - time.time()))
            found.cpu_s += cpu_s(process.pid)
            found.outage = kill(process, count - due + receipts.left)
            found.cpu_s -= cpu_s(process.pid)
        until = began_ms / 1000 + seconds + PATIENCE_S
        while not receipts.all_there.wait(5) and time.time() < until:
            console.print(f"[dim]{receipts.left:,} to come[/dim]")
        found.cpu_s += cpu_s(process.pid)
        consumers.stop()
    return found


def publish_one(process: PenstockProcess) -> None:
    """Creates topic and group, so that the queue loads messages as they are published."""
    producer = Producer({"bootstrap.servers": process.bootstrap, "log_level": 0})
    producer.produce(TOPIC, b"first")
    assert producer.flush(60) == 0
    came = threading.Event()
    consumers = ShareConsumers(process.bootstrap, TOPIC, GROUP, 1, lambda found, now: came.set())
    assert came.wait(PATIENCE_S)
    consumers.stop()


def kill(process: PenstockProcess, left: int) -> Outage:
    """Kills and restarts the broker; returns when it has loaded all messages."""
    killed_ms = time.time() * 1000
    process.kill()
    process.start()
    serves_ms = time.time() * 1000
    # Some overdue messages are delivered before the whole log is read.
    wait_learned(process, int(left * 0.95))
    return Outage(killed_ms, serves_ms, time.time() * 1000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--no-kill", action="store_true")
    parser.add_argument("--day", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    if options.day:
        day = run_day(options.messages, options.partitions, console)
        late = Lateness.of(day.late_ms)
        mark, is_good = "delays-day", not (day.lost or late.early or late.p99_ms >= LATE_MS_MAX)
        text = (
            f"A day in virtual time, the broker killed at noon and away for {DOWN_S:.0f} s, which "
            f"counts: {late}; {day.lost} lost, {day.repeated} twice."
        )
    else:
        found = run(options, console)
        mark, is_good, text = "delays", found.is_good, "\n".join(found.lines())
    console.print(text)
    if options.write:
        put(mark, text)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
