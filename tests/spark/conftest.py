"""One Spark session for all tests here, and helpers that fill topics and read them back.

The session is small on purpose: two cores, two shuffle partitions, no UI. Spark's own Kafka
connector is on its class path if `make spark-connector` has downloaded it.
"""

import asyncio
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.session import ON_ONE_MACHINE, worker_python
from penstock.spark.sink import fault_points
from tests.conftest import Broker
from tests.spark.topics import Topics

CONNECTOR = Path(__file__).parents[2] / ".cache" / "spark-connector"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = worker_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    scratch = tmp_path_factory.mktemp("spark")
    # Spark's Python processes inherit it from the JVM, which starts here.
    os.environ[fault_points.ENVIRONMENT] = str(tmp_path_factory.mktemp("fault-points"))
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("penstock tests")
        .config("spark.ui.enabled", "false")
        # For short runs, optimizing compilation costs more than it saves.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(CONNECTOR.glob("*.jar"))))
        .config(map=ON_ONE_MACHINE)
    )
    with warnings.catch_warnings():
        # PySpark leaves closing its sockets to the garbage collector.
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        _find_penstock(session)
        yield session
        session.stop()
        del os.environ[fault_points.ENVIRONMENT]


def _find_penstock(session: Any) -> None:
    """Registers the data source explicitly if Spark's one discovery process timed out."""
    from pyspark.errors import PySparkException

    from penstock.spark import PenstockDataSource

    try:
        session.read.format("penstock").options(brokers="127.0.0.1:1", subscribe="t").load()
    except PySparkException:
        session.dataSource.register(PenstockDataSource)


@pytest.fixture
def topics(broker: Broker) -> Iterator[Topics]:
    """Fills and reads topics of the shared broker without Spark."""
    loop = asyncio.new_event_loop()
    helper = Topics(loop, broker.bootstrap)
    yield helper
    helper.close()
    loop.close()


@pytest.fixture
def run_stream(tmp_path: Path) -> Callable[..., Any]:
    """Runs a streaming DataFrame into a sink until all available records are processed."""

    def run(frame: Any, name: str = "query", **options: str) -> Any:
        query = (
            frame.writeStream.format(options.pop("format", "penstock"))
            .outputMode(options.pop("outputMode", "append"))
            .options(**options)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert not query.isActive, "the stream did not end"
        return query

    return run
