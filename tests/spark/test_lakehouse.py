"""Delta and Iceberg tables: append, upsert, history, each batch once, read by other engines."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as DeltaReader
from pyiceberg.catalog import load_catalog

from penstock.pipelines import (
    DeltaTable,
    IcebergTable,
    Pipeline,
    PipelineEnvironment,
    PipelineError,
    Runner,
    reject,
)
from penstock.pipelines.lakehouse import write_batch
from penstock.wire.records import Record
from tests.spark.topics import Topics

pytestmark = pytest.mark.spark

SCHEMA = "id int, name string, at timestamp"
FORMATS = pytest.mark.parametrize("kind", ["delta", "iceberg"])


def made(kind: str, folder: Path, **options: Any) -> DeltaTable | IcebergTable:
    if kind == "delta":
        return DeltaTable(str(folder / "table"), **options)
    (folder / "warehouse").mkdir(exist_ok=True)
    return IcebergTable("db.t", catalog_of(folder), **options)


def catalog_of(folder: Path) -> dict[str, str]:
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return {"type": "sql", "uri": uri, "warehouse": warehouse}


def rows_of(kind: str, folder: Path) -> list[dict[str, Any]]:
    """Rows as the format's own library reads them."""
    if kind == "delta":
        found = DeltaReader(str(folder / "table")).to_pyarrow_table()
    else:
        found = load_catalog("default", **catalog_of(folder)).load_table("db.t").scan().to_arrow()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


COUNT = """
import sys, duckdb
kind, path = sys.argv[1:]
if kind == "delta":
    from deltalake import DeltaTable
    rows = DeltaTable(path + "/table").to_pyarrow_dataset()
else:
    from pyiceberg.catalog import load_catalog
    properties = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": path}
    table = load_catalog("default", **properties).load_table("db.t")
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    rows = duckdb.read_parquet(files)
print(duckdb.sql("select count(*) from rows").fetchall()[0][0])
"""


def counted_by_duckdb(kind: str, folder: Path) -> int:
    """Rows of the table's files; in a process of its own, which DuckDB's module needs at exit."""
    command = [sys.executable, "-c", COUNT, kind, str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)


def batch(spark: Any, *rows: tuple[Any, ...], schema: str = SCHEMA) -> Any:
    frame = spark.createDataFrame(rows, schema.replace("at timestamp", "at string"))
    return frame.withColumn("at", frame["at"].cast("timestamp"))


T = "2026-01-01T00:00:0"


@FORMATS
def test_appended_batch_is_written_once(spark: Any, tmp_path: Path, kind: str) -> None:
    target = made(kind, tmp_path, partition_by=("name",))
    for number in (0, 0, 1, 0, 1):
        write_batch(target, batch(spark, (number, "a", f"{T}1"), (9, "b", f"{T}1")), number, "q")
    found = sorted((row["id"], row["name"]) for row in rows_of(kind, tmp_path))
    assert found == [(0, "a"), (1, "a"), (9, "b"), (9, "b")]
    # Another query has numbers of its own, and may add columns.
    wide = batch(spark, (7, "c", f"{T}1", "x"), schema=f"{SCHEMA}, more string")
    write_batch(target, wide, 0, "other")
    found = sorted((row["id"], row["more"]) for row in rows_of(kind, tmp_path) if row["id"] != 9)
    assert found == [(0, None), (1, None), (7, "x")]


@FORMATS
def test_upsert_keeps_the_newest_row_of_each_key(spark: Any, tmp_path: Path, kind: str) -> None:
    target = made(kind, tmp_path, keys=("id",), sequence_by="at", apply_as_deletes="name = 'gone'")
    rows = [(1, "a", f"{T}1"), (1, "b", f"{T}3"), (2, "c", f"{T}1"), (3, "d", f"{T}1")]
    write_batch(target, batch(spark, *rows), 0, "q")
    late = [(1, "late", f"{T}2"), (2, "gone", f"{T}2"), (4, "e", f"{T}1"), (3, "f", f"{T}2")]
    for _ in range(2):
        write_batch(target, batch(spark, *late), 1, "q")
    found = sorted((row["id"], row["name"]) for row in rows_of(kind, tmp_path))
    assert found == [(1, "b"), (3, "f"), (4, "e")]


