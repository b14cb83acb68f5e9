"""`penstock cluster reassign`, `elect` and `drain` on real nodes, as an operator uses them."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import COMMAND, QUICK
from tests.clusters import ClusterProcess
from tests.etcd import require_etcd
from tests.files import files_below
from tests.waiting import eventually

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    require_etcd()
    started = ClusterProcess(tmp_path_factory.mktemp("moves") / "cluster", 4, QUICK)
    yield started
    if started.running:
        started.stop()


def penstock(cluster: ClusterProcess, *arguments: str, stdin: str = "") -> str:
    done = run(cluster, *arguments, stdin=stdin)
    assert done.returncode == 0, f"{done.stderr}\n{cluster.all_logs()}"
    return done.stdout


def run(
    cluster: ClusterProcess, *arguments: str, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, *arguments, "-b", cluster.bootstrap],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def partitions(cluster: ClusterProcess, topic: str) -> list[dict[str, Any]]:
    [document] = json.loads(penstock(cluster, "topic", "describe", topic, "--format", "json"))
    found: list[dict[str, Any]] = document["partitions"]
    return found


def until(cluster: ClusterProcess, condition: Callable[[], bool]) -> None:
    eventually(condition, "the cluster comes to that", PATIENCE_S, explain=cluster.all_logs)


def files_of(cluster: ClusterProcess, node_id: int, topic: str) -> list[str]:
    logs = cluster.data_dir / f"node-{node_id}" / "logs"
    return [str(path) for found in logs.glob(f"{topic}.*") for path in files_below(found)]


def test_drained_node_is_empty_until_undone(cluster: ClusterProcess, tmp_path: Path) -> None:
    penstock(cluster, "topic", "create", "drained", "-p", "8", "-r", "3")
    lines = "".join(f"{number}\n" for number in range(5_000))
    penstock(cluster, "produce", "drained", stdin=lines)
    before = [p["replicas"] for p in partitions(cluster, "drained")]
    preview = json.loads(
        penstock(cluster, "cluster", "drain", "4", "--dry-run", "--format", "json")
    )
    assert len(preview["partitions"]) == sum(4 in replicas for replicas in before) > 0
    assert [p["replicas"] for p in partitions(cluster, "drained")] == before
    said = penstock(cluster, "cluster", "drain", "4", "-y", "--throttle", "50000000")
    assert "moved" in said
    assert all(4 not in p["replicas"] for p in partitions(cluster, "drained"))
    until(cluster, lambda: files_of(cluster, 4, "drained") == [])
    # No throttle is left behind, and nothing new comes to it.
    config = penstock(cluster, "topic", "describe", "drained", "--format", "json")
    assert "throttled" not in config
    penstock(cluster, "topic", "create", "later", "-p", "4", "-r", "3")
    assert all(4 not in p["replicas"] for p in partitions(cluster, "later"))
    penstock(cluster, "cluster", "drain", "4", "--undo")
    penstock(cluster, "cluster", "reassign", "drained", "later", "--balance", "-y")
    assert any(4 in p["replicas"] for p in partitions(cluster, "drained"))
    read = penstock(cluster, "consume", "drained", "-o", "start", "-e")
    assert sorted(map(int, read.split())) == list(range(5_000))


def test_printed_plan_can_be_applied(cluster: ClusterProcess, tmp_path: Path) -> None:
    penstock(cluster, "topic", "create", "planned", "-p", "3", "-r", "2")
    plan = penstock(
        cluster, "cluster", "reassign", "planned", "--factor", "3", "--dry-run", "--format", "json"
    )
    assert json.loads(plan)["copies"] == 3
    file = tmp_path / "plan.json"
    file.write_text(plan)
    done = penstock(cluster, "cluster", "reassign", "--plan", str(file), "-y", "--format", "json")
    assert json.loads(done)["done"]
    assert all(len(p["isr"]) == 3 for p in partitions(cluster, "planned"))
    assert penstock(cluster, "cluster", "reassign", "--status").strip() == "no moves are running"
    again = penstock(cluster, "cluster", "reassign", "--plan", str(file), "-y")
    assert again.strip() == "nothing to move"


def test_invalid_goals_are_refused_with_the_reason(cluster: ClusterProcess) -> None:
    for arguments, words in [
        (["reassign"], "pass exactly one of"),
        (["reassign", "--balance", "--factor", "2"], "pass exactly one of"),
        (["reassign", "--to", "77"], "node 77 is down or being drained"),
        (["reassign", "--factor", "9", "--dry-run"], "needs 9 nodes"),
        (["reassign", "nosuch", "--balance"], "does not exist"),
        (["drain", "99"], "node 99 does not exist"),
        (["drain", "4"], "--yes"),
    ]:
        done = run(cluster, "cluster", *arguments)
        assert done.returncode == 1, arguments
        assert words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_leadership_returns_to_a_restarted_node(cluster: ClusterProcess) -> None:
    penstock(cluster, "topic", "create", "led", "-p", "8", "-r", "3")
    victim = partitions(cluster, "led")[0]["leader"]
    cluster.signal_node(victim, signal.SIGKILL)
    until(cluster, lambda: all(p["leader"] != victim for p in partitions(cluster, "led")))
    cluster.start_node(victim)
    until(cluster, lambda: all(len(p["isr"]) == 3 for p in partitions(cluster, "led")))
    shown = penstock(cluster, "cluster", "elect", "led", "--dry-run")
    assert "would elect a leader of led[0]" in shown
    assert "elected" in penstock(cluster, "cluster", "elect", "led")
    assert all(p["leader"] == p["replicas"][0] for p in partitions(cluster, "led"))
    assert penstock(cluster, "cluster", "elect", "led").strip() == "no election is needed"
