"""A cluster on a network, with clocks and with data directories that can be spoiled.

Every node and etcd is in a network namespace of its own; clients are outside. Where clocks are to
be stepped, nodes run with libfaketime, which reads the time of each from a file; only the wall
clock is stepped, the monotonic one never is.
"""

import contextlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.brokers import QUICK
from tests.chaos.cluster_view import View, wait_whole
from tests.chaos.nemeses import Arena
from tests.chaos.network import Network
from tests.clusters import NodeProcess, Nodes
from tests.etcd import EtcdProcess
from tests.histories.groups import SETS as SETS_OF_GROUPS
from tests.histories.workload import Workload

ETCD = "etcd"
NODES = (1, 2, 3)
LIBRARY = "libfaketimeMT.so.1"
SETS: dict[str, object] = {
    **QUICK,
    **SETS_OF_GROUPS,
    "group.share.min.record.lock.duration.ms": 1_000,
}
ALONE_S = 6.0


class NoClocks(Exception):
    """There is no libfaketime; the message says how to install it."""


class Clocks:
    """The calendar of each node; steps are seen within a second."""

    def __init__(self, directory: Path) -> None:
        found = sorted(Path("/usr/lib").glob(f"*/faketime/{LIBRARY}"))
        if not found:
            raise NoClocks(f"there is no {LIBRARY} (Debian: apt-get install faketime)")
        self._library = found[0]
        self._files = {node: directory / f"clock-{node}" for node in NODES}
        self.steps_s = dict.fromkeys(NODES, 0)
        for node in NODES:
            self.step(node, 0)

    def prefix(self, node: int) -> list[str]:
        settings = {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": self._files[node],
            "FAKETIME_CACHE_DURATION": 1,
            "FAKETIME_DONT_FAKE_MONOTONIC": 1,
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items())]

    def step(self, node: int, seconds: int) -> None:
        """Steps the node's clock ahead of the others, or behind."""
        new = self._files[node].with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.rename(self._files[node])
        self.steps_s[node] = seconds


@dataclass
class Stage(Arena):
    """Targets that a fault may touch, beyond what nemeses do."""

    network: Network
    clocks: Clocks | None
    load: Workload

    def hold(self, least_s: float, most_s: float) -> None:
        """A fault lasts for some time."""
        time.sleep(self.random.uniform(least_s, most_s))

    @property
    def etcd(self) -> EtcdProcess:
        assert isinstance(self.cluster.etcd, EtcdProcess)
        return self.cluster.etcd

    def others(self, node_id: int) -> list[int]:
        return [other for other in self.cluster.nodes if other != node_id]

    def data_of(self, node_id: int) -> Path:
        return self.cluster.data_dir / f"node-{node_id}"

    def stop_all(self) -> None:
        """All of them at once, some with time to tidy up."""
        nodes = list(self.cluster.nodes.values())
        for node in nodes:
            node.send(self.random.choice((signal.SIGKILL, signal.SIGTERM)))
        for node in nodes:
            end(node)

    def start_first(self, first: int) -> None:
        """Starts one node some seconds before the others."""
        nodes = self.cluster.nodes
        nodes[first].spawn()
        deadline = time.monotonic() + ALONE_S
        while time.monotonic() < deadline and "penstock ready" not in nodes[first].log():
            time.sleep(0.05)
        for other in self.others(first):
            nodes[other].spawn()
        for node in nodes.values():
            node.wait_ready()

    def mend(self) -> View:
        """Undoes whatever is still done to the cluster, and waits until it is whole."""
        self.network.heal()
        self.etcd.resume()
        if self.clocks is not None:
            for node_id in NODES:
                self.clocks.step(node_id, 0)
        for node in self.cluster.nodes.values():
            if node.running:
                node.send(signal.SIGCONT)
            else:
                node.start()
        return wait_whole(self.cluster, self.topic)


def end(node: NodeProcess) -> None:
    """Waits for the end of a stopping node; one that hangs is killed."""
    try:
        node.wait(20.0)
    except subprocess.TimeoutExpired:
        node.kill()


@contextlib.contextmanager
def a_cluster(
    directory: Path, *, has_clocks: bool
) -> Iterator[tuple[Nodes, Network, Clocks | None]]:
    """A new one, which ends with everything it made."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    clocks = Clocks(directory) if has_clocks else None
    with contextlib.ExitStack() as to_end:
        network = Network([*map(str, NODES), ETCD])
        to_end.callback(network.close)
        host = network.addresses[ETCD]
        etcd = EtcdProcess(directory / "etcd", host=host, prefix=network.prefix(ETCD))
        own = {n: {"host": network.addresses[str(n)], "insecure": True} for n in NODES}
        prefixes = {
            n: [*network.prefix(str(n)), *(clocks.prefix(n) if clocks else ())] for n in NODES
        }
        nodes = Nodes(directory / "cluster", sets=SETS, etcd=etcd, own=own, prefixes=prefixes)
        to_end.callback(nodes.stop)
        to_end.callback(network.heal)
        yield nodes, network, clocks


def seeded(*words: object) -> random.Random:
    """The same luck for the same words."""
    return random.Random(" ".join(map(str, words)))
