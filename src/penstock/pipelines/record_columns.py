"""Rows at the edges of a stage: records made columns, columns made records, bad rows made letters.

Inside a stage every row carries the record it came from in the column `record`, for as long as
the stage's function leaves it there. So a row that fails can be written to the dead letters as it
came, with the headers that `penstock.state.queues.dead_letter_format` describes; `penstock dlq` and
the redrive then treat it like every other letter.
"""

from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipelines.pipeline import Stage
from penstock.spark.dead_letters import dead_letters
from penstock.spark.schemas.dataframes import decode
from penstock.spark.schemas.schema_cache import RegistryAddress
from penstock.state.queues import dead_letter_format

RECORD: Final = "record"
FAILURE: Final = "_failure"
"""A struct of class and message, null in rows that are well."""
COLUMNS: Final = "key,value,topic,partition,offset,timestamp,headers"
"""What is read of every record."""
_RAW: Final = frozenset({*COLUMNS.split(","), RECORD})
_CORRUPT: Final = "_corrupt"
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_SHOWN: Final = 200
"""Characters of a value in the reason of its failure."""


# -- in ---------------------------------------------------------------------------------------


def with_record(raw: Any) -> Any:
    """Records as columns, and once more together."""
    names = COLUMNS.split(",")
    return raw.withColumn(RECORD, F.struct(*names))


def parse_json(rows: Any, schema: StructType) -> Any:
    """The fields of JSON values as columns, beside `record`; what does not parse has a failure.

    A field that the schema declares `not null` must be there.
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
        F.col("_parsed").isNull() | F.col(f"_parsed.{_CORRUPT}").isNotNull(),
        _failed(
            "MalformedValue",
            F.concat(F.lit("the value is no JSON of the stage's schema: "), text.substr(1, _SHOWN)),
        ),
    )
    for name in missing:
        failure = failure.when(
            F.col(f"_parsed.`{name}`").isNull(),
            _failed("MissingField", F.lit(f"field {name!r} is missing")),
        )
    fields = [F.col(f"_parsed.`{field.name}`").alias(field.name) for field in schema.fields]
    return rows.withColumn("_parsed", parsed).select(*fields, RECORD, failure.alias(FAILURE))


def parse_subject(rows: Any, subject: str, registry: str | RegistryAddress) -> Any:
    """As `parse_json`, with the schemas of a registry's subject."""
    decoded = decode(rows, subject=subject, registry=registry, into="_parsed", error=FAILURE)
    return decoded.select("_parsed.*", RECORD, FAILURE)


def _failed(name: str, message: Any) -> Any:
    return F.struct(F.lit(name).alias("class"), message.alias("message"))


# -- out --------------------------------------------------------------------------------------


def is_raw(columns: list[str]) -> bool:
    """Whether these are the columns of records, to be written as they are."""
    return "value" in columns and set(columns) <= _RAW


def outgoing(rows: Any, stage: Stage, topic: str) -> Any:
    """What a stage returned as records for its topic."""
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
        _without_letter_headers(headers.cast(_HEADERS)).alias("headers"),
        F.coalesce(moment.cast("timestamp"), F.current_timestamp()).alias("timestamp"),
    )


def letters_of(failed: Any, stage: Stage) -> Any:
    """Rows with `record` and a failure as letters of the stage."""
    bad = failed.select(f"{RECORD}.*", FAILURE)
    written = dead_letters(bad, dlq=stage.dlq, group=stage.group, error=FAILURE)
    return written.withColumn("timestamp", F.current_timestamp())


def _without_letter_headers(headers: Any) -> Any:
    """Those of an earlier death say nothing about this record any more."""
    return F.filter(headers, lambda header: ~header["key"].startswith(dead_letter_format.PREFIX))
