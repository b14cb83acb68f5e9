"""Streaming job from topic to topic with a shuffle, in its own process, to be killed.

`python -m tests.spark.job BOOTSTRAP TOPIC OUT CHECKPOINT PER_BATCH` ends when it has read all
records. As in production, a failed query is restarted. Each process distributes the rows to other
tasks, as a changed plan does. It must not do so with speculation, because a batch that an attempt
has broken is repeated task by task.
"""

import os
import sys
from typing import Any

from penstock.spark.session import ON_ONE_MACHINE, worker_python

MASTER = os.environ.get("PENSTOCK_SPARK_MASTER", "local[2,4]")


def session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = worker_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    made = (
        SparkSession.builder.master(MASTER)
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        # For short runs, optimizing compilation costs more than it saves.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "20ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.quantile", "0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config(map=ON_ONE_MACHINE)
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions as F

    from penstock.spark import read_stream

    bootstrap, topic, out, checkpoint, per_batch = sys.argv[1:]
    spark = session()
    salt = os.getpid() if MASTER.startswith("local[") else 0
    print("session", flush=True)
    while True:
        rows = read_stream(
            spark,
            brokers=bootstrap,
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=per_batch,
            columns="key,value",
            group=f"job-{topic}",
        ).repartition(3, F.xxhash64("value", F.lit(salt)))
        query = (
            rows.writeStream.format("penstock")
            .options(topic=out, brokers=bootstrap)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print("again:", str(error)[:2_000], flush=True)
            continue
        print("finished", flush=True)
        spark.stop()
        return


if __name__ == "__main__":
    main()
