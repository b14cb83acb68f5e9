"""Streaming job with shuffle and speculation, whose driver and workers are killed in its sink.

The output has every record once. `PENSTOCK_SPARK_KILLS` sets the number of kills. Each happens at a
fault point, beginning with the gap between a task's write and its commit, and every seventh one
after a random amount of output. `PENSTOCK_SPARK_MASTER=local-cluster[2,1,1024]` runs separate
executors; Spark speculates only there.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.spark.sink import fault_points
from tests.spark.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("PENSTOCK_SPARK_KILLS", "1"))
RECORDS_PER_RUN = 600
PER_BATCH = 60
TIMEOUT_S = 240.0 + 60.0 * KILLS
TURNS = (
    fault_points.TASK_WRITTEN,
    *(point for point in fault_points.POINTS if point != fault_points.TASK_WRITTEN),
    None,
)
"""Fault points of successive kills; None: a random moment."""


class DriverProcess:
    """Job in its own session, which identifies its JVM and Python workers."""

    def __init__(self, arguments: list[str], log: Path, faults: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._start = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.job", *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                    fault_points.ENVIRONMENT: str(faults),
                },
            )

    def said(self) -> str:
        with self._log.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    def wait_for(self, word: str) -> None:
        self._wait(lambda: word in self.said(), repr(word))

    def wait_for_file(self, path: Path) -> None:
        self._wait(path.exists, path.name)

    def _wait(self, is_done: Callable[[], bool], about: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_done():
            assert self._process.poll() is None or is_done(), self.said()[-4_000:]
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no {about}: {self.said()[-4_000:]}")
            time.sleep(0.05)

    def finish(self) -> None:
        self.wait_for("finished")
        assert self._process.wait(TIMEOUT_S) == 0

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kills driver, JVMs and Python workers, whatever process groups they created."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(int(entry.name)) == self._process.pid:
                        os.kill(int(entry.name), signal.SIGKILL)
        self._process.wait()


@pytest.mark.timeout(0)  # Every wait inside has its own end.
def test_killed_driver_neither_loses_nor_duplicates_records(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    out = f"{topic}-out"
    topics.create(topic, 2)
    topics.create(out, 2)
    arguments = [topics.bootstrap, topic, out, str(tmp_path / "checkpoint"), str(PER_BATCH)]
    log, faults = tmp_path / "driver.log", tmp_path / "faults"
    faults.mkdir()
    draw = random.Random()
    written = kills = 0
    while kills < KILLS:
        topics.numbers(topic, RECORDS_PER_RUN, start=written, partitions=2)
        written += RECORDS_PER_RUN
        point = TURNS[kills % len(TURNS)]
        if point is not None:
            (faults / point).write_text(fault_points.WAIT)
        before = topics.written(out)
        driver = DriverProcess(arguments, log, faults)
        try:
            driver.wait_for("session")
            if point is None:
                _wait_for_output(driver, topics, out, before + draw.uniform(0, RECORDS_PER_RUN))
                time.sleep(draw.uniform(0, 0.5))
            else:
                driver.wait_for_file(faults / f"{point}.reached")
                assert topics.written(out) > before, "the sink has written before this point"
        finally:
            kills += driver.is_running
            driver.kill()
        if point is not None:
            (faults / f"{point}.reached").unlink()
        # Open transactions are invisible; visible records are unique at any moment.
        seen = topics.values(out, settled_s=0.0)
        assert len(seen) == len(set(seen)), "a record was committed twice"
        where = point or "a random moment"
        print(f"kill {kills} at {where}: {written} in, {len(seen)} seen, each once", flush=True)
    last = DriverProcess(arguments, log, faults)
    try:
        last.finish()
    finally:
        last.kill()
    assert topics.values(out) == list(range(written))
    assert sum(topics.committed(f"job-{topic}").values()) == written


def _wait_for_output(driver: DriverProcess, topics: Topics, out: str, enough: float) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while driver.is_running and topics.written(out) < enough:
        if time.monotonic() >= deadline:
            raise TimeoutError(driver.said()[-4_000:])
        time.sleep(0.01)
