"""Three real nodes and a real etcd on this machine: `penstock up --nodes 3` and its neighbours."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import COMMAND, QUICK
from tests.clusters import ClusterProcess, NodeProcess, Nodes, is_running
from tests.etcd import EtcdProcess, require_etcd
from tests.waiting import eventually

PATIENCE_S = 60.0
SHORT_SESSIONS = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}

NewCluster = Callable[..., ClusterProcess]
Cluster = ClusterProcess | Nodes


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    require_etcd()
    started: list[ClusterProcess] = []

    def start(**options: Any) -> ClusterProcess:
        sets = {**QUICK, **options.pop("sets", {})}
        started.append(ClusterProcess(tmp_path / "cluster", sets=sets, **options))
        return started[-1]

    yield start
    for cluster in started:
        if cluster.running:
            cluster.stop()


def until(condition: Callable[[], object], what: str, cluster: Cluster) -> None:
    eventually(condition, what, PATIENCE_S, explain=cluster.all_logs)


def create(cluster: Cluster, name: str, partitions: int = 3, copies: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=copies)
    admin.create_topics([new])[name].result(PATIENCE_S)


def new_producer(cluster: Cluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})


def produce(
    cluster: Cluster, topic: str, values: list[str], producer: Producer | None = None
) -> None:
    """Returns when every value is acknowledged by all in-sync replicas."""
    failed: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = producer or new_producer(cluster)
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0, cluster.all_logs()
    assert failed == []


def consume(cluster: Cluster, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"reader-of-{topic}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
    finally:
        consumer.close()
    assert len(found) == count, cluster.all_logs()
    return sorted(found)


def values_of(name: str, count: int = 200) -> list[str]:
    return [f"{name}-{number:05d}" for number in range(count)]


def test_cluster_of_three_serves_replicates_and_is_described(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    assert len(cluster.bootstrap.split(",")) == 3
    create(cluster, "orders")
    produce(cluster, "orders", values_of("a"))
    assert consume(cluster, "orders", 200) == values_of("a")
    document = cluster.describe()
    assert [node["id"] for node in document["nodes"]] == [1, 2, 3]
    assert {node["address"] for node in document["nodes"]} == set(cluster.bootstrap.split(","))
    assert all(is_running(node["pid"]) for node in document["nodes"])
    assert sum(node["controller"] for node in document["nodes"]) == 1
    # Three partitions of `orders`, and the internal topic of the group.
    assert all(node["leads"] > 0 for node in document["nodes"])
    assert (document["under_replicated"], document["offline"]) == (0, 0)
    assert cluster.stop() == 0


def test_cluster_data_survives_a_full_stop(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    create(cluster, "orders")
    produce(cluster, "orders", values_of("a"))
    assert cluster.stop() == 0
    cluster.start()
    produce(cluster, "orders", values_of("b"))
    assert consume(cluster, "orders", 400) == [*values_of("a"), *values_of("b")]


def test_killed_node_is_reported_and_may_return(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster()
    create(cluster, "orders")
    produce(cluster, "orders", values_of("a"))
    cluster.signal_node(2, signal.SIGKILL)
    until(lambda: "node 2 was ended by signal 9" in cluster.log(), "the report", cluster)
    produce(cluster, "orders", values_of("b"))
    assert consume(cluster, "orders", 400) == [*values_of("a"), *values_of("b")]
    assert [node["id"] for node in cluster.describe()["nodes"]] == [1, 3]
    cluster.start_node(2)
    until(lambda: cluster.describe()["under_replicated"] == 0, "whole again", cluster)
    assert cluster.running


def test_stopping_node_hands_over_its_leadership(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    create(cluster, "orders", partitions=6)
    produce(cluster, "orders", values_of("a"))
    assert cluster.node(1)["leads"] > 0
    cluster.signal_node(1, signal.SIGTERM)
    until(lambda: "node 1 ended with code 0" in cluster.log(), "the clean end", cluster)
    assert (cluster.data_dir / "node-1" / "clean-shutdown").exists()
    document = cluster.describe()
    assert document["offline"] == 0
    produce(cluster, "orders", values_of("b"))
    assert consume(cluster, "orders", 400) == [*values_of("a"), *values_of("b")]


def test_killed_supervisor_leaves_no_orphans(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    pids = [node["pid"] for node in cluster.describe()["nodes"]]
    children = Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
    etcd = [int(pid) for pid in children if int(pid) not in pids]
    assert len(etcd) == 1
    cluster.kill()
    until(lambda: not any(map(is_running, [*pids, *etcd])), "no process left", cluster)
    cluster.start()
    assert len(cluster.describe()["nodes"]) == 3


def test_cluster_survives_an_etcd_outage(new_cluster: NewCluster) -> None:
    cluster = new_cluster(sets=SHORT_SESSIONS)
    create(cluster, "orders")
    producer = new_producer(cluster)
    produce(cluster, "orders", values_of("a"), producer)
    nodes = [node["pid"] for node in cluster.describe()["nodes"]]
    children = Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
    (etcd,) = [int(pid) for pid in children if int(pid) not in nodes]
    os.kill(etcd, signal.SIGSTOP)
    # The nodes go on with what they know, until their leases end.
    produce(cluster, "orders", values_of("b"), producer)
    log = cluster.data_dir / "node-1.log"
    until(lambda: "accepts no writes" in log.read_text(), "fenced", cluster)
    os.kill(etcd, signal.SIGCONT)
    produce(cluster, "orders", values_of("c"), producer)
    expected = [*values_of("a"), *values_of("b"), *values_of("c")]
    assert consume(cluster, "orders", 600) == expected


# -- what cannot be started -----------------------------------------------------------------------


def run_node(config: Path) -> "subprocess.CompletedProcess[str]":
    command = [COMMAND, "node", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def snapshot(path: Path) -> dict[str, bytes]:
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != "lock"]
    return {str(file): file.read_bytes() for file in files}


def altered(cluster: ClusterProcess, node_id: int, **lines: object) -> Path:
    """A copy of a node's file with other values."""
    text = (cluster.data_dir / f"node-{node_id}.toml").read_text()
    changed = []
    for line in text.splitlines():
        name = line.partition(" =")[0]
        changed.append(f"{name} = {json.dumps(lines[name])}" if name in lines else line)
    path = cluster.data_dir.with_name(f"altered-{node_id}.toml")
    path.write_text("\n".join(changed))
    return path


