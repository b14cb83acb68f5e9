"""SQL: tables and views over topics, read and written."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.wire.records import Record
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark: Any, topic: str) -> Iterator[str]:
    name = "t_" + topic.replace("-", "_").replace(".", "_")[-60:]
    yield name
    spark.catalog.dropTempView(name)
    spark.sql(f"drop table if exists {name}")


def test_table_is_read_and_written(spark: Any, topics: Topics, topic: str, table: str) -> None:
    topics.create(topic, 2)
    topics.fill(topic, [Record(0, -1, b"a", b"1"), Record(0, -1, b"b", b"2")])
    spark.sql(
        f"create table {table} using penstock options (brokers '{topics.bootstrap}', "
        f"TOPIC '{topic}', includeHeaders 'false', compression.type 'lz4')"
    )
    assert spark.sql(f"select count(*) from {table}").first()[0] == 2
    spark.sql(f"insert into {table} (key, value) select cast('c' as binary), cast('3' as binary)")
    found = spark.sql(f"select cast(key as string), cast(value as string) from {table} order by 1")
    assert [tuple(row) for row in found.collect()] == [("a", "1"), ("b", "2"), ("c", "3")]
    ends = f'{{"{topic}":{{"0":0,"1":0}}}}'
    none = spark.sql(f"select count(*) from {table} with (endingOffsets='{ends}')")
    assert none.first()[0] == 0
    # A stream reads the table, too.
    query = (
        spark.readStream.option("startingOffsets", "earliest")
        .table(table)
        .writeStream.format("memory")
        .queryName(f"{table}_rows")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert spark.table(f"{table}_rows").count() == 3


def test_rows_of_a_table_are_not_written_back_by_accident(
    spark: Any, topics: Topics, topic: str, table: str
) -> None:
    topics.numbers(topic, 3)
    options = f"brokers '{topics.bootstrap}', subscribe '{topic}'"
    spark.sql(f"create table {table} using penstock options ({options})")
    rows = spark.table(table).select("value")
    with pytest.raises(Exception, match=r"missing option 'kafka\.bootstrap\.servers'"):
        rows.write.format("penstock").option("topic", f"{topic}-out").mode("append").save()
    sink = {"topic": f"{topic}-out", "brokers": topics.bootstrap}
    rows.write.format("penstock").options(**sink).mode("append").save()
    assert topics.values(topic) == topics.values(f"{topic}-out") == [0, 1, 2]


def test_view_is_read_and_written(spark: Any, topics: Topics, topic: str, table: str) -> None:
    topics.numbers(topic, 3)
    spark.sql(
        f"create temporary view {table} using penstock "
        f"options (brokers '{topics.bootstrap}', topic '{topic}')"
    )
    spark.sql(f"insert into {table} (value) values (cast('3' as binary))")
    assert topics.values(topic) == [0, 1, 2, 3]
    assert spark.table(table).count() == 4


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("using penstock options (brokers 'b:1', subscribe 't', oops '1')", "unknown option"),
        ("using penstock", "missing options of the table"),
        ("using penstock options (subscribe 't')", r"missing option 'kafka\.bootstrap\.servers'"),
    ],
)
def test_invalid_table_is_refused(spark: Any, table: str, definition: str, why: str) -> None:
    with pytest.raises(Exception, match=why):
        spark.sql(f"create table {table} {definition}")


def test_table_with_declared_columns_is_refused_when_used(spark: Any, table: str) -> None:
    spark.sql(f"create table {table} (value binary) using penstock options (brokers 'b:1')")
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.table(table).collect()
