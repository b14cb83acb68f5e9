"""Batch reads and writes between topics and DataFrames."""

import json
from typing import Any

import pytest

from penstock.client.producer.partitioner import partition_for_key
from penstock.wire.compression import Codec
from penstock.wire.records import Record
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def read(spark: Any, topics: Topics, **options: Any) -> Any:
    named = {name: str(value) for name, value in options.items()}
    return spark.read.format("penstock").options(**named, brokers=topics.bootstrap).load()


def test_read_returns_all_columns(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    topics.fill(topic, [Record(0, 1_700_000_000_123, b"k", b"v", (("h", b"x"), ("n", None)))], 0)
    topics.fill(topic, [Record(0, 1_700_000_000_456, None, None)], 1, Codec.ZSTD)
    frame = read(spark, topics, subscribe=topic, includeHeaders="true")
    assert frame.columns == [*COLUMNS, "headers"]
    first, second = sorted(frame.collect(), key=lambda row: row.partition)
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert (first.topic, first.partition, first.offset) == (topic, 0, 0)
    assert first.timestamp.microsecond == 123_000
    assert first.timestampType == 0
    assert [(h.key, h.value and bytes(h.value)) for h in first.headers] == [
        ("h", b"x"),
        ("n", None),
    ]
    assert (second.key, second.value, second.headers) == (None, None, None)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_decoded(spark: Any, topics: Topics, topic: str, codec: Codec) -> None:
    topics.fill(topic, [Record(0, -1, b"k%d" % n, b"v%d" % n) for n in range(500)], 0, codec)
    frame = read(spark, topics, subscribe=topic, columns="value,offset")
    assert frame.columns == ["value", "offset"]
    assert [bytes(r.value) for r in frame.sort("offset").collect()] == [
        b"v%d" % n for n in range(500)
    ]


def test_start_and_end_options_limit_the_read(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    for partition in (0, 1):
        records = [Record(0, 1_000 + n, None, b"%d" % n) for n in range(100)]
        topics.fill(topic, records, partition)
    starting = json.dumps({topic: {"0": 10, "1": -2}})
    ending = json.dumps({topic: {"0": 15, "1": 3}})
    frame = read(spark, topics, subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    found = sorted((row.partition, row.offset) for row in frame.collect())
    assert found == [(0, n) for n in range(10, 15)] + [(1, n) for n in range(3)]
    timed = read(spark, topics, subscribe=topic, startingTimestamp=1_090, endingTimestamp=1_095)
    assert sorted({row.offset for row in timed.collect()}) == [90, 91, 92, 93, 94]


def test_partition_is_split_into_several_tasks(spark: Any, topics: Topics, topic: str) -> None:
    topics.numbers(topic, 1_000)
    many = read(spark, topics, subscribe=topic, minPartitions=7)
    assert many.rdd.getNumPartitions() == 7
    assert sorted(row.offset for row in many.collect()) == list(range(1_000))
    small = read(spark, topics, subscribe=topic, maxRecordsPerPartition=300)
    assert small.rdd.getNumPartitions() == 4


def test_pushed_filters_narrow_the_ranges(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 3)
    topics.numbers(topic, 300, partitions=3)
    frame = read(spark, topics, subscribe=topic)
    narrow = frame.where("partition = 1 and offset >= 20 and offset < 25")
    assert sorted(row.offset for row in narrow.collect()) == list(range(20, 25))
    assert narrow.rdd.getNumPartitions() == 1
    late = frame.where("timestamp > timestamp'2100-01-01'")
    assert late.count() == 0
    mixed = frame.where("partition in (0, 2) and cast(value as string) like '%5'")
    assert {int(r.value) % 10 for r in mixed.collect()} == {5}
    assert {r.partition for r in mixed.collect()} == {0, 2}


def test_filters_work_without_pushdown(spark: Any, topics: Topics, topic: str) -> None:
    topics.numbers(topic, 50)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read(spark, topics, subscribe=topic).where("offset >= 45").count() == 5
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_empty_topic_has_no_rows(spark: Any, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    assert read(spark, topics, subscribe=topic).count() == 0


def test_user_schema_prunes_columns(spark: Any, topics: Topics, topic: str) -> None:
    topics.numbers(topic, 5)
    frame = (
        spark.read.format("penstock")
        .schema("offset bigint, value binary")
        .options(subscribe=topic, brokers=topics.bootstrap)
        .load()
    )
    assert [(r.offset, int(r.value)) for r in frame.sort("offset").collect()] == [
        (n, n) for n in range(5)
    ]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_written_rows_are_partitioned_like_kafka_clients_do(
    spark: Any, topics: Topics, topic: str, delivery: str
) -> None:
    topics.create(topic, 3)
    frame = spark.range(2_000).selectExpr("concat('k', id % 50) key", "cast(id as string) value")
    writer = frame.write.format("penstock").mode("append")
    writer.options(topic=topic, brokers=topics.bootstrap, delivery=delivery).save()
    assert topics.values(topic) == list(range(2_000))
    for message in topics.read(topic):
        assert message.partition == partition_for_key(message.key or b"", 3)


def test_row_columns_set_topic_partition_headers_and_timestamp(
    spark: Any, topics: Topics, topic: str
) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        topics.create(name, 2)
    frame = spark.sql(
        f"select '{topic}' topic, 'a' value, 1 partition, null headers, timestamp_millis(5) "
        "timestamp "
        f"union all select '{other}', 'b', null, array(named_struct('key', 'h', 'value', "
        "cast('x' as binary))), timestamp_millis(6)"
    ).selectExpr(
        "topic", "value", "partition", "timestamp",
        "cast(headers as array<struct<key:string,value:binary>>) headers",
    )  # fmt: skip
    writer = frame.write.format("penstock").mode("append")
    writer.options(brokers=topics.bootstrap, includeTimestamp="true").save()
    (here,) = topics.read(topic)
    (there,) = topics.read(other)
    assert (here.partition, here.value, here.timestamp, here.headers) == (1, b"a", 5, ())
    assert (there.value, there.timestamp, there.headers) == (b"b", 6, (("h", b"x"),))


def test_named_batch_is_written_once_to_each_topic(spark: Any, topics: Topics, topic: str) -> None:
    outs = [f"{topic}-1", f"{topic}-2"]
    rows = spark.range(20).selectExpr("cast(id as string) value").repartition(3)
    once = {"brokers": topics.bootstrap, "delivery": "exactly-once", "txnAppId": topic}
    for version in (4, 4, 5):
        for out in outs:
            writer = rows.write.format("penstock").options(**once, txnVersion=version, topic=out)
            writer.mode("append").save()
    assert [topics.values(out) for out in outs] == [sorted([*range(20)] * 2)] * 2
