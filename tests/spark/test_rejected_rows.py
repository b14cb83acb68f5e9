"""Failures of rows: the same fault has the same message, whatever the values are."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.types import StructType

from penstock.pipelines.record_columns import (
    FAILURE,
    RECORD,
    collect_rejected,
    parse_json,
    split_failures,
    with_record,
)
from penstock.pipelines.steps import lookup, reject_late

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 16, 12)
RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


def test_messages_of_rejected_rows_have_no_values(spark: Any) -> None:
    values: list[bytes | None] = [b"{broken 17", b"[nonsense]", b"{", b'{"id": "x", "at": 1}', None]
    values += [
        json.dumps({"id": n, "at": (NOON - timedelta(hours=n)).isoformat()}).encode()
        for n in range(1, 5)
    ]
    given: list[Any] = [(b"k", value, "t", 0, n, NOON, []) for n, value in enumerate(values)]
    raw = spark.createDataFrame(given, RAW)
    table = spark.createDataFrame([(1, "one"), (3, "three")], "id int, name string")
    with collect_rejected() as rejected:
        schema = StructType.fromDDL("id int not null, at timestamp")
        rows = split_failures(parse_json(with_record(raw), schema))
        rows = reject_late(rows, "at", "90 minutes")
        good = lookup(rows, table, ["id"])
    failures = [
        row[FAILURE] for branch in rejected for row in branch.select(RECORD, FAILURE).collect()
    ]
    kinds = {(one["class"], one["message"]) for one in failures}
    assert len(failures) == 5 + 3
    assert sorted(name for name, _ in kinds) == ["EmptyValue", "Late", "MalformedValue"]
    assert [row["name"] for row in good.collect()] == ["one"]
