"""Workers against a real broker process: order per key, poison, crashes, signals."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock import SyncClient
from penstock.app.sync import SyncMessage
from tests.brokers import COMMAND, PenstockProcess
from tests.conftest import FreshBroker
from tests.scenarios.working import run_keys, run_poison
from tests.waiting import eventually

PATIENCE_S = 120.0


def test_thousand_keys_keep_their_order_through_failures(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker()
    result = asyncio.run(run_keys(broker.bootstrap, keys=1_000, workers=10, each=3, concurrency=5))
    assert result.check.violations == []
    assert result.check.count == 3_000
    assert result.failures > 50


def test_poisoned_and_held_messages_delay_no_other(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker()
    result = asyncio.run(run_poison(broker.bootstrap, 3_000))
    assert result.delivered == 3_001
    assert result.is_held_back
    assert sorted(
        dead_letter["penstock-dlq-error-class"] or b"" for dead_letter in result.dead_letters
    ) == [
        b"Failed",
        b"Reject",
    ]


class Jobs:
    """`penstock worker tests.scenarios.jobs:worker`, and its log."""

    def __init__(self, broker: PenstockProcess, log: Path) -> None:
        self.broker = broker
        self.log = log
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, seconds: float = 0.0) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "JOBS_BROKERS": self.broker.bootstrap,
            "JOBS_LOG": str(self.log),
            "JOBS_SECONDS": str(seconds),
        }
        process = subprocess.Popen(
            [COMMAND, "worker", "tests.scenarios.jobs:worker"],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    def told(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wait_unfinished(self, count: int) -> None:
        """Until the broker knows that all but so many are done."""

        def unfinished() -> int:
            with urlopen(f"{self.broker.http}/topics/jobs/queues/jobs-workers") as answer:
                return int(json.load(answer)["unfinished"])

        eventually(lambda: unfinished() == count, f"{count} unfinished", PATIENCE_S)

    def wait_for(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        eventually(lambda: is_so(self.told()), "it tells so", PATIENCE_S, explain=self.told)
        return self.told()


@pytest.fixture
def jobs(fresh_broker: FreshBroker, tmp_path: Path) -> Iterator[Jobs]:
    found = Jobs(fresh_broker(), tmp_path / "told")
    yield found
    for process in found.processes:
        process.kill()
        process.wait()


def test_messages_of_a_killed_worker_are_handled_by_another(jobs: Jobs) -> None:
    with SyncClient(jobs.broker.bootstrap) as client:
        client.create_topic("jobs", 2)
        client.publish_many("jobs", ["hang", "other"])
        first = jobs.start()
        jobs.wait_for(lambda told: "begun hang 1" in told and "done other 1" in told)
        jobs.wait_unfinished(1)  # Its finished messages are acknowledged, too.
        first.kill()
        jobs.start()
        told = jobs.wait_for(lambda told: "done hang 2" in told)
    assert told.count("done other 1") == 1
    assert "done other 2" not in told


def test_worker_finishes_its_current_messages_on_a_signal(jobs: Jobs) -> None:
    with SyncClient(jobs.broker.bootstrap) as client:
        client.create_topic("jobs", 1)
        client.publish_many("jobs", [f"job-{number}" for number in range(20)])
        worker = jobs.start(seconds=0.5)
        jobs.wait_for(lambda told: len(told) >= 4)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
        told = jobs.told()
        begun = {line.split()[1] for line in told if line.startswith("begun")}
        done = {line.split()[1] for line in told if line.startswith("done")}
        assert begun == done
        assert 4 <= len(done) < 20
        # The rest is free at once, and was never counted as delivered.
        rest: list[SyncMessage] = []
        while len(rest) < 20 - len(done):
            found = client.poll("jobs", "jobs-workers", max=20, wait=30)
            assert found, f"{len(rest)} of {20 - len(done)} came back"
            rest += found
        assert {message.text for message in rest} & done == set()
        assert {message.attempt for message in rest} == {1}
