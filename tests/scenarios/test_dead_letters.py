"""Dead letters, queues and replay by the real command line, against a real broker.

Records are produced, rejected by a share consumer, inspected, redriven, edited and purged, as in
the runbook in docs/how-to/dead-letters.md.
"""

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock import SyncClient
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.producer.producer import Producer
from penstock.client.share.acknowledgements import NO_OPTIONS, AcknowledgementType, AckOptions
from penstock.client.share.consumer import ShareConsumer
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from tests.brokers import COMMAND, PenstockProcess
from tests.conftest import FreshBroker
from tests.waiting import eventually

KEYS = 4


class Desk:
    """A user at a terminal, and the consumers of one broker."""

    def __init__(self, broker: PenstockProcess) -> None:
        self.broker = broker

    def call(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [COMMAND, *words, "-b", self.broker.bootstrap],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    def ask(self, *words: str) -> Any:
        return json.loads(self.call(*words, "--format", "json").stdout)

    def within(self, work: Callable[[Cluster], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            addresses = parse_brokers(self.broker.bootstrap)
            async with Cluster(SystemRandom(), addresses) as cluster:
                return await work(cluster)

        return asyncio.run(connected())

    def produce(self, topic: str, count: int) -> None:
        async def work(cluster: Cluster) -> None:
            async with Producer(SystemClock(), SystemRandom(), cluster) as producer:
                for number in range(count):
                    key = f"k{number % KEYS}".encode()
                    await producer.send(topic, b"%d" % number, key, partition=number % 2)

        self.within(work)

    def judge(self, topic: str, group: str, count: int, *rejected: str) -> list[int]:
        """Receives so many records; rejects all with the given error, or else accepts them."""

        async def work(cluster: Cluster) -> list[int]:
            seen: list[int] = []
            async with ShareConsumer(cluster, group, [topic]) as consumer:
                while len(seen) < count:
                    for lease in await consumer.receive(count - len(seen), 20_000):
                        seen.append(int(lease.message.value or b""))
                        note = AckOptions(-1, rejected[0], rejected[1]) if rejected else NO_OPTIONS
                        verdict = (
                            AcknowledgementType.REJECT if rejected else AcknowledgementType.ACCEPT
                        )
                        await consumer.settle(lease, verdict, note)
            return seen

        found: list[int] = self.within(work)
        return found

    def depth(self, topic: str) -> int:
        boxes = {box["topic"]: box for box in self.ask("dlq", "list")}
        return int(boxes[topic]["letters"])

    def metric(self, name: str) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.broker.http}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(name + "{")
        }


@pytest.fixture
def desk(fresh_broker: FreshBroker) -> Desk:
    sets = {"log.retention.ack.interval.ms": 300, "group.share.min.heartbeat.interval.ms": 500}
    made = Desk(fresh_broker(sets=sets))
    made.call("topic", "create", "jobs", "-p", "2")
    for group in ("workers", "others"):
        made.within(_from_the_start(group))
    return made


def _from_the_start(group: str) -> Callable[[Cluster], Awaitable[None]]:
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).alter_configs(32, group, {"share.auto.offset.reset": "earliest"})

    return work


def test_traceback_of_a_rejection_is_shown(desk: Desk) -> None:
    desk.produce("jobs", 1)
    with SyncClient(desk.broker.bootstrap) as client:
        (message,) = client.poll("jobs", "workers", wait=30)
        try:
            raise LookupError("no such postcode")  # Raised here.
        except LookupError as error:
            message.reject(error)
    assert desk.depth("jobs.dlq") == 1
    (letter,) = desk.ask("dlq", "list", "jobs")
    shown = desk.call("dlq", "show", "jobs", letter["letter"]).stdout
    assert 'raise LookupError("no such postcode")  # Raised here.' in shown
    assert "LookupError: no such postcode" in shown
    url = f"{desk.broker.http}/dlq/jobs.dlq/letters/{letter['letter']}"
    with urllib.request.urlopen(url) as answer:
        assert json.load(answer)["traceback"] == letter["traceback"]


