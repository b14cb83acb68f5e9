"""Replicated writes with acks=all: three nodes and three Kafka brokers, all on one disk.

Returns figures by key, as `measures`. CPU is that of all nodes; Penstock's includes etcd, since
Kafka's brokers include their metadata store.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench import load, proc
from bench.measures import GB, Figures, Sizes, settle
from bench.peers.kafka import KafkaCluster
from bench.sides import TIDY, Say, fresh_dir, topic
from tests.clusters import Nodes

NODES = 3
SIZE = 1024
SHAPES = (1, 6)
REPLICAS = {"min.insync.replicas": 2}


class Cluster(Protocol):
    """Processes of one cluster."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def pids(self) -> list[int]: ...

    def stop(self) -> None: ...


class Penstock:
    """Three `penstock node` processes and an etcd."""

    def __init__(self, data_dir: Path) -> None:
        self._nodes = Nodes(data_dir, NODES, TIDY)
        self.bootstrap = self._nodes.bootstrap

    @property
    def pids(self) -> list[int]:
        etcd = self._nodes.etcd
        return [*(node.pid for node in self._nodes.nodes.values()), *etcd.pids]

    def stop(self) -> None:
        self._nodes.stop()


def clusters(say: Say) -> dict[str, Callable[[Path], Cluster]]:
    return {
        "penstock": Penstock,
        "kafka": lambda data_dir: KafkaCluster(data_dir, NODES, TIDY, say),
    }


@contextmanager
def running(make: Callable[[Path], Cluster], root: Path) -> Iterator[Cluster]:
    """Fresh cluster, stopped and deleted at the end."""
    with fresh_dir(root) as directory:
        cluster = make(directory / "cluster")
        try:
            yield cluster
        finally:
            cluster.stop()


def writes(cluster: Cluster, partitions: int, sizes: Sizes) -> Figures:
    """Produces with librdkafka to topics with three replicas."""
    count = sizes.messages(SIZE)
    with topic(cluster.bootstrap, partitions, NODES, REPLICAS) as name:
        settle(sizes)
        before = _cpu_s(cluster)
        done = load.run(
            "produce",
            cluster.bootstrap,
            name,
            partitions,
            count,
            SIZE,
            settings=load.PRODUCER,
        )
        cpu_s = _cpu_s(cluster) - before
    key = f"replicated_{partitions}"
    return {
        f"{key}_rate": done["messages"] / done["seconds"],
        f"{key}_cpu": cpu_s / (count * SIZE / GB),
    }


def _cpu_s(cluster: Cluster) -> float:
    return sum(map(proc.cpu_s, cluster.pids))
