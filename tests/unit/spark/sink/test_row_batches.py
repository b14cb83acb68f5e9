"""Rows made batches: the right partition, the right bytes, numbers without holes."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client.producer.batch import ProducerIdentity
from penstock.client.producer.partitioner import partition_for_key
from penstock.spark.option_values import OptionError
from penstock.spark.settings import write_settings
from penstock.spark.sink.row_batches import PartitionBatch, RowBatches
from penstock.spark.sink.sink import check_rows
from penstock.wire.records import Record, check_batch, decode

HERE = {"brokers": "localhost:9092"}


def outgoing(count: int = 3, **options: str) -> RowBatches:
    return RowBatches(
        write_settings({**HERE, **options}, is_streaming=True),
        ProducerIdentity(7, 2),
        is_transactional=True,
        partition_count=lambda topic: count,
        now_ms=lambda: 5_000,
    )


def records(parts: list[PartitionBatch]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {}
    for part in parts:
        header = check_batch(memoryview(part.data))
        assert (header.producer_id, header.producer_epoch) == (7, 2)
        assert (header.base_sequence, header.count) == (part.sequence, part.count)
        found.setdefault(part.where, []).extend(decode(memoryview(part.data)))
    return found


def table(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def test_keys_choose_the_partition_and_order_is_kept() -> None:
    keys = [b"k%d" % (n % 17) for n in range(500)]
    values = [b"v%d" % n for n in range(500)]
    found = records(list(outgoing(topic="t").partition_batches(table(key=keys, value=values))))
    seen = 0
    for (topic, partition), rows in found.items():
        assert topic == "t"
        expected = [
            (k, v)
            for k, v in zip(keys, values, strict=True)
            if partition_for_key(k, 3) == partition
        ]
        assert [(row.key, row.value) for row in rows] == expected
        assert {row.timestamp for row in rows} == {5_000}
        seen += len(rows)
    assert seen == 500


def test_rows_without_key_are_dealt_out_evenly_and_by_turns() -> None:
    made = outgoing(topic="t")
    dealt = records(list(made.partition_batches(table(value=[b"x"] * 300))))
    first = {partition: len(rows) for (_, partition), rows in dealt.items()}
    assert first == {0: 100, 1: 100, 2: 100}
    (single,) = list(made.partition_batches(table(value=[b"x"])))
    (other,) = list(made.partition_batches(table(value=[b"x"])))
    assert single.where.partition != other.where.partition


def test_some_rows_without_key_go_by_turns_and_the_others_by_their_key() -> None:
    keys = [None if n % 2 else b"k" for n in range(60)]
    values = [b"%d" % n for n in range(60)]
    found = records(list(outgoing(topic="t").partition_batches(table(key=keys, value=values))))
    home = partition_for_key(b"k", 3)
    assert sum(row.key == b"k" for row in found["t", home]) == 30
    assert {len([r for r in rows if r.key is None]) for rows in found.values()} == {10}


def test_a_partition_column_decides_where_it_says_something() -> None:
    rows = table(key=[b"a", b"b"], value=[b"1", b"2"], partition=pa.array([2, None], pa.int32()))
    found = records(list(outgoing(topic="t").partition_batches(rows)))
    assert found["t", 2][0].value == b"1"
    assert any(r.value == b"2" for r in found["t", partition_for_key(b"b", 3)])


def test_a_partition_that_is_not_there_is_refused() -> None:
    rows = table(value=[b"1"], partition=pa.array([3], pa.int32()))
    with pytest.raises(OptionError, match="partition 3, and topic 't' has 3"):
        list(outgoing(topic="t").partition_batches(rows))


def test_a_topic_column_sends_rows_to_their_topics() -> None:
    rows = table(value=["1", "2", "3"], topic=["b", "a", "b"])
    found = records(list(outgoing(1).partition_batches(rows)))
    assert [r.value for r in found["b", 0]] == [b"1", b"3"]
    assert [r.value for r in found["a", 0]] == [b"2"]


def test_a_row_without_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="a row has no topic"):
        list(outgoing().partition_batches(table(value=["1"], topic=pa.array([None], pa.string()))))


def test_headers_times_nulls_and_text_are_written() -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"x"}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    times = pa.array([moment, None], pa.timestamp("us", tz="UTC"))
    rows = table(key=pa.array(["é", None]), value=["v", None], headers=headers, timestamp=times)
    for options in ({"includeTimestamp": "true"}, {}):
        (found,) = records(list(outgoing(1, topic="t", **options).partition_batches(rows))).values()
        first, second = found
        assert (first.key, first.value, first.headers) == ("é".encode(), b"v", (("h", b"x"),))
        assert (second.key, second.value, second.headers) == (None, None, ())
        written = round(moment.timestamp() * 1000) if options else 5_000
        assert [first.timestamp, second.timestamp] == [written, 5_000]


def test_large_rows_are_split_into_batches_numbered_without_holes() -> None:
    made = outgoing(1, topic="t", batchBytes="2048")
    parts = [p for _ in range(3) for p in made.partition_batches(table(value=[b"x" * 300] * 50))]
    assert len(parts) > 20
    expected = 0
    for part in parts:
        assert part.sequence == expected
        assert len(part.data) <= 2048
        expected += part.count
    assert expected == 150
    assert [p.ordinal for p in parts] == sorted(p.ordinal for p in parts)


def schema(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ({"vale": StringType()}, {"topic": "t"}, "no column 'value' to be written; is it 'vale'"),
        ({"value": StringType()}, {}, "set the option 'topic'"),
        ({"value": LongType()}, {"topic": "t"}, "'value' is binary or string, not bigint"),
        ({"value": StringType(), "partition": LongType()}, {"topic": "t"}, "'partition' is int"),
        (
            {"value": StringType()},
            {"topic": "t", "includeTimestamp": "true"},
            "no column 'timest",
        ),
    ],
)
def test_a_schema_that_cannot_be_written_is_refused(
    columns: dict[str, Any], options: dict[str, str], why: str
) -> None:
    with pytest.raises(OptionError, match=why):
        check_rows(schema(**columns), write_settings({**HERE, **options}, is_streaming=False))


def test_columns_of_the_source_may_be_written_as_they_are() -> None:
    kinds = {"key": BinaryType(), "value": BinaryType(), "topic": StringType()}
    more = {"partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType()}
    check_rows(schema(**kinds, **more), write_settings(HERE, is_streaming=False))
