"""Pipeline through Spark Connect: the session is in a server, the runner has only a client."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.logs import data as logs_data
from penstock import SyncClient
from tests.conftest import FreshBroker
from tests.ports import free_port
from tests.spark.standalone import SparkDaemon
from tests.spark.topics import topics_of

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).parent / "penstock")
LINES = 400
TIMEOUT_S = 240.0


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--class", server]
    arguments += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    for name, value in settings.items():
        arguments += ["--conf", f"{name}={value}"]
    daemon = SparkDaemon([*arguments, "spark-internal"], tmp_path / "connect.log", memory="640m")
    try:
        daemon.wait_for("Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"
    finally:
        daemon.kill()


@pytest.mark.timeout(0)  # Every wait inside has its own end.
def test_stage_runs_through_spark_connect(
    remote: str, fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    broker = fresh_broker(sets={"num.partitions": 2})
    made = logs_data.lines(LINES, seed=3, start_ms=1_790_000_000_000)
    with SyncClient(broker.bootstrap) as client:
        logs_data.send(client, made)
    command = [COMMAND, "pipeline", "run", str(ROOT / "examples" / "logs" / "pipeline.py")]
    command += ["--once", "--stage", "parse", "-b", broker.bootstrap, "--remote", remote]
    command += ["--checkpoints", str(tmp_path / "checkpoints")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts, bad = logs_data.expected(made)
    good = sum(counts.values())
    output = (done.stdout + done.stderr).replace(",", "")
    assert f"finished batch 0: {len(made)} in {good} out {bad} bad" in output, output
    with topics_of(broker.bootstrap) as topics:
        assert len(topics.read("logs.parsed")) == good
        assert len(topics.read("logs.parse.dlq")) == bad
