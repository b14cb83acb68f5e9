"""Settings of a cluster on one machine: ports, configs, files, and refusals."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ports import Put
from penstock.cli.server.local_cluster import (
    BUILT,
    NODES_MAX,
    RELEASES,
    ClusterPlan,
    EtcdFailed,
    LocalCluster,
    NodeChild,
    _check,
    find_etcd,
    start_etcd,
)
from penstock.cli.terminal.errors import UserError
from penstock.node.config import load
from penstock.runtime.directory_lock import DirectoryLock, InUse
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd import require_etcd
from tests.run_with import in_new_loop, run_with


@pytest.mark.parametrize(
    ("nodes", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_default_settings_fit_the_number_of_nodes(nodes: int, copies: str, in_sync: str) -> None:
    settings = ClusterPlan(Path("data"), nodes).settings()
    assert settings["default.replication.factor"] == copies
    assert settings["offsets.topic.replication.factor"] == copies
    assert settings["transaction.state.log.replication.factor"] == copies
    assert settings["min.insync.replicas"] == in_sync
    assert settings["transaction.state.log.min.isr"] == in_sync


def test_given_settings_override_the_defaults() -> None:
    plan = ClusterPlan(Path("data"), 3, sets={"min.insync.replicas": "1", "num.partitions": "6"})
    assert plan.settings()["min.insync.replicas"] == "1"
    assert plan.settings()["num.partitions"] == "6"


def test_nodes_take_consecutive_ports_and_zero_stays_dynamic() -> None:
    plan = ClusterPlan(Path("data"), 3)
    assert [plan.port_of(9092, node_id) for node_id in (1, 2, 3)] == [9092, 9093, 9094]
    assert [plan.port_of(0, node_id) for node_id in (1, 2, 3)] == [0, 0, 0]


def test_node_config_file_holds_the_planned_settings(tmp_path: Path) -> None:
    data = tmp_path / 'with "quotes" and \\'
    data.mkdir()
    plan = ClusterPlan(data, 3, "127.0.0.1", 9092, 8080, {"broker.rack": 'a "rack"'})
    NodeChild(plan, 2, "http://127.0.0.1:2379")._write_config(9093, 8081)
    config = load(str(data / "node-2.toml"), {}, {})
    assert (config.node_id, config.kafka_port, config.http_port) == (2, 9093, 8081)
    assert config.data_dir == str(data / "node-2")
    assert config.etcd == EtcdConfig(("http://127.0.0.1:2379",))
    assert config.overrides == plan.settings()


@pytest.mark.parametrize("nodes", [0, -1, NODES_MAX + 1])
def test_invalid_number_of_nodes_is_refused(tmp_path: Path, nodes: int) -> None:
    with pytest.raises(UserError, match=f"--nodes {nodes} is not between"):
        _check(ClusterPlan(tmp_path, nodes), print)


@pytest.mark.parametrize(("kafka", "http", "fits"), [(9092, 9094, False), (9092, 9095, True)])
def test_overlapping_ports_are_refused(tmp_path: Path, kafka: int, http: int, fits: bool) -> None:
    for one, other in ((kafka, http), (http, kafka)):
        plan = ClusterPlan(tmp_path, 3, kafka_port=one, http_port=other)
        if fits:
            _check(plan, print)
        else:
            with pytest.raises(UserError, match="overlap those from 9094 on"):
                _check(plan, print)
    _check(ClusterPlan(tmp_path, 3, kafka_port=0, http_port=0), print)


def test_directory_of_a_single_node_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(UserError, match="holds the data of a single node"):
        _check(ClusterPlan(tmp_path, 3), print)


def test_existing_nodes_left_out_are_named(tmp_path: Path) -> None:
    for node_id in (1, 2, 3):
        (tmp_path / f"node-{node_id}").mkdir()
        (tmp_path / f"node-{node_id}.toml").touch()
    said: list[str] = []
    _check(ClusterPlan(tmp_path, 3), said.append)
    assert said == []
    _check(ClusterPlan(tmp_path, 2), said.append)
    assert len(said) == 1
    assert said[0].startswith("node-3 ran before")


def test_directory_has_one_supervisor(tmp_path: Path) -> None:
    require_etcd()
    held = DirectoryLock(str(tmp_path))
    try:
        with pytest.raises(InUse, match=f"in use by process {os.getpid()}"):
            asyncio.run(LocalCluster(ClusterPlan(tmp_path, 3), print).run(lambda kafka, http: None))
    finally:
        held.release()


def child_that(tmp_path: Path, *lines: str) -> NodeChild:
    """A child that runs these lines, whatever its arguments are."""
    script = tmp_path / "script"
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    return NodeChild(ClusterPlan(tmp_path, 3, command=(str(script),)), 1, "http://127.0.0.1:2379")


def test_node_that_fails_to_start_is_shown_with_its_last_log_lines(tmp_path: Path) -> None:
    child = child_that(tmp_path, "echo starting >&2", "echo 'the disk is on fire' >&2", "exit 3")

    async def main() -> None:
        await child.start()
        await child.ready()

    with pytest.raises(UserError) as failed:
        asyncio.run(main())
    assert "node 1 did not start (exit code 3)" in str(failed.value)
    assert "the disk is on fire" in str(failed.value)
    assert str(tmp_path / "node-1.log") in str(failed.value)


@run_with(in_new_loop)
async def test_end_of_a_node_is_described(*, tmp_path: Path) -> None:
    ready = "echo 'penstock ready kafka=127.0.0.1:1 http=http://127.0.0.1:2'"
    child = child_that(tmp_path, ready, "exec sleep 60")

    await child.start()
    await child.ready()
    assert (child.kafka, child.http) == ("127.0.0.1:1", "http://127.0.0.1:2")
    child.signal(signal.SIGKILL)
    assert await child.ended() == "node 1 was ended by signal 9"


pytestmark = pytest.mark.processes


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


def pretend(path: Path, version: str) -> str:
    path.write_text(f'#!/bin/sh\necho "etcd Version: {version}"\n')
    path.chmod(0o755)
    return str(path)


def test_etcd_named_by_the_environment_is_used_if_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = pretend(tmp_path / "new", "3.6.0")
    monkeypatch.setenv("PENSTOCK_ETCD", new)
    assert find_etcd() == new
    for unfit, told in (
        (pretend(tmp_path / "old", "3.4.23"), "is 3.4.23"),
        (str(tmp_path / "missing"), "is not etcd"),
        (sys.executable, "is not etcd"),
    ):
        monkeypatch.setenv("PENSTOCK_ETCD", unfit)
        with pytest.raises(EtcdFailed) as missing:
            find_etcd()
        assert f"{unfit} {told}" in str(missing.value)
        assert "https://github.com/etcd-io/etcd/releases" in str(missing.value)


def test_cluster_without_etcd_is_refused_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_ETCD", str(tmp_path / "missing"))
    plan = ClusterPlan(tmp_path / "cluster", 3)
    with pytest.raises(UserError) as missing:
        asyncio.run(LocalCluster(plan, print).run(lambda kafka, http: None))
    assert f"curl -L {RELEASES}/download/v{BUILT}/etcd-v{BUILT}-linux-" in str(missing.value)
    assert "Nothing was downloaded" in str(missing.value)
    assert list(tmp_path.iterdir()) == []


def test_old_etcd_on_the_path_does_not_hide_the_built_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_ETCD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    pretend(tmp_path / "etcd", "3.4.23")
    with contextlib.suppress(EtcdFailed):  # None was built where etcd is on the PATH.
        assert BUILT in find_etcd()
    new = pretend(tmp_path / "etcd", "3.7.1")
    assert find_etcd() == new


def test_required_etcd_version_is_the_built_one() -> None:
    pinned = Path(__file__).parents[4] / "tools" / "etcd" / "go.mod"
    assert f"require go.etcd.io/etcd/server/v3 v{BUILT}\n" in pinned.read_text()


@run_with(run)
async def test_committed_keys_survive_a_restart(*, tmp_path: Path) -> None:
    binary = require_etcd()

    data = str(tmp_path / "etcd")
    child = await start_etcd(data, binary=binary)
    store = await EtcdStore.open(EtcdConfig((child.url,)))
    revision = await store.commit([], [Put("/a", b"1")])
    await store.close()
    await child.stop()
    await child.stop()
    again = await start_etcd(data, binary=binary)
    store = await EtcdStore.open(EtcdConfig((again.url,)))
    entry = await store.get("/a")
    assert entry is not None
    assert entry.revision == revision
    await store.close()
    await again.stop()


@run_with(run)
async def test_end_of_etcd_is_noticed(*, tmp_path: Path) -> None:
    binary = require_etcd()

    child = await start_etcd(str(tmp_path / "etcd"), binary=binary)
    os.kill(child.pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    await child.stop()


@run_with(run)
async def test_etcd_that_cannot_start_reports_the_reason(*, tmp_path: Path) -> None:
    binary = require_etcd()

    child = await start_etcd(str(tmp_path / "one"), binary=binary)
    taken = int(child.url.rpartition(":")[2])
    with pytest.raises(EtcdFailed, match=f":{taken}: Address already in use"):
        await start_etcd(str(tmp_path / "two"), taken, binary=binary)
    await child.stop()
    damaged = tmp_path / "three" / "member"
    damaged.parent.mkdir()
    damaged.write_text("this was a directory")
    with pytest.raises(EtcdFailed) as failed:
        await start_etcd(str(damaged.parent), binary=binary)
    assert "etcd ended at once" in str(failed.value)
    assert "three.log" in str(failed.value)
    assert "not a directory" in str(failed.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is needed")
@run_with(run)
async def test_etcd_ends_with_a_killed_supervisor(*, tmp_path: Path) -> None:
    script = (
        "import asyncio\n"
        "from penstock.cli.server.local_cluster import start_etcd\n"
        "async def main():\n"
        f"    child = await start_etcd({str(tmp_path / 'etcd')!r}, binary={require_etcd()!r})\n"
        "    print(child.pid, flush=True)\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()

    while _is_running(pid):
        await asyncio.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
