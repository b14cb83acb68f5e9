"""A cluster of Penstock nodes and etcd as child processes, for tests.

Two ways to have one. `ClusterProcess` is `penstock up --nodes N`, as people start it: the nodes are
children of that supervisor, end with it, and one that ended is started again by hand. `Nodes` is
an etcd and every `penstock node` started from here, each of which can be killed, paused and started
again in place, as often as a test likes.

Both end exactly the processes they started.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.cli.local_cluster import Plan
from tests.brokers import COMMAND, READY, BrokerFailed
from tests.etcd import EtcdCluster, EtcdProcess

PATIENCE_S = 60.0


class ClusterProcess:
    """One `penstock up --nodes N`, serving when the constructor returns."""

    def __init__(
        self, data_dir: Path, nodes: int = 3, sets: Mapping[str, object] | None = None
    ) -> None:
        self.data_dir = data_dir
        self.nodes = nodes
        self.sets = dict(sets or {})
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.bootstrap = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._by_hand: dict[int, subprocess.Popen[bytes]] = {}
        self._log_start = 0
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # -- the whole of it --------------------------------------------------------------------

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        assert not self.running
        command = [COMMAND, "up", "--nodes", str(self.nodes), "--data", str(self.data_dir)]
        command += ["--kafka-port", "0", "--http-port", "0"]
        for name, value in self.sets.items():
            command += ["--set", f"{name}={value}"]
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        self._process = self._run(command)

    def _run(self, command: list[str]) -> "subprocess.Popen[bytes]":
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_ready(self) -> None:
        ready = self._wait_for(READY)
        self.bootstrap = ready["kafka"]

    def _wait_for(self, said: "re.Pattern[str]") -> "re.Match[str]":
        """Waits until the process started last has said it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = said.search(self.log())
            if found is not None:
                return found
            if not self.running:
                raise BrokerFailed(f"the cluster ended:\n{self.all_logs()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(f"the cluster does not say {said.pattern}:\n{self.all_logs()}")
            time.sleep(0.01)

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM to all; the supervisor's exit code."""
        for node_id in list(self._by_hand):
            self._end(self._by_hand.pop(node_id), timeout_s)
        assert self._process is not None
        return self._end(self._process, timeout_s)

    def _end(self, process: "subprocess.Popen[bytes]", timeout_s: float) -> int:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise BrokerFailed(f"it did not stop:\n{self.all_logs()}") from None
        return process.returncode

    def kill(self) -> None:
        """SIGKILL to the supervisor alone, and to what was started by hand."""
        for process in [*self._by_hand.values(), self._process]:
            if process is not None:
                process.kill()
                process.wait()
        self._by_hand.clear()

    # -- one node ---------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        return describe(self.bootstrap)

    def node(self, node_id: int) -> dict[str, Any]:
        return next(node for node in self.describe()["nodes"] if node["id"] == node_id)

    def signal_node(self, node_id: int, number: signal.Signals) -> None:
        pid = self.node(node_id)["pid"]
        os.kill(pid, number)

    def start_node(self, node_id: int) -> None:
        """Starts a node that has ended again, with the file that the supervisor wrote for it."""
        config = self.data_dir / f"node-{node_id}.toml"
        self._by_hand[node_id] = self._run([COMMAND, "node", "--config", str(config)])
        self._wait_for(READY)

    # -- what was said ----------------------------------------------------------------------

    def log(self) -> str:
        """What the process that was started last has said."""
        with contextlib.suppress(FileNotFoundError), self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")
        return ""

    def all_logs(self) -> str:
        texts = [self.log()]
        for path in sorted(self.data_dir.glob("*.log")):
            texts.append(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(texts)


class NodeProcess:
    """One `penstock node`. It keeps its ports from its first start on."""

    def __init__(
        self,
        data_dir: Path,
        node_id: int,
        settings: Mapping[str, object],
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix` goes before the command: it says where to run it."""
        self.node_id = node_id
        self._prefix = prefix
        self.address = self.http = ""
        self.log_path = data_dir / f"node-{node_id}.log"
        self._config_path = data_dir / f"node-{node_id}.toml"
        self._data_dir = data_dir / f"node-{node_id}"
        self._settings = dict(settings)
        self._ports = (0, 0)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        assert not self.running
        self._write_config()
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._prefix, COMMAND, "node", "--config", str(self._config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _write_config(self) -> None:
        own = {"node-id": self.node_id, "data": str(self._data_dir)}
        own |= {"kafka-port": self._ports[0], "http-port": self._ports[1]}
        lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in (own | self._settings).items()]
        self._config_path.write_text("\n".join(lines) + "\n")

    def wait_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (ready := READY.search(self.log())) is None:
            if not self.running or time.monotonic() > deadline:
                raise BrokerFailed(f"node {self.node_id} does not serve:\n{self.log()}")
            time.sleep(0.01)
        self.address, self.http = ready["kafka"], ready["http"]
        self._ports = int(self.address.rpartition(":")[2]), int(self.http.rpartition(":")[2])

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT, or anything else."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self, timeout_s: float = 60.0) -> int:
        if self.running:
            self.send(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 60.0) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def log(self) -> str:
        """What it has said since its latest start."""
        with contextlib.suppress(FileNotFoundError), self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")
        return ""


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
        """`etcd` is one that already serves, and ends with the nodes; `own` has what only some
        nodes are told, `prefixes` what goes before their commands."""
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self.etcd = etcd if etcd is not None else EtcdProcess(data_dir / "etcd")
        plan = Plan(data_dir, count, sets={k: str(v) for k, v in (sets or {}).items()})
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
    """As `penstock cluster describe` answers."""
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
