"""Results that change: output modes update and complete, written by key to a compacted topic."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from penstock.spark import read_stream, upsert
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark


def counts(spark: Any, topics: Topics, topic: str) -> Any:
    """Numbers of a topic counted by their remainder modulo 3."""
    rows = read_stream(spark, brokers=topics.bootstrap, subscribe=topic, startingOffsets="earliest")
    remainder = rows.selectExpr("cast(cast(value as string) as int) % 3 as rest")
    counted = remainder.groupBy("rest").count()
    return counted.selectExpr("cast(rest as string) as key", "cast(count as string) as value")


def latest(topics: Topics, name: str) -> dict[bytes | None, bytes | None]:
    return {message.key: message.value for message in topics.read(name)}


def test_upsert_keeps_the_last_row_of_each_key(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    out = f"{topic}-out"
    write = upsert(topic=out, brokers=topics.bootstrap)
    runs: list[int] = []

    def write_twice(batch: Any, number: int) -> None:
        """As Spark after a crash between the commit and its commit log."""
        runs.append(number)
        write(batch, number)
        write(batch, number)

    topics.numbers(topic, 9)
    for first in (0, 9):
        query = (
            counts(spark, topics, topic)
            .writeStream.outputMode("update")
            .foreachBatch(write_twice)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
        if first == 0:
            assert latest(topics, out) == {b"0": b"3", b"1": b"3", b"2": b"3"}
            topics.numbers(topic, 1, start=10)
    assert latest(topics, out) == {b"0": b"3", b"1": b"4", b"2": b"3"}
    # The second run has written only the changed row.
    assert len(topics.read(out)) == 4
    assert runs == [0, 1]
    assert topics.config(out, "cleanup.policy") == "compact"


def test_complete_mode_writes_by_key(
    spark: Any, topics: Topics, topic: str, run_stream: Callable[..., Any]
) -> None:
    out = f"{topic}-out"
    topics.numbers(topic, 6)
    topics.create(out)
    sink = {"topic": out, "brokers": topics.bootstrap, "outputMode": "complete"}
    with pytest.raises(StreamingQueryException, match=r"alter .* -c cleanup\.policy=compact"):
        run_stream(counts(spark, topics, topic), **sink)
    with pytest.raises(StreamingQueryException, match="missing column 'key'"):
        run_stream(counts(spark, topics, topic).drop("key"), "keyless", **sink)
    run_stream(counts(spark, topics, topic), **{**sink, "topic": f"{topic}-table"})
    assert latest(topics, f"{topic}-table") == {b"0": b"2", b"1": b"2", b"2": b"2"}
