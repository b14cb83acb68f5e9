"""A real etcd put back to a backup under a cluster that runs: refused, recovered, nothing lost."""

import functools
import shutil
import subprocess
from pathlib import Path

from tests.brokers import COMMAND, QUICK
from tests.clusters import NodeProcess, Nodes
from tests.etcd import require_etcd
from tests.scenarios.test_cluster_up import consume, create, produce
from tests.waiting import eventually

SETS = {**QUICK, "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
PATIENCE_S = 60.0


def recover(cluster: Nodes, node_id: int, *options: str) -> str:
    config = cluster.data_dir / f"node-{node_id}.toml"
    command = [COMMAND, "cluster", "recover-metadata", "--config", str(config), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def has_ended(node: NodeProcess) -> bool:
    return not node.running


def test_etcd_restored_to_a_backup_is_refused_and_recovered(tmp_path: Path) -> None:
    require_etcd()
    cluster = Nodes(tmp_path / "cluster", 3, SETS)
    try:
        create(cluster, "early")
        produce(cluster, "early", [f"e{n}" for n in range(20)])
        data = cluster.etcd.members[0].data_dir
        cluster.etcd.stop()
        shutil.copytree(data, tmp_path / "backup")
        for member in cluster.etcd.members:
            member.start()
        create(cluster, "late")
        produce(cluster, "late", [f"l{n}" for n in range(20)])

        cluster.etcd.stop()
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "backup", data)
        for member in cluster.etcd.members:
            member.start()
        for node in cluster.nodes.values():
            eventually(functools.partial(has_ended, node), "the node ends", PATIENCE_S)
            node.spawn()
            eventually(functools.partial(has_ended, node), "the node ends", PATIENCE_S)
            assert "recover-metadata" in node.log()

        cluster.etcd.members[0].end_leases()
        assert "nothing was changed" in recover(cluster, 1)
        for node_id in (3, 1, 2):
            told = recover(cluster, node_id, "--yes")
        assert "topic late is created again" in told
        assert "start the nodes" in told
        for node in cluster.nodes.values():
            node.spawn()
        for node in cluster.nodes.values():
            node.wait_ready()
        produce(cluster, "late", ["new"])
        found = consume(cluster, "late", 21)
        assert sorted(found) == sorted([*(f"l{n}" for n in range(20)), "new"])
        assert len(consume(cluster, "early", 20)) == 20
    finally:
        cluster.stop()
