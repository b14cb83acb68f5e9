"""Cluster on this machine for development and tests: etcd and nodes as child processes.

    DATA/lock            one supervisor for each cluster
    DATA/etcd, etcd.log  the metadata
    DATA/node-1          that node's data
    DATA/node-1.toml     its config, written at every start; `penstock node` accepts it, too
    DATA/node-1.log      its log

Starts the children, reports when all serve and when one ends, and stops the nodes before etcd,
because they need it to deregister. A child that ends is reported but not restarted; the others
continue. The kernel ends the children with this process, however it ends.
Leaves the node to `penstock.node` and etcd to `penstock.cli.server.local_cluster`.

etcd as a child process: find the program, start it, wait until it serves, stop it. Runs one etcd
member on this machine for `penstock up --nodes`. The data directory stays, and a new start
continues with it. It listens on loopback only. Its output goes to a log file beside its data,
never to a pipe that could fill. Does not restart etcd (the supervisor's task) and is not meant
for production.
"""

import asyncio
import ctypes
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from penstock.cli.terminal.errors import UserError
from penstock.runtime.directory_lock import DirectoryLock
from penstock.runtime.etcd.http import EtcdEndpoint, connect
from penstock.runtime.etcd.pool import VERSION_MIN

HOST = "127.0.0.1"
READY_S = 30.0
STOP_S = 10.0
KEPT_REVISIONS = 10_000
"""etcd compacts older revisions: a watcher further behind than this reads everything again."""
ETCD_LOG_LINES_SHOWN = 5
BUILT = "3.6.16"
"""Version that `make etcd` builds in a checkout; tools/etcd/go.mod pins it."""
RELEASES = "https://github.com/etcd-io/etcd/releases"

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architecture in the names of etcd's releases, by the kernel's name."""
_PR_SET_PDEATHSIG = 1


class EtcdFailed(UserError):
    """etcd is missing or does not run; the message says what to do."""


def find_etcd() -> str:
    """Returns the path of an etcd that is new enough; raises EtcdFailed if there is none.

    Tries `PENSTOCK_ETCD`, then the PATH, then the directory where a checkout builds it.
    """
    seen = []
    for path in _places():
        version = _version_of(path)
        if version is not None and version >= VERSION_MIN:
            return path
        shown = ".".join(map(str, version)) if version else "not etcd"
        seen.append(f"{path} is {shown}")
    found = f" ({'; '.join(seen)})" if seen else ""
    name = f"etcd-v{BUILT}-linux-{_MACHINES.get(platform.machine(), 'amd64')}"
    raise EtcdFailed(
        f"""found no etcd 3.6 or newer{found}, in which a cluster keeps its metadata. Get it with
  curl -L {RELEASES}/download/v{BUILT}/{name}.tar.gz | tar xz
  export PENSTOCK_ETCD=$PWD/{name}/etcd
