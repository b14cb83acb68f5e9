"""Apache Kafka on loopback: downloaded from Maven Central once, then started and stopped.

Owns its jars in a cache directory (`PENSTOCK_PEERS`, else ~/.cache/penstock-peers) and the
processes it starts, which it stops by their ids. Kafka runs as one KRaft node with a 1 GiB heap
and its default settings, so it does not fsync before an acknowledgement.

    python -m bench.peers.kafka          runs one in the foreground until Ctrl-C
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.processes import LoggedProcess

KAFKA_VERSION = "4.3.1"
HERE = Path(__file__).parent
HEAP = ("-Xms1g", "-Xmx1g")
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Djava.awt.headless=true",
)
# Any 22 characters of base64 that decode to 16 bytes; the same cluster id makes runs comparable.
CLUSTER_ID = "penstockBenchPeer0000w"

Say = Callable[[str], None]


class PeerMissing(Exception):
    """Kafka is not available on this machine; the message names what to install."""


def peers_dir() -> Path:
    """Directory of peers' jars, kept between runs."""
    return Path(os.environ.get("PENSTOCK_PEERS", Path.home() / ".cache" / "penstock-peers"))


def fetch(say: Say) -> Path:
    """Directory of Kafka's jars, downloaded if missing."""
    if shutil.which("java") is None:
        raise PeerMissing("Kafka needs Java 17 or newer (apt-get install default-jdk-headless)")
    home = peers_dir() / f"kafka-{KAFKA_VERSION}"
    libs = home / "libs"
    if (home / "complete").exists():
        return libs
    if shutil.which("mvn") is None:
        raise PeerMissing("fetching Kafka needs Maven (apt-get install maven)")
    say(f"fetching Kafka {KAFKA_VERSION} from Maven Central into {home} (about 120 MB, once)")
    command = ["mvn", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={libs}", f"-Dkafka.version={KAFKA_VERSION}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as maven:
        assert maven.stdout is not None
        lines = []
        for line in maven.stdout:
            lines.append(line)
            if "Copying" in line:
                say(line.split()[2])
    if maven.returncode != 0:
        raise PeerMissing("Maven could not fetch Kafka:\n" + "".join(lines[-15:]))
    (home / "complete").touch()
    return libs


def free_port() -> int:
    """Currently free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def properties(data_dir: Path, port: int, controller_port: int) -> dict[str, object]:
    """Settings of one node as broker and controller: replication factor one, else defaults."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data_dir,
        "num.partitions": 1,
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


class KafkaProcess(LoggedProcess):
    """Kafka process, started by the constructor unless disabled; `start` works after `stop`."""

    def __init__(
        self,
        data_dir: Path,
        sets: Mapping[str, object] | None = None,
        *,
        say: Say,
        started: bool = True,
        port: int | None = None,
    ) -> None:
        super().__init__(data_dir.with_name(data_dir.name + ".log"))
        self.data_dir = data_dir
        self._say = say
        self._classpath = f"{fetch(say)}/*"
        self._config = data_dir.with_name(data_dir.name + ".properties")
        self._port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        settings = properties(data_dir, self._port, free_port()) | dict(sets or {})
        data_dir.mkdir(parents=True, exist_ok=True)
        self._config.write_text("".join(f"{name}={settings[name]}\n" for name in settings))
        self._format()
        if started:
            self.start()

    def start(self) -> None:
        """Starts the broker and returns when its port accepts connections."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Starts the broker and returns immediately."""
        self.run(self._java(HEAP, "kafka.Kafka", str(self._config)))

    def wait_ready(self, timeout_s: float = 90.0) -> None:
        """Waits until the client port accepts a connection."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                if not self.running or time.monotonic() > deadline:
                    self.kill()
                    raise PeerMissing(f"Kafka did not start:\n{self.log()[-4000:]}") from None
                time.sleep(0.005)

    def _java(self, heap: tuple[str, ...], *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.yaml'}"
        return ["java", *heap, *JVM, logging, "-cp", self._classpath, *arguments]

    def _format(self) -> None:
        """Formats the empty data directory with a cluster id, as every KRaft node needs once."""
        if (self.data_dir / "meta.properties").exists():
            return
        self._say("formatting Kafka's data directory")
        tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config))
        done = subprocess.run(
            self._java(("-Xms64m", "-Xmx256m"), *tool), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PeerMissing(f"Kafka refused its data directory:\n{done.stdout}{done.stderr}")


class KafkaCluster:
    """Cluster of combined brokers and controllers with replicated topics, ready when created."""

    def __init__(self, data_dir: Path, count: int, sets: Mapping[str, object], say: Say) -> None:
        ports = [(free_port(), free_port()) for _ in range(count)]
        voters = ",".join(f"{n}@127.0.0.1:{c}" for n, (_, c) in enumerate(ports, 1))
        self._brokers = []
        for node_id, (port, controller_port) in enumerate(ports, 1):
            listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
            own = {
                "node.id": node_id,
                "controller.quorum.voters": voters,
                "listeners": listeners,
                "default.replication.factor": count,
                "min.insync.replicas": count - 1,
                "offsets.topic.replication.factor": count,
                "transaction.state.log.replication.factor": count,
                "transaction.state.log.min.isr": count - 1,
            }
            place = data_dir / f"broker-{node_id}"
            self._brokers.append(
                KafkaProcess(place, own | dict(sets), say=say, started=False, port=port)
            )
        for broker in self._brokers:
            broker.spawn()
        for broker in self._brokers:
            broker.wait_ready()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._brokers)

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers]

    def stop(self) -> None:
        for broker in self._brokers:
            broker.kill()


def main() -> None:
    """Runs one Kafka in the foreground, with the given data directory or a fresh one."""
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else peers_dir() / f"data-{os.getpid()}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kafka = KafkaProcess(given.absolute(), say=lambda text: print(text, file=sys.stderr))
    print(f"kafka ready kafka={kafka.bootstrap} pid={kafka.pid}", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        kafka.stop()
    if len(sys.argv) <= 1:
        shutil.rmtree(given, ignore_errors=True)


if __name__ == "__main__":
    main()
