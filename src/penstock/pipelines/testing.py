"""Test kit: runs stages on rows in memory, without broker and checkpoints.

    found = pipeline.test(spark).run("validate", [{"id": "o1", "quantity": 2}, b"not JSON"])
    assert found.rows == [{"id": "o1", "quantity": 2}]
    assert found.dead_letters[0].error_class == "MalformedValue"

A stage runs as a batch, with the same parsing, function, expectations and output as in a stream. So
windows are final, `dedup` compares all rows, and `mode` has no meaning.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from pyspark.sql.types import StructType

from penstock.pipelines.endpoints import Latest, PipelineError, Stored, Table, Topic
from penstock.pipelines.pipeline import Pipeline, Stage
from penstock.pipelines.progress import FAILED_SUFFIX, PASSED_SUFFIX
from penstock.pipelines.query_builder import BuiltStage, PipelineEnvironment, QueryBuilder
from penstock.pipelines.record_columns import COLUMNS, RECORD, output_records
from penstock.spark.source.rows import schema_of
from penstock.state.queues import dead_letter_format

_SCHEMA: Final = schema_of(COLUMNS.split(","))
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Timestamp of records that have none."""


@dataclass(frozen=True, slots=True)
class InputRecord:
    """Record of a stage's source."""

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    timestamp: datetime = _EPOCH


Input: TypeAlias = Mapping[str, Any] | bytes | str | InputRecord
"""Row of a stage's source: fields of a JSON value, a raw value, or a whole record."""


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """Record that the stage writes to its target topic."""

    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    timestamp: datetime


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """Dead letter of the stage: the unchanged record, and the error."""

    error_class: str
    message: str
    value: bytes | None
    key: bytes | None


@dataclass(frozen=True, slots=True)
class StageResult:
    rows: list[dict[str, Any]]
    """Returned rows, without `record`."""
    records: list[OutputRecord]
    """Written records; empty if the target is not a topic."""
    dead_letters: list[RejectedRecord]
    expectations: dict[str, tuple[int, int]]
    """Passed and failed rows of each expectation."""


class PipelineTest:
    """Runs stages of a pipeline on rows in memory."""

    def __init__(self, pipeline: Pipeline, spark: Any) -> None:
        self._pipeline = pipeline
        self._spark = spark

    def run(
        self,
        stage: str,
        rows: Sequence[Input],
        *,
        tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    ) -> StageResult:
        """Runs one stage. `tables` are the rows of its lookup tables, by name."""
        found = self._pipeline.stage(stage)
        if found.subject is not None:
            raise PipelineError(
                f"stage {stage!r} decodes subject {found.subject!r} with a schema registry; test "
                "its function with rows of your own, or give the stage a schema"
            )
        given = dict(tables or {})
        for name in given:
            if name not in found.tables:
                raise PipelineError(f"stage {stage!r} has no table {name!r}")
        builder = _TestBuilder(self._pipeline, self._spark, found, rows, given)
        return _result(builder.build(found))

    def run_all(self, topics: Mapping[str, Sequence[Input]]) -> dict[str, StageResult]:
        """Runs all stages in order on the records of topics; returns the results by stage.

        A stage reads what earlier ones have written. `Latest` tables are the last record of each
        key of their topic.
        """
        contents: dict[str, list[Input]] = {name: list(rows) for name, rows in topics.items()}
        results = {}
        for stage in self._pipeline.in_order():
            tables = {
                name: _last_rows(contents.get(table.topic, ()))
                for name, table in stage.tables.items()
                if isinstance(table, Latest)
            }
            result = self.run(stage.name, contents.get(str(stage.source), ()), tables=tables)
            results[stage.name] = result
            if isinstance(stage.target, Topic):
                contents.setdefault(stage.target.name, []).extend(
                    InputRecord(one.value, one.key, one.headers, one.timestamp)
                    for one in result.records
                )
        return results


class _TestBuilder(QueryBuilder):
    """Builds a stage on given rows, and other stages, for their schemas, on none."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: Any,
        stage: Stage,
        rows: Sequence[Input],
        tables: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> None:
        super().__init__(pipeline, PipelineEnvironment(spark, "localhost:9092", ""))
        self._spark = spark
        self._stage = stage
        self._rows = rows
        self._tables = tables

    def _read(self, stage: Stage, part: str) -> Any:
        given = self._rows if stage is self._stage else ()
        topic = str(stage.source)
        return self._spark.createDataFrame(
            [_raw(_record(row), topic, offset) for offset, row in enumerate(given)], _SCHEMA
        )

    def _table(self, stage: Stage, name: str, table: Table) -> Any:
        given = self._tables.get(name) if stage is self._stage else ()
        if given is None and isinstance(table, Stored):
            return super()._table(stage, name, table)
        if table.schema is None:
            raise PipelineError(f"table {name!r} needs a schema to be tested: Stored(..., schema=)")
        schema = StructType.fromDDL(table.schema)
        return self._spark.createDataFrame(
            [tuple(row.get(column) for column in schema.names) for row in given or ()], schema
        )


def _record(row: Input) -> InputRecord:
    if isinstance(row, InputRecord):
        return row
    if isinstance(row, bytes):
        return InputRecord(row)
    if isinstance(row, str):
        return InputRecord(row.encode())
    return InputRecord(json.dumps(row, default=str).encode())


def _raw(record: InputRecord, topic: str, offset: int) -> tuple[Any, ...]:
    headers = [(name, bytes(content)) for name, content in record.headers.items()]
    return (record.key, record.value, topic, 0, offset, record.timestamp, headers or None)


def _last_rows(records: Sequence[Input]) -> list[Mapping[str, Any]]:
    """Rows of a table: the last value of each key; a record without a value deletes its key."""
    last: dict[bytes | None, bytes | None] = {}
    for number, record in enumerate(map(_record, records)):
        last[record.key if record.key is not None else b"\0%d" % number] = record.value
    return [json.loads(value) for value in last.values() if value is not None]


def _result(built: BuiltStage) -> StageResult:
    stage = built.stage
    rows = [row.asDict(recursive=True) for row in built.good.drop(RECORD).collect()]
    records = []
    if isinstance(stage.target, Topic):
        written = output_records(built.good, stage, stage.target.name)
        records = [
            OutputRecord(_bytes(r.key), _bytes(r.value), _headers(r.headers), _utc(r.timestamp))
            for r in written.collect()
        ]
    rejected = [] if built.bad is None else [_rejected(row) for row in built.bad.collect()]
    expectations = {}
    if built.counts is not None:
        counted = built.counts.first().asDict()
        for one in stage.expectations:
            passed = counted[f"{one.name}{PASSED_SUFFIX}"]
            expectations[one.name] = (passed, counted[f"{one.name}{FAILED_SUFFIX}"])
    return StageResult(rows, records, rejected, expectations)


def _rejected(row: Any) -> RejectedRecord:
    headers = _headers(row.headers)
    return RejectedRecord(
        headers[dead_letter_format.ERROR_CLASS].decode(),
        headers[dead_letter_format.ERROR_MESSAGE].decode(),
        _bytes(row.value),
        _bytes(row.key),
    )


def _headers(given: Any) -> dict[str, bytes]:
    return {one["key"]: bytes(one["value"] or b"") for one in given or ()}


def _bytes(given: Any) -> bytes | None:
    return None if given is None else bytes(given)


def _utc(moment: datetime) -> datetime:
    """Collected timestamps are local times without a zone."""
    return moment.astimezone(UTC)
