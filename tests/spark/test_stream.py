"""Streams: every record once, offsets committed to the group, resumption after a restart."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.spark import read_stream, source_progress
from penstock.spark.session import ON_ONE_MACHINE
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark


def source(spark: Any, how: str, topics: Topics, **options: Any) -> Any:
    named = {"brokers": topics.bootstrap, "startingOffsets": "earliest"}
    named |= {name: str(value) for name, value in options.items()}
    if how == "ranges":
        return read_stream(spark, **named)
    return spark.readStream.format("penstock").options(**named).load()


@pytest.mark.parametrize("how", ["records", "ranges"])
def test_stream_copies_every_record_once(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any], how: str
) -> None:
    out = f"{topic}-out"
    topics.create(topic, 3)
    topics.create(out, 2)
    topics.numbers(topic, 900, partitions=3)
    frame = source(spark, how, topics, subscribe=topic, maxOffsetsPerTrigger=400, group=topic)
    sink = {"topic": out, "brokers": topics.bootstrap}
    query = run_stream(frame.select("value"), **sink)
    batches = [row["numInputRows"] for row in query.recentProgress if row["numInputRows"]]
    if how == "records":
        assert sum(batches) == 900
    progress = [found for event in query.recentProgress for found in source_progress(event)]
    assert sum(found.rows or 0 for found in progress) == 900
    assert progress[0].metrics["maxOffsetsBehindLatest"] > 100
    assert progress[-1].metrics["maxOffsetsBehindLatest"] == 0
    assert str(progress[-1]).startswith(f"topic {topic}, 3 partitions: ")
    assert len(batches) >= 3
    assert topics.values(out) == list(range(900))
    # Every batch had a commit intent.
    intents = topics.committed(f"penstock-spark-{query.id}-decided")
    assert intents == {("penstock-spark-ledger", 0): query.lastProgress["batchId"] + 1}
    # The group's offsets are at the end even after the last batch, so its lag is 0.
    assert topics.committed(topic) == {(topic, partition): 300 for partition in range(3)}
    if how == "ranges":
        topics.numbers(topic, 90, start=900, partitions=3)
        run_stream(frame.select("value"), **sink)
        assert topics.values(out) == list(range(990))


def test_records_and_ranges_give_the_same_rows(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    topics.create(topic, 2)
    topics.numbers(topic, 100, partitions=2)
    found = []
    for how in ("records", "ranges"):
        frame = source(spark, how, topics, subscribe=topic, minPartitions=5)
        run_stream(frame, f"memory-{how}", format="memory", queryName=f"rows_{how}")
        found.append(sorted(spark.table(f"rows_{how}").collect(), key=str))
    assert found[0] == found[1]
    assert len(found[0]) == 100


def test_checkpoint_works_with_both_file_managers(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    frame = source(spark, "ranges", topics, subscribe=topic).select("value")
    sink = {"topic": f"{topic}-out", "brokers": topics.bootstrap}
    name = "spark.sql.streaming.checkpointFileManagerClass"
    ours = spark.conf.get(name)
    assert ours == ON_ONE_MACHINE[name]
    sparks = ours.replace("FileSystemBased", "FileContextBased")
    try:
        for turn, way in enumerate((sparks, ours, sparks)):
            spark.conf.set(name, way)
            topics.numbers(topic, 10, start=10 * turn)
            run_stream(frame, **sink)
            assert topics.values(f"{topic}-out") == list(range(10 * turn + 10))
    finally:
        spark.conf.set(name, ours)


def test_pattern_matches_topics_created_later(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"out-{topic}"
    topics.numbers(f"{topic}.a", 10)
    frame = source(spark, "ranges", topics, subscribePattern=f"{topic}\\..*").select("value")
    sink = {"topic": out, "brokers": topics.bootstrap}
    run_stream(frame, **sink)
    topics.numbers(f"{topic}.b", 10, start=10)
    run_stream(frame, **sink)
    assert topics.values(out) == list(range(20))


def test_data_loss_fails_the_query_unless_allowed(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.numbers(topic, 10)
    options = {"subscribe": topic}
    sink = {"topic": out, "brokers": topics.bootstrap}
    run_stream(source(spark, "ranges", topics, **options).select("value"), **sink)
    topics.numbers(topic, 20, start=10)
    topics.trim(topic, 0, 15)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        run_stream(source(spark, "ranges", topics, **options).select("value"), **sink)
    going_on = source(spark, "ranges", topics, **options, failOnDataLoss="false")
    run_stream(going_on.select("value"), **sink)
    assert topics.values(out) == [*range(10), *range(15, 30)]


def test_recreated_topic_fails_the_query_unless_loss_is_allowed(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.numbers(topic, 100)
    sink = {"topic": out, "brokers": topics.bootstrap}
    run_stream(source(spark, "ranges", topics, subscribe=topic).select("value"), **sink)
    topics.recreate(topic)
    topics.numbers(topic, 300, start=100)
    with pytest.raises(StreamingQueryException, match="created again"):
        run_stream(source(spark, "ranges", topics, subscribe=topic).select("value"), **sink)
    going_on = source(spark, "ranges", topics, subscribe=topic, failOnDataLoss="false")
    run_stream(going_on.select("value"), **sink)
    assert topics.values(out) == list(range(400))


def test_at_least_once_delivery(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.numbers(topic, 50)
    frame = source(spark, "records", topics, subscribe=topic).select("value")
    run_stream(frame, topic=out, brokers=topics.bootstrap, delivery="at-least-once")
    assert topics.values(out) == list(range(50))


def test_checkpoint_of_another_query_is_refused(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    topics.numbers(topic, 5)
    topics.numbers(f"{topic}-2", 5)
    frame = source(spark, "records", topics, subscribe=topic)
    run_stream(frame, format="noop")
    other = source(spark, "records", topics, subscribe=f"{topic}-2")
    with pytest.raises(StreamingQueryException, match="belongs to another query"):
        run_stream(other, format="noop")


def test_shuffle_between_source_and_sink_keeps_every_row(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.create(topic, 2)
    topics.create(out, 2)
    topics.numbers(topic, 300, partitions=2)
    frame = source(spark, "ranges", topics, subscribe=topic, maxOffsetsPerTrigger=100)
    run_stream(frame.select("value").repartition("value"), topic=out, brokers=topics.bootstrap)
    assert topics.values(out) == list(range(300))