FREE_PORTS = {"kafka-port": 0, "http-port": 0}


def test_misconfigured_nodes_are_refused_in_one_line(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    cluster = new_cluster(sets=SHORT_SESSIONS)
    # The id of a node that is alive, with a directory of its own.
    other = str(tmp_path / "other")
    config = altered(cluster, 2, data=other, **FREE_PORTS)
    refused = run_node(config)
    assert refused.returncode == 1
    assert "penstock: node id 2 is taken: process" in refused.stderr.splitlines()[-1]
    # The directory of another node.
    cluster.signal_node(3, signal.SIGTERM)
    until(lambda: "node 3 ended" in cluster.log(), "the end of node 3", cluster)
    before = snapshot(cluster.data_dir / "node-3")
    refused = run_node(altered(cluster, 3, **{"node-id": 7}, **FREE_PORTS))
    assert refused.returncode == 1
    assert "belongs to node 3, this is node 7" in refused.stderr.splitlines()[-1]
    # The directory of another cluster: the same etcd, under another prefix.
    config = altered(cluster, 3, **FREE_PORTS)
    config.write_text(config.read_text() + '\nprefix = "/elsewhere"\n')
    refused = run_node(config)
    assert refused.returncode == 1
    assert "knows of no cluster" in refused.stderr.splitlines()[-1]
    outsider = config.with_name("outsider.toml")
    text = config.read_text().replace(str(cluster.data_dir / "node-3"), str(tmp_path / "new"))
    outsider.write_text(text)
    command = [COMMAND, "node", "--config", str(outsider)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"penstock ready")
            refused = run_node(config)
        finally:
            process.terminate()
    assert refused.returncode == 1
    assert "is of cluster" in refused.stderr.splitlines()[-1]
    assert snapshot(cluster.data_dir / "node-3") == before
    # And with its own place it starts.
    cluster.start_node(3)


def test_node_waits_for_a_late_etcd(tmp_path: Path) -> None:
    require_etcd()
    etcd = EtcdProcess(tmp_path / "etcd", started=False)
    node = NodeProcess(tmp_path, 1, {"etcd.endpoints": etcd.url})
    node.spawn()
    try:
        eventually(lambda: "waiting up to 30 s for etcd" in node.log(), "it says that it waits")
        assert etcd.url in node.log()
        assert snapshot(tmp_path / "node-1") == {}
        etcd.start()
        node.wait_ready()
        assert node.stop() == 0
    finally:
        if node.running:
            node.kill()
        etcd.stop()
