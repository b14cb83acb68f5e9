"""Streaming job with shuffle and speculation, whose driver and workers are killed at random.

The output has every record once. `PENSTOCK_SPARK_KILLS` sets the number of kills, each after a
random amount of output. `PENSTOCK_SPARK_MASTER=local-cluster[2,1,1024]` runs separate executors;
Spark speculates only there.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.topics import Topics

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("PENSTOCK_SPARK_KILLS", "1"))
RECORDS_PER_RUN = 600
PER_BATCH = 60
TIMEOUT_S = 240.0 + 60.0 * KILLS


class DriverProcess:
    """Job in its own session, which identifies its JVM and Python workers."""

    def __init__(self, arguments: list[str], log: Path) -> None:
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
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            )

    def said(self) -> str:
        with self._log.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    def wait_for(self, word: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while word not in self.said():
            assert self._process.poll() is None or word in self.said(), self.said()[-4_000:]
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no {word!r}: {self.said()[-4_000:]}")
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
    log = tmp_path / "driver.log"
    draw = random.Random()
    written = kills = 0
    while kills < KILLS:
        topics.numbers(topic, RECORDS_PER_RUN, start=written, partitions=2)
        written += RECORDS_PER_RUN
        driver = DriverProcess(arguments, log)
        try:
            driver.wait_for("session")
            # Kill after a random number of writes and a random delay.
            enough = topics.written(out) + draw.uniform(0, 1.2 * RECORDS_PER_RUN)
            deadline = time.monotonic() + TIMEOUT_S
            while driver.is_running and topics.written(out) < enough:
                if time.monotonic() >= deadline:
                    raise TimeoutError(driver.said()[-4_000:])
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.5))
        finally:
            kills += driver.is_running
            driver.kill()
        # Open transactions are invisible; visible records are unique at any moment.
        seen = topics.values(out, settled_s=0.0)
        assert len(seen) == len(set(seen)), "a record was committed twice"
        print(f"kill {kills}: {written} records in, {len(seen)} seen, each once", flush=True)
    last = DriverProcess(arguments, log)
    try:
        last.finish()
    finally:
        last.kill()
    assert topics.values(out) == list(range(written))
    assert sum(topics.committed(f"job-{topic}").values()) == written