@FORMATS
def test_keys_of_two_columns_leave_other_rows_alone(spark: Any, tmp_path: Path, kind: str) -> None:
    target = made(kind, tmp_path, keys=("id", "name"))
    schema = f"{SCHEMA}, n int"
    rows = [(1, "a", f"{T}1", 1), (1, "b", f"{T}1", 1), (2, "a", f"{T}1", 1)]
    write_batch(target, batch(spark, *rows, schema=schema), 0, "q")
    write_batch(target, batch(spark, (1, "a", f"{T}2", 2), schema=schema), 1, "q")
    found = sorted((row["id"], row["name"], row["n"]) for row in rows_of(kind, tmp_path))
    assert found == [(1, "a", 2), (1, "b", 1), (2, "a", 1)]


@FORMATS
def test_history_has_every_version(spark: Any, tmp_path: Path, kind: str) -> None:
    target = made(
        kind, tmp_path, keys=("id",), sequence_by="at", scd=2, apply_as_deletes="name = 'gone'"
    )
    write_batch(target, batch(spark, (1, "a", f"{T}1"), (2, "x", f"{T}1")), 0, "q")
    for _ in range(2):
        rows = [(1, "b", f"{T}2"), (1, "c", f"{T}4"), (2, "x", f"{T}5")]
        write_batch(target, batch(spark, *rows), 1, "q")
    write_batch(target, batch(spark, (1, "gone", f"{T}6")), 2, "q")
    found = sorted(
        (
            row["id"],
            row["name"],
            row["valid_from"].second,
            row["valid_to"] and row["valid_to"].second,
            row["is_current"],
        )
        for row in rows_of(kind, tmp_path)
    )
    assert found == [
        (1, "a", 1, 2, False),
        (1, "b", 2, 4, False),
        (1, "c", 4, 6, False),
        (2, "x", 1, None, True),
    ]


@FORMATS
def test_stage_loads_a_topic_exactly_once(
    spark: Any, topics: Topics, topic: str, tmp_path: Path, kind: str
) -> None:
    """The driver dies after the table's commit, before Spark's: the batch is repeated."""
    pipeline = Pipeline("p" + topic[-60:])
    target = made(kind, tmp_path)

    @pipeline.load(topic, schema=SCHEMA, to=target)
    def load(rows: Any) -> Any:
        return reject(rows, "id = 3", "three")

    def run() -> None:
        environment = PipelineEnvironment(spark, topics.bootstrap, str(tmp_path / "checkpoints"))
        Runner(pipeline, environment, restarts=0).run(once=True)

    for first in (0, 5):
        rows = [{"id": n, "name": "a", "at": f"{T}1Z"} for n in range(first, first + 5)]
        topics.fill(topic, [Record(0, -1, None, json.dumps(row).encode()) for row in rows])
        run()
    commits = tmp_path / "checkpoints" / pipeline.name / "load" / "v1" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)
    run()
    assert (commits / "1").exists()
    assert sorted(row["id"] for row in rows_of(kind, tmp_path)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert len(topics.dead_letters(f"{pipeline.name}.load.dlq")) == 1
    assert counted_by_duckdb(kind, tmp_path) == 9


def test_unusable_catalog_is_reported_before_the_stage_starts(
    spark: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    pipeline = Pipeline("p" + topic[-60:])
    target = IcebergTable("db.t", {"type": "sql", "uri": f"sqlite:///{tmp_path}/no/where.db"})
    pipeline.load(topic, schema=SCHEMA, to=target, name="load")(lambda rows: rows)
    topics.numbers(topic, 1)
    environment = PipelineEnvironment(spark, topics.bootstrap, str(tmp_path / "checkpoints"))
    with pytest.raises(PipelineError, match=r"stage 'load' cannot open iceberg db\.t"):
        Runner(pipeline, environment).run(once=True)
    assert not (tmp_path / "checkpoints").exists()
