"""One Penstock broker as a child process, for tests and benchmarks.

Owns starting `penstock up` and waiting for its ready line. Only that line of its output is trusted;
everything else is asked over Kafka's protocol or read from /proc.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.processes import LoggedProcess

READY = re.compile(r"^penstock ready kafka=(?P<kafka>\S+) http=(?P<http>\S+)", re.MULTILINE)
COMMAND = str(Path(sys.executable).parent / "penstock")
QUICK: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "share.coordinator.state.topic.num.partitions": 5,
}
"""Short enough that tests do not wait for absent members, and no start creates dozens of empty
partitions.
"""


class PenstockProcess(LoggedProcess):
    """One `penstock up`, started by the constructor by default; after `stop`, use `start`.

    `prefix` goes before the command, e.g. to run the code of another commit.
    """

    def __init__(
        self,
        data_dir: Path,
        sets: Mapping[str, object] | None = None,
        *,
        kafka_port: int = 0,
        http_port: int = 0,
        ready_timeout_s: float = 60.0,
        started: bool = True,
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(data_dir.with_name(data_dir.name + ".log"))
        self._prefix = prefix
        self.data_dir = data_dir
        self.sets = dict(sets or {})
        self.kafka_port = kafka_port
        self.http_port = http_port
        self.ready_timeout_s = ready_timeout_s
        self.bootstrap = ""
        self.http = ""
        if started:
            self.start()

    def start(self) -> None:
        """Starts the broker and returns when it serves."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Starts the broker and returns at once."""
        command = [*self._prefix, COMMAND, "up", "--data", str(self.data_dir)]
        if "listeners" not in self.sets:
            command += ["--kafka-port", str(self.kafka_port)]
        command += ["--http-port", str(self.http_port)]
        for name, value in self.sets.items():
            command += ["--set", f"{name}={value}"]
        self.run(command)

    def wait_ready(self) -> None:
        """Waits for the ready line and reads the addresses from it."""
        ready = self.wait_said(READY, self.ready_timeout_s)
        self.bootstrap, self.http = ready["kafka"], ready["http"]
