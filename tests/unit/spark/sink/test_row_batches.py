"""Rows to record batches: partitions, bytes and consecutive sequence numbers."""

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


def records(batches: list[PartitionBatch]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {}
    for part in batches:
        header = check_batch(memoryview(part.data))
        assert (header.producer_id, header.producer_epoch) == (7, 2)
        assert (header.base_sequence, header.count) == (part.sequence, part.count)
        found.setdefault(part.where, []).extend(decode(memoryview(part.data)))
    return found


def table(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def test_keys_choose_the_partition_and_keep_the_order() -> None:
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


def test_rows_without_key_are_distributed_round_robin() -> None:
    made = outgoing(topic="t")
    dealt = records(list(made.partition_batches(table(value=[b"x"] * 300))))
    first = {partition: len(rows) for (_, partition), rows in dealt.items()}
    assert first == {0: 100, 1: 100, 2: 100}
    (single,) = list(made.partition_batches(table(value=[b"x"])))
    (other,) = list(made.partition_batches(table(value=[b"x"])))
    assert single.where.partition != other.where.partition


def test_rows_with_and_without_key_are_partitioned_separately() -> None:
    keys = [None if n % 2 else b"k" for n in range(60)]
    values = [b"%d" % n for n in range(60)]
    found = records(list(outgoing(topic="t").partition_batches(table(key=keys, value=values))))
    home = partition_for_key(b"k", 3)
    assert sum(row.key == b"k" for row in found["t", home]) == 30
    assert {len([r for r in rows if r.key is None]) for rows in found.values()} == {10}


def test_partition_column_overrides_the_key() -> None:
    rows = table(key=[b"a", b"b"], value=[b"1", b"2"], partition=pa.array([2, None], pa.int32()))
    found = records(list(outgoing(topic="t").partition_batches(rows)))
    assert found["t", 2][0].value == b"1"
    assert any(r.value == b"2" for r in found["t", partition_for_key(b"b", 3)])


def test_unknown_partition_is_refused() -> None:
    rows = table(value=[b"1"], partition=pa.array([3], pa.int32()))
    with pytest.raises(OptionError, match=r"partition 3.*topic 't' has 3"):
        list(outgoing(topic="t").partition_batches(rows))


def test_topic_column_selects_the_topic() -> None:
    rows = table(value=["1", "2", "3"], topic=["b", "a", "b"])
    found = records(list(outgoing(1).partition_batches(rows)))
    assert [r.value for r in found["b", 0]] == [b"1", b"3"]
    assert [r.value for r in found["a", 0]] == [b"2"]


def test_row_without_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="'topic'"):
        list(outgoing().partition_batches(table(value=["1"], topic=pa.array([None], pa.string()))))


def test_headers_timestamps_nulls_and_text_are_encoded() -> None:
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


def test_large_input_is_split_into_batches_with_consecutive_sequences() -> None:
    made = outgoing(1, topic="t", batchBytes="2048")
    batches = [p for _ in range(3) for p in made.partition_batches(table(value=[b"x" * 300] * 50))]
    assert len(batches) > 20
    expected = 0
    for part in batches:
        assert part.sequence == expected
        assert len(part.data) <= 2048
        expected += part.count
    assert expected == 150
    assert [p.ordinal for p in batches] == sorted(p.ordinal for p in batches)


def schema(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("columns", "options", "named"),
    [
        ({"vale": StringType()}, {"topic": "t"}, "'value'.*did you mean 'vale'"),
        ({"value": StringType()}, {}, "option 'topic'"),
        ({"value": LongType()}, {"topic": "t"}, "'value'.*not bigint"),
        ({"value": StringType(), "partition": LongType()}, {"topic": "t"}, "'partition'"),
        ({"value": StringType()}, {"topic": "t", "includeTimestamp": "true"}, "'timestamp'"),
    ],
)
def test_unwritable_schema_is_refused(
    columns: dict[str, Any], options: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError, match=named):
        check_rows(schema(**columns), write_settings({**HERE, **options}, is_streaming=False))


def test_source_columns_are_writable() -> None:
    kinds = {"key": BinaryType(), "value": BinaryType(), "topic": StringType()}
    more = {"partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType()}
    check_rows(schema(**kinds, **more), write_settings(HERE, is_streaming=False))