def test_dead_letters_are_inspected_redriven_edited_and_purged(desk: Desk) -> None:
    desk.produce("jobs", 12)
    desk.judge("jobs", "workers", 12, "Timeout", "the bank did not answer")
    # Everything was given up; every copy has arrived once the depth says so.
    assert desk.depth("jobs.dlq") == 12
    letters = desk.ask("dlq", "list", "jobs")
    assert {letter["error_class"] for letter in letters} == {"Timeout"}
    assert {letter["group"] for letter in letters} == {"workers"}
    assert all(letter["source"]["topic"] == "jobs" for letter in letters)

    stats = desk.ask("dlq", "stats", "jobs.dlq", "--by", "key")
    assert {kind["key"]: kind["count"] for kind in stats["kinds"]} == dict.fromkeys(
        ["k0", "k1", "k2", "k3"], 3
    )
    one = desk.ask("dlq", "show", "jobs.dlq", letters[0]["letter"])
    assert one["error_message"] == "the bank did not answer"
    assert "this was a dry run" in desk.call("dlq", "redrive", "jobs", "--dry-run").stdout
    assert desk.depth("jobs.dlq") == 12

    done = desk.ask("dlq", "redrive", "jobs", "--key", "k1", "--rate", "100", "--yes")
    assert (done["executed"], done["letters"]) == (True, 3)
    assert desk.judge("jobs", "workers", 3) == [1, 5, 9]
    assert desk.ask("dlq", "redrive", "jobs", "--key", "k1")["letters"] == 0

    edited = letters[0]["letter"]
    desk.call("dlq", "redrive", "jobs", "--id", edited, "--payload", "1000", "--yes")
    assert desk.judge("jobs", "workers", 1) == [1000]
    assert "--all" in desk.call("dlq", "purge", "jobs", code=1).stderr
    assert desk.ask("dlq", "purge", "jobs", "--all", "--yes")["letters"] == 8
    assert desk.depth("jobs.dlq") == 0

    actions = [(one["action"], one["count"]) for one in desk.ask("dlq", "history")]
    assert actions == [("redrive", 3), ("edit", 1), ("purge", 8)]


def test_killed_redrive_resumes_without_duplicates(desk: Desk) -> None:
    desk.produce("jobs", 40)
    desk.judge("jobs", "workers", 40, "Timeout", "")
    words = [COMMAND, "dlq", "redrive", "jobs", "--rate", "3", "--yes"]
    # Its own session, and never waited for kindly: SIGKILL gives it no chance to tidy up.
    process = subprocess.Popen(
        [*words, "-b", desk.broker.bootstrap],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: desk.depth("jobs.dlq") < 40, "some letters are gone")
    finally:
        process.kill()
        process.wait()
    before = desk.depth("jobs.dlq")
    assert 0 < before < 40
    done = desk.ask("dlq", "redrive", "jobs", "--yes")
    assert done["letters"] <= before
    assert desk.depth("jobs.dlq") == 0
    values = desk.call("consume", "jobs", "-e", "--committed", "-f", "%v\\n").stdout.split()
    assert sorted(map(int, values)) == sorted([*range(40), *range(40)])


def test_message_that_fails_again_is_a_new_dead_letter_with_its_redrives(desk: Desk) -> None:
    desk.produce("jobs", 2)
    desk.judge("jobs", "workers", 2, "Poison", "")
    desk.call("dlq", "redrive", "jobs", "--yes")
    desk.judge("jobs", "workers", 2, "Poison", "")
    again = desk.ask("dlq", "list", "jobs")
    assert [letter["redrives"] for letter in again] == [1, 1]
    assert desk.ask("dlq", "redrive", "jobs", "--redrives-max", "0")["letters"] == 0
    assert desk.depth("jobs.dlq") == 2


