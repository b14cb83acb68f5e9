"""Spark's own Kafka connector against Penstock, compared with Penstock's: batch, stream, sink."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.spark.conftest import CONNECTOR
from tests.spark.topics import Topics

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not list(CONNECTOR.glob("*.jar")), reason="missing jars: run make spark-connector"
    ),
]


def read(spark: Any, topics: Topics, form: str, **options: str) -> Any:
    options = {"kafka.bootstrap.servers": topics.bootstrap, **options}
    return spark.read.format(form).options(**options).load()


def test_batch_reads_of_both_connectors_are_equal(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    topics.numbers(topic, 200, partitions=2)
    rows = []
    for form in ("kafka", "penstock"):
        frame = read(spark, topics, form, subscribe=topic, includeHeaders="true")
        rows.append(sorted(frame.collect(), key=lambda row: (row.partition, row.offset)))
        assert frame.schema.simpleString() == (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
            "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
        )
    assert rows[0] == rows[1]
    assert len(rows[0]) == 200


def test_sparks_kafka_sink_writes_readable_records(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    frame = spark.range(500).selectExpr("cast(id % 7 as string) key", "cast(id as string) value")
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", topics.bootstrap)
    writer.option("topic", topic).save()
    assert topics.values(topic) == list(range(500))


def test_sparks_kafka_stream_reads_and_writes(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.create(topic, 2)
    topics.create(out, 2)
    topics.numbers(topic, 300, partitions=2)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    frame = (
        spark.readStream.format("kafka")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="100")
        .load()
    )
    sink = {"kafka.bootstrap.servers": topics.bootstrap, "topic": out}
    query = run_stream(frame.select("value"), format="kafka", **sink)
    assert sum(row["numInputRows"] for row in query.recentProgress) == 300
    assert topics.values(out) == list(range(300))
    topics.numbers(topic, 30, start=300, partitions=2)
    run_stream(frame.select("value"), format="kafka", **sink)
    assert topics.values(out) == list(range(330))


def test_sparks_kafka_source_reads_only_committed_records(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.numbers(topic, 100)
    source = {"brokers": topics.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("penstock").options(**source).load().select("value")
    run_stream(frame, topic=out, brokers=topics.bootstrap)
    level = {"kafka.isolation.level": "read_committed"}
    seen = read(spark, topics, "kafka", subscribe=out, **level).collect()
    assert sorted(int(row.value) for row in seen) == list(range(100))
