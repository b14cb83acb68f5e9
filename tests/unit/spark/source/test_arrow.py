"""Fetched batches as Arrow: the records of the range, the selected columns."""

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.consumer.fetched import Fetched
from penstock.spark.range_planning import Range
from penstock.spark.source.arrow import ArrowDecoder
from penstock.wire.messages.fetch import AbortedTransaction
from penstock.wire.records import APPEND_TIME, Codec, Record, encode

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FULL = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


def record(number: int) -> Record:
    headers = (("h", b"x"), ("n", None)) if number % 2 else ()
    key = None if number % 3 == 0 else b"k%d" % number
    return Record(number, 1_000 + number, key, b"v%d" % number, headers)


def fetched(data: bytes, offset: int, **more: Any) -> Fetched:
    view = memoryview(data)
    return Fetched(
        ("t", 1),  # type: ignore[arg-type]
        offset,
        offset,
        99,
        99,
        0,
        view,
        more.get("aborted", ()),
    )


def rows(shape: ArrowDecoder, part: Fetched, span: Range) -> list[dict[str, Any]]:
    return [row for batch in shape.batches(part, span) for row in batch.to_pylist()]


def log(*sizes: int, **more: Any) -> bytes:
    data = b""
    at = 0
    for size in sizes:
        records = [record(n) for n in range(at, at + size)]
        data += encode(records, base_offset=at, **more)
        at += size
    return data


@pytest.mark.parametrize("codec", list(Codec))
def test_all_columns_of_a_range_are_decoded(codec: Codec) -> None:
    found = rows(ArrowDecoder(FULL), fetched(log(4, 1, 5, codec=codec), 2), Range("t", 1, 2, 9))
    assert [row["offset"] for row in found] == list(range(2, 9))
    for row in found:
        expected = record(row["offset"])
        assert (row["key"], row["value"]) == (expected.key, expected.value)
        assert (row["topic"], row["partition"], row["timestampType"]) == ("t", 1, 0)
        assert round(row["timestamp"].timestamp() * 1000) == expected.timestamp
        headers = (
            None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
        )
        assert headers == (list(expected.headers) or None)


def test_small_batches_are_joined_into_one_arrow_batch() -> None:
    batches = list(ArrowDecoder(FULL).batches(fetched(log(*[1] * 50), 0), Range("t", 1, 0, 50)))
    assert [batch.num_rows for batch in batches] == [50]
    assert batches[0].schema == FULL


@pytest.mark.parametrize("name", FULL.names)
def test_single_column_equals_the_column_of_a_full_read(name: str) -> None:
    part, span = fetched(log(3, 4), 1), Range("t", 1, 1, 6)
    alone = rows(ArrowDecoder(pa.schema([FULL.field(name)])), part, span)
    assert alone == [{name: row[name]} for row in rows(ArrowDecoder(FULL), part, span)]


def test_empty_range_yields_no_batch() -> None:
    assert rows(ArrowDecoder(FULL), fetched(log(4), 0), Range("t", 1, 4, 9)) == []
    assert rows(ArrowDecoder(FULL), fetched(b"", 0), Range("t", 1, 0, 9)) == []


def test_append_time_replaces_record_timestamps() -> None:
    data = encode([record(0), record(1)], attributes=APPEND_TIME, max_timestamp=77_000)
    found = rows(ArrowDecoder(FULL), fetched(bytes(data), 0), Range("t", 1, 0, 2))
    assert [row["timestamp"].timestamp() for row in found] == [77, 77]
    assert [row["timestampType"] for row in found] == [1, 1]


def test_aborted_records_are_skipped() -> None:
    kept = encode([record(0)], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    gone = encode(
        [record(1)], base_offset=1, producer_id=2, producer_epoch=0, base_sequence=0,
        transactional=True,
    )  # fmt: skip
    part = fetched(
        bytes(kept + gone), 0, aborted=[AbortedTransaction(producer_id=2, first_offset=1)]
    )
    assert [row["offset"] for row in rows(ArrowDecoder(FULL), part, Range("t", 1, 0, 2))] == [0]


def test_arrow_batch_mixes_both_timestamp_types() -> None:
    appended = encode([record(1)], base_offset=1, attributes=APPEND_TIME, max_timestamp=77_000)
    part = fetched(bytes(encode([record(0)]) + appended), 0)
    found = rows(ArrowDecoder(FULL), part, Range("t", 1, 0, 2))
    assert [row["timestampType"] for row in found] == [0, 1]


def test_reading_does_not_import_pandas() -> None:
    """Importing pandas takes a third of a second in every process that Spark starts."""
    script = """
import sys
from penstock.spark.source.arrow import range_rows, repeat
from penstock.spark.range_planning import Range
assert repeat("t", 3).to_pylist() == ["t"] * 3
assert range_rows([Range("t", 0, 1, 2)]).num_rows == 1
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
