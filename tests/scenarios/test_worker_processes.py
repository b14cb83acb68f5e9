"""`penstock worker --processes` and `--reload`, as real processes against a real broker."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import SyncClient
from tests.brokers import COMMAND, PenstockProcess
from tests.conftest import FreshBroker
from tests.waiting import eventually

PATIENCE_S = 90.0
SOURCE = """
import os
from penstock import Message, Worker

worker = Worker(group="workers", grace="10s")


@worker.task("jobs", concurrency=1, prefetch=0, retries=8, backoff="100ms")
def handle(message: Message) -> None:
    with open("told", "a") as log:
        log.write(f"VERSION {os.getpid()} {message.text}\\n")
    if message.text == "die":
        os._exit(3)
"""


class Jobs:
    """A worker in a folder of its own, and the lines that its handler wrote."""

    def __init__(self, broker: PenstockProcess, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.write("one")

    def write(self, version: str) -> None:
        (self.folder / "shop.py").write_text(SOURCE.replace("VERSION", version))

    def start(self, *options: str) -> None:
        environment = {**os.environ, "PENSTOCK_BROKERS": self.broker.bootstrap}
        environment.pop("PENSTOCK_TEST_GUARD", None)
        self.process = subprocess.Popen(
            [COMMAND, "worker", "shop:worker", *options], cwd=self.folder, env=environment
        )

    def publish(self, *texts: str) -> None:
        with SyncClient(self.broker.bootstrap) as client:
            client.publish_many("jobs", texts)

    def told(self) -> list[list[str]]:
        path = self.folder / "told"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, is_so: Callable[[list[list[str]]], bool], what: str) -> None:
        eventually(lambda: is_so(self.told()), what, PATIENCE_S, explain=self.told)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def jobs(fresh_broker: FreshBroker, tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(fresh_broker(), tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def test_process_that_dies_is_replaced_and_all_stop_on_a_signal(jobs: Jobs) -> None:
    jobs.start("--processes", "2")
    jobs.publish("die")
    # The message kills the process that handles it: both processes, and those that replace them.
    jobs.wait_for(lambda told: len({pid for _, pid, _ in told}) >= 3, "a third process")
    assert jobs.stop() == 0
    for _, pid, _ in jobs.told():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_changed_source_is_loaded_again(jobs: Jobs) -> None:
    jobs.start("--reload")
    jobs.publish("first")
    jobs.wait_for(lambda told: [one[0] for one in told] == ["one"], "the first version")
    jobs.write("number-two")
    eventually(
        lambda: jobs.publish("more") or any(one[0] == "number-two" for one in jobs.told()),  # type: ignore[func-returns-value]
        "the second version",
        PATIENCE_S,
    )
    assert jobs.stop() == 0


def test_worker_that_never_starts_ends_with_its_error(jobs: Jobs) -> None:
    (jobs.folder / "shop.py").write_text("raise RuntimeError('no')")
    jobs.start("--processes", "2")
    assert jobs.process is not None
    assert jobs.process.wait(PATIENCE_S) == 1
