"""Conversion of records to columns, columns to records, and bad rows to dead letters.

Inside a stage every row has its source record in the column `record`, unless the stage's function
drops it. So a failing row can be dead-lettered unchanged, with the headers of
`penstock.state.queues.dead_letter_format`; `penstock dlq` and redrive treat it like any other dead
letter.

Rejected rows of a stage, collected while its function runs. `steps` rejects rows anywhere inside
the stage's function; `query_builder` needs them in addition to the function's result. Outside of
a stage, for example in a unit test of the function, they are dropped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.pipeline import Stage
from penstock.spark.dead_letters import dead_letters
from penstock.spark.schemas.dataframes import decode
from penstock.spark.schemas.schema_cache import RegistryAddress
from penstock.state.queues import dead_letter_format

RECORD: Final = "record"
FAILURE: Final = "_failure"
"""Column with a struct of class and message, null in good rows."""
COLUMNS: Final = "key,value,topic,partition,offset,timestamp,headers"
"""Columns read of every record."""
_RAW: Final = frozenset({*COLUMNS.split(","), RECORD})
_CORRUPT: Final = "_corrupt"
_HEADERS: Final = "array<struct<key:string,value:binary>>"


# -- input ------------------------------------------------------------------------------------


def with_record(raw: Any) -> Any:
    """Adds the column `record`, a struct of all record columns."""
    names = COLUMNS.split(",")
    return raw.withColumn(RECORD, F.struct(*names))


def parse_json(rows: Any, schema: StructType) -> Any:
    """Parses JSON values to columns beside `record`; malformed values get a failure.

    A field that the schema declares `not null` is required. Messages of failures do not contain
    values, so that dead letters with the same fault form one group.
    """
    lenient = StructType(
        [StructField(field.name, field.dataType) for field in schema.fields]
        + [StructField(_CORRUPT, StringType())]
    )
    text = F.col("value").cast("string")
    parsed = F.from_json(text, lenient, {"columnNameOfCorruptRecord": _CORRUPT})
    missing = [field.name for field in schema.fields if not field.nullable]
    failure = F.when(F.col("value").isNull(), _failed("EmptyValue", F.lit("the value is empty")))
    failure = failure.when(
        F.col("_parse").isNull() | F.col(f"_parse.{_CORRUPT}").isNotNull(),
        _failed("MalformedValue", F.lit("the value is not valid JSON for the stage's schema")),
    )
    for name in missing:
        failure = failure.when(
            F.col(f"_parse.`{name}`").isNull(),
            _failed("MissingField", F.lit(f"field {name!r} is missing")),
        )
    fields = [F.col(f"_parse.`{field.name}`").alias(field.name) for field in schema.fields]
    return rows.withColumn("_parse", parsed).select(*fields, RECORD, failure.alias(FAILURE))


def parse_subject(rows: Any, subject: str, registry: str | RegistryAddress) -> Any:
    """Parses values like `parse_json`, with the schemas of a subject in the registry."""
    decoded = decode(rows, subject=subject, registry=registry, into="_parse", error=FAILURE)
    return decoded.select("_parse.*", RECORD, FAILURE)


def _failed(name: str, message: Any) -> Any:
    return F.struct(F.lit(name).alias("class"), message.alias("message"))


# -- output -----------------------------------------------------------------------------------


def is_raw(columns: list[str]) -> bool:
    """True if these are columns of records, which are written unchanged."""
    return "value" in columns and set(columns) <= _RAW


def output_records(rows: Any, stage: Stage, topic: str) -> Any:
    """Records for the target topic from the rows that a stage returned."""
    names = rows.columns
    has_record = RECORD in names
    if is_raw(names):
        value = F.col("value").cast("binary")
        own_key = F.col("key").cast("binary") if "key" in names else F.lit(None).cast("binary")
    else:
        fields = [name for name in names if name != RECORD]
        value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in fields])).cast("binary")
        own_key = F.col(f"{RECORD}.key") if has_record else F.lit(None).cast("binary")
    key = own_key if stage.key is None else F.expr(stage.key).cast("string").cast("binary")
    if "headers" in names and is_raw(names):
        headers = F.col("headers")
    else:
        headers = F.col(f"{RECORD}.headers") if has_record else F.lit(None)
    if "timestamp" in names and is_raw(names):
        moment = F.col("timestamp")
    else:
        moment = F.col(f"{RECORD}.timestamp") if has_record else F.lit(None)
    return rows.select(
        F.lit(topic).alias("topic"),
        key.alias("key"),
        value.alias("value"),
        _without_dead_letter_headers(headers.cast(_HEADERS)).alias("headers"),
        F.coalesce(moment.cast("timestamp"), F.current_timestamp()).alias("timestamp"),
    )


def dead_letters_of(failed: Any, stage: Stage) -> Any:
    """Dead letters of the stage from rows with `record` and a failure."""
    bad = failed.select(f"{RECORD}.*", FAILURE)
    written = dead_letters(bad, dlq=stage.dlq, group=stage.group, error=FAILURE)
    return written.withColumn("timestamp", F.current_timestamp())


def _without_dead_letter_headers(headers: Any) -> Any:
    """Removes headers of an earlier failure, which do not apply to this record any more."""
    return F.filter(headers, lambda header: ~header["key"].startswith(dead_letter_format.PREFIX))


_collected: ContextVar[list[Any] | None] = ContextVar("rejects", default=None)


@contextmanager
def collect_rejected() -> Iterator[list[Any]]:
    """Collects the rows that steps reject within this context."""
    found: list[Any] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def split_failures(rows: Any) -> Any:
    """Rejects rows with a failure to the dead-letter queue; returns the others without it."""
    if RECORD not in rows.columns:
        raise PipelineError(
            "rejecting rows needs the column 'record': reject before you select other columns or "
            "aggregate"
        )
    found = _collected.get()
    if found is not None:
        found.append(rows.filter(f"{FAILURE} is not null").select(RECORD, FAILURE))
    return rows.filter(f"{FAILURE} is null").drop(FAILURE)
