"""A cluster of Penstock nodes and etcd as child processes, for tests.

Two variants. `ClusterProcess` is `penstock up --nodes N`, as users start it: the nodes are children
of that supervisor, end with it, and one that ended is restarted by hand. `Nodes` is an etcd and
every `penstock node` started from here, each of which can be killed, paused and restarted in place,
as often as a test likes.

Both end exactly the processes they started.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.cli.server.local_cluster import ClusterPlan
from tests.brokers import COMMAND, READY
from tests.etcd import EtcdCluster, EtcdProcess
from tests.ports import free_port
from tests.processes import LoggedProcess

PATIENCE_S = 60.0


class ClusterProcess(LoggedProcess):
    """One `penstock up --nodes N`, serving when the constructor returns."""

    def __init__(
        self, data_dir: Path, nodes: int = 3, sets: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(data_dir.with_name(data_dir.name + ".log"))
        self.data_dir = data_dir
        self.nodes = nodes
        self.sets = dict(sets or {})
        self.bootstrap = ""
        self._by_hand: dict[int, LoggedProcess] = {}
        self.start()

    # -- the whole cluster --------------------------------------------------------------------

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        command = [COMMAND, "up", "--nodes", str(self.nodes), "--data", str(self.data_dir)]
        command += ["--kafka-port", "0", "--http-port", "0"]
        for name, value in self.sets.items():
            command += ["--set", f"{name}={value}"]
        self.run(command)

    def wait_ready(self) -> None:
        self.bootstrap = self.wait_said(READY, PATIENCE_S)["kafka"]

    def stop(self, timeout_s: float = 60.0) -> int:
        """Sends SIGTERM to all; returns the supervisor's exit code."""
        for node_id in list(self._by_hand):
            self._by_hand.pop(node_id).stop(timeout_s)
        return super().stop(timeout_s)

    def kill(self) -> None:
        """Sends SIGKILL to the supervisor alone, and to nodes started by hand."""
        for process in self._by_hand.values():
            process.kill()
        self._by_hand.clear()
        super().kill()

    # -- one node ---------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        return describe(self.bootstrap)

    def node(self, node_id: int) -> dict[str, Any]:
        return next(node for node in self.describe()["nodes"] if node["id"] == node_id)

    def signal_node(self, node_id: int, number: signal.Signals) -> None:
        pid = self.node(node_id)["pid"]
        os.kill(pid, number)

    def start_node(self, node_id: int) -> None:
        """Restarts a node that has ended, with the file that the supervisor wrote for it."""
        config = self.data_dir / f"node-{node_id}.toml"
        process = LoggedProcess(self.data_dir / f"node-{node_id}-again.log")
        self._by_hand[node_id] = process
        process.run([COMMAND, "node", "--config", str(config)])
        process.wait_said(READY, PATIENCE_S)

    # -- logs --------------------------------------------------------------------------------

    def all_logs(self) -> str:
        texts = [self.log()]
        for path in sorted(self.data_dir.glob("*.log")):
            texts.append(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(texts)


class NodeProcess(LoggedProcess):
    """One `penstock node`. It keeps its ports."""

    def __init__(
        self,
        data_dir: Path,
        node_id: int,
        settings: Mapping[str, object],
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix` goes before the command, e.g. to run it in a namespace."""
        super().__init__(data_dir / f"node-{node_id}.log")
        self.node_id = node_id
        self.address = self.http = ""
        self._prefix = prefix
        self._config_path = data_dir / f"node-{node_id}.toml"
        self._data_dir = data_dir / f"node-{node_id}"
        self._settings = dict(settings)
        self._ports = free_port(), free_port()

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        self._write_config()
        self.run([*self._prefix, COMMAND, "node", "--config", str(self._config_path)])

    def _write_config(self) -> None:
        own = {"node-id": self.node_id, "data": str(self._data_dir)}
        own |= {"kafka-port": self._ports[0], "http-port": self._ports[1]}
        lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in (own | self._settings).items()]
        self._config_path.write_text("\n".join(lines) + "\n")

    def wait_ready(self) -> None:
        ready = self.wait_said(READY, PATIENCE_S)
        self.address, self.http = ready["kafka"], ready["http"]


class Nodes:
    """etcd and some nodes, serving when the constructor returns; `nodes` has them by id."""

    def __init__(
        self,
        data_dir: Path,
        count: int = 3,
        sets: Mapping[str, object] | None = None,
        *,
        etcd: EtcdProcess | EtcdCluster | None = None,
        own: Mapping[int, Mapping[str, object]] | None = None,
        prefixes: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """`etcd` already serves, and ends with the nodes; `own` has settings of single nodes,
        `prefixes` the prefixes of their commands.
        """
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self.etcd = etcd if etcd is not None else EtcdProcess(data_dir / "etcd")
        plan = ClusterPlan(data_dir, count, sets={k: str(v) for k, v in (sets or {}).items()})
        settings = {"etcd.endpoints": list(self.etcd.urls), **plan.settings()}
        self.nodes = {
            n: NodeProcess(
                data_dir, n, settings | dict((own or {}).get(n, {})), (prefixes or {}).get(n, ())
            )
            for n in range(1, count + 1)
        }
        try:
            for node in self.nodes.values():
                node.spawn()
            for node in self.nodes.values():
                node.wait_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def describe(self) -> dict[str, Any]:
        return describe(self.bootstrap)

    def all_logs(self) -> str:
        return "\n".join(f"== {n}\n{node.log()[-3000:]}" for n, node in self.nodes.items())

    def stop(self) -> None:
        """Ends everything, whatever state it is in."""
        for node in self.nodes.values():
            if node.running:
                node.send(signal.SIGCONT)
                node.send(signal.SIGTERM)
        for node in self.nodes.values():
            try:
                if node.running:
                    node.wait()
            except subprocess.TimeoutExpired:
                node.kill()
        self.etcd.stop()


def describe(bootstrap: str) -> dict[str, Any]:
    """Result of `penstock cluster describe`."""
    command = [COMMAND, "cluster", "describe", "--format", "json", "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
