"""Spark's standalone cluster on this machine: a master and workers, from the pip package.

Each process has its own session id, by which it is killed together with its executors. All listen
on the loopback interface, on free ports.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pyspark

from penstock.spark.session import worker_python

MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = "Successfully registered with master"
READY_S = 90.0
HOME = Path(pyspark.__file__).parent


class SparkDaemon:
    """Process of `spark-class`, which runs until it is killed."""

    def __init__(self, arguments: Sequence[str], log: Path, memory: str = "192m") -> None:
        self.log = log
        environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": memory,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "PYSPARK_PYTHON": worker_python(),
        }
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(HOME / "bin" / "spark-class"), *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + READY_S
        while True:
            text = self.log.read_text(errors="replace")
            found = re.search(pattern, text)
            if found is not None:
                return found[found.lastindex or 0]
            assert self._process.poll() is None, text[-2_000:]
            if time.monotonic() >= deadline:
                raise TimeoutError(text[-2_000:])
            time.sleep(0.1)

    def kill(self) -> None:
        """Kills the process and all its descendants, whatever process groups they created."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(int(entry.name)) == self._process.pid:
                        os.kill(int(entry.name), signal.SIGKILL)
        self._process.wait()


class SparkCluster:
    """Master and workers with one core each."""

    def __init__(self, folder: Path, workers: int, memory: str = "700m") -> None:
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self.daemons: list[SparkDaemon] = []
        try:
            master = self._start(
                ["org.apache.spark.deploy.master.Master", *ports], folder / "master.log"
            )
            self.url = master.wait_for(MASTER.pattern)
            self.workers = [
                self._start(
                    [
                        "org.apache.spark.deploy.worker.Worker",
                        *ports,
                        *("--cores", "1", "--memory", memory),
                        *("--work-dir", str(folder / f"worker-{number}")),
                        self.url,
                    ],
                    folder / f"worker-{number}.log",
                )
                for number in range(workers)
            ]
            for worker in self.workers:
                worker.wait_for(REGISTERED)
        except BaseException:
            self.close()
            raise

    def _start(self, arguments: Sequence[str], log: Path) -> SparkDaemon:
        daemon = SparkDaemon(arguments, log)
        self.daemons.append(daemon)
        return daemon

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.kill()
