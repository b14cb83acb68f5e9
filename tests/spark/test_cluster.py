"""The order pipeline on a standalone cluster with two workers, one of which is killed.

As in docs/how-to/spark-cluster.md: tasks run from an archive of `penstock spark pack`, with a
Python that has no Penstock.
"""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.orders import data as orders_data
from penstock import SyncClient
from penstock.cli.main import run as penstock
from tests.brokers import COMMAND
from tests.conftest import FreshBroker
from tests.spark.standalone import SparkCluster
from tests.spark.topics import topics_of

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

ROOT = Path(__file__).parents[2]
ORDERS = 2_000
PER_BATCH = 500
TIMEOUT_S = 400.0


BASE_PYTHON = str(Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Archive of `penstock spark pack`, unpacked in the folder of the driver."""
    path = tmp_path / "driver" / "penstock-spark.tar.gz"
    path.parent.mkdir()
    assert penstock(["spark", "pack", str(path)]) == 0
    with tarfile.open(path) as packed:
        packed.extractall(path.parent / "penstock", filter="data")
    return path


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkCluster]:
    monkeypatch.setenv("PENSTOCK_BASE_PYTHON", BASE_PYTHON)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    bare = subprocess.run([BASE_PYTHON, "-c", "import penstock"], capture_output=True, check=False)
    assert b"No module named 'penstock'" in bare.stderr, "tasks could run without the archive"
    made = SparkCluster(tmp_path, workers=2)
    yield made
    made.close()


@pytest.mark.timeout(0)  # Every wait inside has its own end.
def test_order_pipeline_survives_a_killed_worker(
    cluster: SparkCluster, archive: Path, fresh_broker: FreshBroker, tmp_path: Path
) -> None:
    broker = fresh_broker(sets={"num.partitions": 2})
    made = orders_data.orders(ORDERS, seed=11, start_ms=1_790_000_000_000)
    known = orders_data.customers()
    with SyncClient(broker.bootstrap) as client:
        orders_data.send_customers(client, known)
        orders_data.send_orders(client, made)
    warehouse = tmp_path / "warehouse"
    log = tmp_path / "driver.log"
    command = [COMMAND, "pipeline", "run", str(ROOT / "examples" / "orders" / "pipeline.py")]
    command += ["--once", "--per-batch", str(PER_BATCH), "-b", broker.bootstrap]
    command += ["--master", cluster.url, "--checkpoints", str(tmp_path / "checkpoints")]
    for conf in (
        f"spark.archives={archive}#penstock",
        "spark.driver.host=127.0.0.1",
        "spark.driver.memory=512m",
        "spark.executor.memory=512m",
        "spark.sql.shuffle.partitions=2",
        "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ):
        command += ["--conf", conf]
    with log.open("wb") as output:
        driver = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            cwd=archive.parent,
            env={
                **os.environ,
                "ORDERS_WAREHOUSE": str(warehouse),
                "PYSPARK_PYTHON": "./penstock/bin/python",
            },
            start_new_session=True,
        )
    try:
        with topics_of(broker.bootstrap) as topics:
            topics.create("orders.valid", 2)
            deadline = time.monotonic() + TIMEOUT_S
            # Kill in the middle: some batches are written, others are not.
            while topics.written("orders.valid") < 2 * PER_BATCH:
                assert driver.poll() is None, log.read_text()[-4_000:]
                if time.monotonic() >= deadline:
                    raise TimeoutError(log.read_text()[-4_000:])
                time.sleep(0.05)
            cluster.workers[0].kill()
            assert topics.written("orders.valid") < ORDERS, "the worker was killed too late"
            assert driver.wait(TIMEOUT_S) == 0, log.read_text()[-4_000:]
            reference = orders_data.expected(made, known)
            priced = [json.loads(message.value or b"") for message in topics.read("orders.priced")]
            dead_letters = (
                len(topics.read("orders.validate.dlq")),
                len(topics.read("orders.price.dlq")),
            )
            totals = {
                (message.key or b"").decode(): json.loads(message.value or b"")
                for message in topics.read("orders.totals")
            }
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    assert len(priced) == len(reference.priced), "each order once"
    assert {row["id"]: row["total_cents"] for row in priced} == reference.priced
    assert dead_letters == (reference.invalid, reference.unknown)
    assert {k: (row["orders"], row["cents"]) for k, row in totals.items()} == reference.totals
    loaded = [
        row
        for path in committed_files(warehouse)
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]
    assert len(loaded) == len(reference.priced)
    assert {row["id"]: row["total_cents"] for row in loaded} == reference.priced


def committed_files(folder: Path) -> list[str]:
    """Files listed in the log of Spark's file sink, which excludes files of lost tasks."""
    entries = [
        json.loads(line)
        for batch in sorted((folder / "_spark_metadata").iterdir())
        if batch.name.isdigit()
        for line in batch.read_text().splitlines()[1:]
    ]
    return [entry["path"].removeprefix("file://") for entry in entries]
