"""Base of every workload: clients in threads that send one request after another, and a final
check.

A workload writes every operation into the journal and decides nothing itself. Its clients survive
any failure of their nodes: an operation without an answer is `info`, and they send the next one.
Answers that no node should ever give end in `errors`.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.coordinator.runtime.steady_clock import SLEW
from tests.chaos.writers import create_topic
from tests.clusters import Nodes
from tests.histories.journal import Journal

PATIENCE_S = 45.0
FINISH_S = 60.0
SURE = 1 / (1 + SLEW)
"""Share of a lease or session that its owner can be sure of: where a clock was stepped, a node's
time runs a little faster until it is where the clock is."""
QUIET: dict[str, Any] = {
    "reconnect.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 2_000,
    "log_level": 0,
    "topic.metadata.refresh.interval.ms": 2_000,
}
"""For librdkafka: a dead or silent node is expected here."""


class Workload(ABC):
    """Made, prepared, begun, ended, and looked at for the last time, in that order."""

    model: str
    """The checker's name for what it may do."""
    watched: str
    """The topic whose leaders and replicas are met by faults."""

    def __init__(self, cluster: Nodes, journal: Journal, seed: int) -> None:
        self.cluster, self.journal = cluster, journal
        self.errors: list[str] = []
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def prepare(self) -> None:
        """Makes the topics and groups, before anything is disturbed."""

    @abstractmethod
    def begin(self) -> None:
        """Starts all clients."""

    @abstractmethod
    def look(self) -> None:
        """After all disturbances, and when clients have ended: what is there now."""

    def create(self, topic: str, partitions: int) -> None:
        """With three replicas, of which two must have what is acknowledged."""
        bootstrap = self.cluster.bootstrap
        create_topic(bootstrap, topic, partitions, factor=3, min_insync_replicas="2")

    def end(self) -> None:
        self._stopping.set()
        deadline = time.monotonic() + FINISH_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.errors.append(f"{thread.name} hangs")

    def wait_progress(self, seconds_worth: float = 0.5) -> None:
        """Until so many more operations succeeded as that time should bring."""
        goal = len(self.journal.oks_ns) + max(3, int(20 * seconds_worth))
        deadline = time.monotonic() + PATIENCE_S
        while len(self.journal.oks_ns) < goal:
            if time.monotonic() > deadline:
                reasons = self.journal.reasons("info").most_common(3)
                raise TimeoutError(f"nothing goes on: {reasons}\n{self.cluster.all_logs()}")
            time.sleep(0.02)

    def _run(self, name: str, step: Callable[[], None], pause_s: float) -> None:
        """A client that takes this step again and again."""

        def steps() -> None:
            try:
                while not self._stopping.is_set():
                    step()
                    self._stopping.wait(pause_s)
            except Exception as error:
                self.errors.append(f"{name}: {error!r}")
                raise

        thread = threading.Thread(target=steps, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _chance(self) -> random.Random:
        """One for each client, so that no thread changes another's luck."""
        return random.Random(self._random.getrandbits(64))