def test_metrics_report_dead_letters_and_queues(desk: Desk) -> None:
    desk.produce("jobs", 10)
    desk.judge("jobs", "workers", 4, "Timeout", "")

    def has_come() -> bool:
        letters = desk.metric("penstock_dead_letters")
        depth = desk.metric("penstock_queue_depth")
        ready = 'penstock_queue_depth{group="workers",topic="jobs",state="unfinished"}'
        return letters.get('penstock_dead_letters{topic="jobs.dlq"}') == 4 and depth.get(ready) == 6

    eventually(has_come, "it has come")
    ages = desk.metric("penstock_queue_oldest_seconds")
    assert ages['penstock_queue_oldest_seconds{group="workers",topic="jobs"}'] > 0


def test_queues_are_listed_described_and_peeked_without_a_lease(desk: Desk) -> None:
    desk.produce("jobs", 10)
    desk.judge("jobs", "workers", 4)
    (row,) = desk.ask("queue", "list")
    assert (row["topic"], row["group"], row["unfinished"], row["in_flight"]) == (
        "jobs",
        "workers",
        6,
        0,
    )
    described = desk.ask("queue", "describe", "jobs")
    assert sum(one["ready"] for one in described["partitions"]) == 6
    peeked = desk.ask("queue", "peek", "jobs", "-n", "20")
    assert [one["state"] for one in peeked] == ["waiting"] * 6
    assert [one["deliveries"] for one in peeked] == [0] * 6
    assert len(desk.judge("jobs", "workers", 6)) == 6
    assert desk.ask("queue", "peek", "jobs") == []
    wrong = desk.call("queue", "describe", "jobs", "-g", "worker", code=1)
    assert "did you mean 'workers'" in wrong.stderr


def test_replay_of_a_share_group_does_not_affect_another(desk: Desk) -> None:
    desk.produce("jobs", 10)
    desk.judge("jobs", "workers", 10)
    desk.judge("jobs", "others", 10)
    replay = ("replay", "jobs", "--group", "workers", "--from-offset", "2", "--until-offset", "4")
    assert desk.ask(*replay, "--dry-run")["records"] == 4
    assert desk.ask(*replay, "--yes")["records"] == 4
    rows = {row["group"]: row["unfinished"] for row in desk.ask("queue", "list")}
    assert rows == {"workers": 4, "others": 0}
    assert sorted(desk.judge("jobs", "workers", 4)) == [4, 5, 6, 7]
    shown = desk.call("group", "describe", "workers", code=1).stderr
    assert "is a share group: see `penstock queue describe jobs -g workers`" in shown


def test_replay_resets_a_consumer_group(desk: Desk) -> None:
    desk.produce("jobs", 10)
    done = desk.ask("replay", "jobs", "--group", "plain", "--from-offset", "-2", "--yes")
    assert (done["kind"], done["records"]) == ("consumer group", 4)
    group = desk.call("group", "describe", "plain", "--format", "csv").stdout.splitlines()
    assert group == ["jobs,0,3", "jobs,1,3"]


def test_replay_copies_a_range_with_keys_and_timestamps(desk: Desk) -> None:
    desk.produce("jobs", 10)
    desk.call("topic", "create", "again", "-p", "2")
    done = desk.ask("replay", "jobs", "--to-topic", "again", "--from-offset", "start", "-y")
    assert (done["records"], done["resumed"]) == (10, False)
    template = ("-e", "-f", "%p %k %v %T\\n")
    before = desk.call("consume", "jobs", *template).stdout
    after = desk.call("consume", "again", *template, "--committed").stdout
    assert sorted(before.splitlines()) == sorted(after.splitlines())
    # The copy has markers of transactions, too; they are not records.
    preview = ("replay", "again", "--group", "plain", "--from-offset", "start", "--dry-run")
    assert desk.ask(*preview)["records"] == 10


def test_records_finished_by_every_group_are_deleted(desk: Desk) -> None:
    desk.call("topic", "alter", "jobs", "-c", "retention.mode=ack")
    desk.produce("jobs", 10)
    desk.judge("jobs", "workers", 10)

    def starts() -> list[int]:
        rows = desk.call("topic", "describe", "jobs").stdout.splitlines()[-2:]
        return [int(row.split()[5]) for row in rows]

    eventually(lambda: starts() == [5, 5], "what was done with is forgotten")
    desk.produce("jobs", 10)
    assert starts() == [5, 5]