or put another version from {RELEASES} on the PATH. In a checkout with Go, `make etcd` builds it.
Nothing was downloaded, written or started. A single node needs no etcd: `penstock up`."""
    )


def _places() -> Iterator[str]:
    named = os.environ.get("PENSTOCK_ETCD")
    if named:
        yield named
        return
    on_path = shutil.which("etcd")
    if on_path is not None:
        yield on_path
    built = Path(__file__).parents[4] / ".cache" / "etcd" / BUILT / "etcd"
    if built.exists():
        yield str(built)


def _version_of(path: str) -> tuple[int, ...] | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, numbers.groups())) if numbers else None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def etcd_command(binary: str, data_dir: str, client_port: int, peer_port: int) -> list[str]:
    """Returns the command line of a single-member etcd cluster."""
    client, peer = f"http://{HOST}:{client_port}", f"http://{HOST}:{peer_port}"
    options = {
        "name": "penstock",
        "data-dir": data_dir,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"penstock={peer}",
        "auto-compaction-mode": "revision",
        "auto-compaction-retention": str(KEPT_REVISIONS),
        "watch-progress-notify-interval": "10s",
        "log-level": "warn",
    }
    return [binary, *(f"--{name}={value}" for name, value in options.items())]


class EtcdChild:
    """Running etcd process. Created by `start_etcd`."""

    def __init__(
        self, process: asyncio.subprocess.Process, endpoint: EtcdEndpoint, log_path: Path
    ) -> None:
        self._process = process
        self._log_path = log_path
        self._endpoint = endpoint
        self.url = str(endpoint)
        self.pid = process.pid

    async def wait(self) -> int:
        """Waits for the process to end, for whatever reason; returns its exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Stops the process: SIGTERM, then SIGKILL. etcd loses nothing either way."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def ready(self) -> None:
        """Waits until etcd serves. Otherwise stops it and raises EtcdFailed."""
        try:
            async with asyncio.timeout(READY_S):
                while not await self._is_healthy():
                    if self._process.returncode is not None:
                        raise EtcdFailed(f"etcd ended at once: {self._last_words()}")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await self.stop()
            raise EtcdFailed(
                f"etcd does not serve after {READY_S:.0f} s: {self._last_words()}"
            ) from None
        except BaseException:
            await self.stop()
            raise

    async def _is_healthy(self) -> bool:
        try:
            connection = await connect(self._endpoint, None)
            try:
                status, body = await connection.ask("GET", "/health", b"", "")
            finally:
                connection.close()
        except ConnectionError:
            return False
        return status == 200 and b'"true"' in body

    def _last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()
        return "\n".join([f"see {self._log_path}", *lines[-ETCD_LOG_LINES_SHOWN:]])


async def start_etcd(
    data_dir: str, client_port: int = 0, peer_port: int = 0, *, binary: str | None = None
) -> EtcdChild:
    """Starts etcd on `data_dir` (created if missing) and returns when it serves.

    Port 0 picks a free port. Raises EtcdFailed. The child ends with this process.
    """
    binary = binary or find_etcd()
    client_port = _choose_port(client_port)
    peer_port = _choose_port(peer_port)
    log_path = _prepare(Path(data_dir))
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *etcd_command(binary, data_dir, client_port, peer_port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Only the supervisor gets Ctrl-C; it stops etcd last.
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    child = EtcdChild(process, EtcdEndpoint(HOST, client_port, is_tls=False), log_path)
    await child.ready()
    return child


def _choose_port(port: int) -> int:
    """Checks that the port is free: another etcd there would answer in the child's place."""
    if port == 0:
        return free_port()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise EtcdFailed(f"etcd cannot listen on {HOST}:{port}: {error.strerror}") from error
    return port


def _prepare(directory: Path) -> Path:
    """Creates the data directory, for its owner only, and returns the log file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    return directory.with_name(directory.name + ".log")


def _end_with_parent() -> None:
    """Runs in the child and makes etcd end with a killed supervisor."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


NODES_MAX = 9
READY_SECONDS = 120.0
READY = re.compile(r"penstock ready kafka=(?P<kafka>\S+) http=(?P<http>\S+)")
LOG_LINES_SHOWN = 3
LINE_BYTES_MAX = 1 << 16
PR_SET_PDEATHSIG = 1
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Cluster to start."""

    data_dir: Path
    nodes: int
    host: str = "127.0.0.1"
    kafka_port: int = 9092
    """Port of the first node; the others take the next ports. 0: the system chooses all."""
    http_port: int = 8080
    sets: Mapping[str, str] = field(default_factory=dict)
    is_insecure: bool = False
    command: tuple[str, ...] = (sys.executable, "-m", "penstock.cli.main")
    """Command that runs `penstock`."""

    def port_of(self, first: int, node_id: int) -> int:
        return first + node_id - 1 if first else 0

    def settings(self) -> dict[str, str]:
        """Returns defaults for this number of nodes, overridden by the user's settings."""
        copies = str(min(3, self.nodes))
        in_sync = "2" if self.nodes >= 3 else "1"
        return {
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            **self.sets,
        }


class NodeChild:
    """Process of one node."""

    def __init__(self, plan: ClusterPlan, node_id: int, etcd_url: str) -> None:
        self.node_id = node_id
        self.kafka = self.http = ""
        self.is_expected_to_end = False
        self._plan = plan
        self._etcd_url = etcd_url
        self._path = plan.data_dir / f"node-{node_id}"
        self._log_path = self._path.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        plan, node_id = self._plan, self.node_id
        self._write_config(
            plan.port_of(plan.kafka_port, node_id), plan.port_of(plan.http_port, node_id)
        )
        command = (*plan.command, "node", "--config")
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                str(self._config_path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # Only the supervisor gets Ctrl-C; it stops the nodes.
                preexec_fn=_end_with(os.getpid()),
            )

    async def ready(self) -> None:
        """Waits until the node serves; raises UserError if it ends instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if found := READY.search(line.decode(errors="replace")):
                self.kafka, self.http = found["kafka"], found["http"]
                # So that `penstock node` can restart it at the address that clients know.
                self._write_config(_port_in(self.kafka), _port_in(self.http))
                return
        code = await self._process.wait()
        raise UserError(
            f"node {self.node_id} did not start (exit code {code}): {self._last_words()}"
        )

    async def ended(self) -> str:
        """Waits for the process to end and describes its end."""
        assert self._process is not None
        code = await self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        words = f": {self._last_words()}" if code > 0 else ""
        return f"node {self.node_id} {how}{words}"

    def signal(self, number: int) -> None:
        self.is_expected_to_end = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def wait(self) -> int:
        return 0 if self._process is None else await self._process.wait()

    @property
    def _config_path(self) -> Path:
        return self._path.with_suffix(".toml")

    def _write_config(self, kafka_port: int, http_port: int) -> None:
        lines = [
            f"node-id = {self.node_id}",
            f"data = {json.dumps(str(self._path.absolute()))}",
            f"host = {json.dumps(self._plan.host)}",
            f"kafka-port = {kafka_port}",
            f"http-port = {http_port}",
            f"insecure = {json.dumps(self._plan.is_insecure)}",
            *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in self._plan.settings().items()),
            "[etcd]",
            f"endpoints = [{json.dumps(self._etcd_url)}]",
        ]
        # It holds secrets that --set passed.
        self._config_path.touch(0o600)
        self._config_path.chmod(0o600)
        self._config_path.write_text("\n".join(lines) + "\n")

    def _last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return " | ".join([*lines, f"see {self._log_path}"])


class LocalCluster:
    """Supervisor of the children, from start to stop in `run`."""

    def __init__(self, plan: ClusterPlan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._signals = 0
        self._asked = asyncio.Event()
        self._binary = ""
        self._etcd: EtcdChild | None = None
        self._nodes: list[NodeChild] = []

    async def run(self, ready: Callable[[str, str], None]) -> int:
        """Starts everything and serves until asked to stop; returns the exit code."""
        # Before the directory is created: a start without etcd leaves no files.
        self._binary = find_etcd()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._ask_to_stop)
        lock = DirectoryLock(str(self._plan.data_dir))
        try:
            return await self._run(ready)
        finally:
            await self._stop()
            lock.release()

    async def _run(self, ready: Callable[[str, str], None]) -> int:
        starting = asyncio.ensure_future(self._start())
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return 0
            starting.result()
            ready(
                ",".join(node.kafka for node in self._nodes),
                ",".join(node.http for node in self._nodes),
            )
            return await self._supervise(asked)
        finally:
            for task in (starting, asked):
                task.cancel()
            await asyncio.wait((starting, asked))

    async def _start(self) -> None:
        plan = self._plan
        _check(plan, self._say)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        self._nodes = [NodeChild(plan, node_id, url) for node_id in range(1, plan.nodes + 1)]
        self._say(f"starting etcd and {plan.nodes} nodes in {plan.data_dir}")
        try:
            async with asyncio.timeout(READY_SECONDS), asyncio.TaskGroup() as group:
                # The nodes wait for etcd by themselves; starting together is faster.
                group.create_task(self._start_etcd(port))
                for node in self._nodes:
                    group.create_task(self._start_node(node))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # The first one caused the others.
        except TimeoutError:
            raise UserError(
                f"the cluster does not serve after {READY_SECONDS:g} s; see the logs in "
                f"{plan.data_dir}"
            ) from None

    async def _start_etcd(self, port: int) -> None:
        self._etcd = await start_etcd(
            str(self._plan.data_dir / "etcd"), client_port=port, binary=self._binary
        )
        self._say(f"etcd serves at {self._etcd.url}")

    async def _start_node(self, node: NodeChild) -> None:
        await node.start()
        await node.ready()
        self._say(f"node {node.node_id} serves at {node.kafka}")

    async def _supervise(self, asked: "asyncio.Task[Literal[True]]") -> int:
        """Waits until asked to stop or no node is left; reports every end of a child."""
        assert self._etcd is not None
        etcd = asyncio.ensure_future(self._report(_etcd_ended(self._etcd)))
        nodes = [asyncio.ensure_future(self._report(node.ended())) for node in self._nodes]
        none_left = asyncio.ensure_future(asyncio.wait(nodes))
        try:
            await asyncio.wait((none_left, asked), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return 0
            self._say("no node is left running")
            return 1
        finally:
            tasks = (etcd, none_left, *nodes)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _report(self, end: Coroutine[Any, Any, str]) -> None:
        self._say(await end)

    async def _stop(self) -> None:
        """Stops the nodes, which deregister in etcd, then etcd. A second request stops at once."""
        running = [node for node in self._nodes if not node.is_expected_to_end]
        for node in running:
            node.signal(signal.SIGTERM)
        ends = asyncio.ensure_future(asyncio.gather(*(node.wait() for node in running)))
        seen = max(self._signals, 1)
        while not ends.done():
            self._asked.clear()
            asked = asyncio.ensure_future(self._asked.wait())
            await asyncio.wait((ends, asked), return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            if self._signals > seen:
                seen = self._signals
                for node in running:
                    node.signal(signal.SIGTERM if seen == 2 else signal.SIGKILL)
        if self._etcd is not None:
            await self._etcd.stop()

    def _ask_to_stop(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._say("stopping (repeat to stop at once)")
        self._asked.set()


def _check(plan: ClusterPlan, say: Say) -> None:
    """Refuses a directory of a single node; reports nodes of earlier runs that do not start."""
    if not 1 <= plan.nodes <= NODES_MAX:
        raise UserError(f"--nodes {plan.nodes} is not between 1 and {NODES_MAX}")
    first, second = sorted((plan.kafka_port, plan.http_port))
    if first and second < first + plan.nodes:
        raise UserError(
            f"the ports of the {plan.nodes} nodes from {first} on overlap those from {second} on; "
            f"choose --kafka-port and --http-port at least {plan.nodes} apart"
        )
    if (plan.data_dir / "meta.json").exists():
        raise UserError(
            f"{plan.data_dir} holds the data of a single node; choose another --data "
            "directory for a cluster"
        )
    left_out = [
        path.name
        for path in sorted(plan.data_dir.glob("node-*"))
        if path.is_dir() and path.name.removeprefix("node-") not in _ids(plan)
    ]
    if left_out:
        say(
            f"{', '.join(left_out)} ran before and is not started: data that only it holds is "
            "unavailable"
        )


def _ids(plan: ClusterPlan) -> list[str]:
    return [str(node_id) for node_id in range(1, plan.nodes + 1)]


async def _etcd_ended(etcd: EtcdChild) -> str:
    code = await etcd.wait()
    return (
        f"etcd ended with code {code}: the nodes refuse writes once their leases end; "
        "stop this command and start it again"
    )


def _port_in(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


def _end_with(parent: int) -> Callable[[], None] | None:
    """Returns a function for the child to run first, so that it ends with a killed supervisor."""
    if sys.platform != "linux":
        return None

    def end_with_parent() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # The parent died in between.
            os._exit(1)

    return end_with_parent
