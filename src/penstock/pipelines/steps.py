"""What stages are made of: turning rows away, Python row by row, and steps that keep state.

All take and return DataFrames and are built from Spark's own operators: state is where Spark
keeps it, and goes on after a restart. Durations are Spark's: "10 minutes", "1 hour".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from penstock.app.dedup import ID_HEADERS
from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.record_columns import FAILURE, RECORD
from penstock.pipelines.rejects import split
from penstock.spark.schemas.dataframes import ERROR_TYPE

_MESSAGE_ID = "_message_id"
_MOMENT = "_event_time"
_FOUND = "_found"
_MESSAGE_CHARS_MAX = 1_000
_WATERMARK = "spark.watermarkDelayMs"
"""What Spark notes beside a column that has one."""


def reject(rows: Any, when: Any, reason: Any, *, error: str = "Rejected") -> Any:
    """Sends rows to the stage's dead letters where a condition is true; returns the others.

    `when` is SQL or a Column; where it is null the row stays. `reason` is text, or a Column.
    """
    condition = F.expr(when) if isinstance(when, str) else when
    message = F.lit(reason) if isinstance(reason, str) else reason
    failure = F.when(condition, F.struct(F.lit(error).alias("class"), message.alias("message")))
    return split(rows.withColumn(FAILURE, failure))


def reject_late(rows: Any, event_time: str, by: str) -> Any:
    """Sends rows to the dead letters that came more than `by` after they happened.

    What Spark itself drops behind a watermark is counted, but gone; these can be redriven.
    """
    late = F.col(f"{RECORD}.timestamp") > F.col(event_time) + F.expr(f"interval {by}")
    reason = F.concat(
        F.lit(f"more than {by} late: it happened at "), F.col(event_time).cast("string")
    )
    return reject(rows, late, reason, error="Late")


def each(rows: Any, function: Callable[[dict[str, Any]], Any], schema: str) -> Any:
    """Runs Python for every row: a dict in, a dict out, or None to leave the row out.

    `schema` is of what comes out; `record` is kept beside it. A row whose call raises goes to the
    dead letters with the exception as its reason, and the others go on.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    made = StructType.fromDDL(schema)
    whole = StructType(
        [
            *made.fields,
            StructField(RECORD, rows.schema[RECORD].dataType),
            StructField(FAILURE, ERROR_TYPE),
        ]
    )
    names = made.names
    arrow_schema = to_arrow_schema(whole, timezone="UTC")

    def attempt(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            done = [row for given in batch.to_pylist() if (row := attempt_one(given)) is not None]
            yield pa.RecordBatch.from_pylist(done, schema=arrow_schema)

    def attempt_one(given: dict[str, Any]) -> dict[str, Any] | None:
        record = given.pop(RECORD)
        try:
            returned = function(given)
            if returned is None:
                return None
            return {**{name: returned.get(name) for name in names}, RECORD: record, FAILURE: None}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the row's failure
            message = str(error)[:_MESSAGE_CHARS_MAX]
            failure = {"class": type(error).__name__, "message": message}
            return {**dict.fromkeys(names), RECORD: record, FAILURE: failure}

    return split(rows.mapInArrow(attempt, whole))


def message_id() -> Any:
    """The id of a row's record: the header message_id or penstock-dedup-id, else its place."""
    told = [_header(name) for name in ID_HEADERS]
    place = F.concat_ws("/", f"{RECORD}.topic", f"{RECORD}.partition", f"{RECORD}.offset")
    return F.coalesce(*told, place)


def _header(name: str) -> Any:
    """The first header of this name, as text, or null."""
    same = F.filter(F.col(f"{RECORD}.headers"), lambda header: header["key"] == name)
    return F.get(same, 0)["value"].cast("string")


def dedup(rows: Any, within: str, *, by: Sequence[str] = (), event_time: str | None = None) -> Any:
    """Only the first of rows that are the same message, or agree in the columns `by`.

    A repetition is known for `within`, by the time of its record or the column `event_time`.
    """
    if event_time is not None:
        marked = _watermarked(rows, event_time, within)
    else:
        timed = rows.withColumn(_MOMENT, F.col(f"{RECORD}.timestamp"))
        marked = timed.withWatermark(_MOMENT, within)
    if by:
        return marked.dropDuplicatesWithinWatermark(list(by)).drop(_MOMENT)
    named = marked.withColumn(_MESSAGE_ID, message_id())
    return named.dropDuplicatesWithinWatermark([_MESSAGE_ID]).drop(_MESSAGE_ID, _MOMENT)


def _watermarked(rows: Any, column: str, late: str) -> Any:
    """With a watermark, unless the column has one from an earlier step: that one counts."""
    if _WATERMARK in rows.schema[column].metadata:
        return rows
    return rows.withWatermark(column, late)


def lookup(rows: Any, table: Any, on: Sequence[str], *, missing: str = "reject") -> Any:
    """Adds a table's columns to rows that agree with it in the columns `on`.

    `missing` says what becomes of rows that the table does not know: `reject` sends them to the
    dead letters, `keep` leaves the columns null.
    """
    if missing not in ("reject", "keep"):
        raise PipelineError(f"missing is reject or keep, not {missing!r}")
    marked = F.broadcast(table.withColumn(_FOUND, F.lit(True)))
    joined = rows.join(marked, list(on), "left")
    # Always true, which Spark does not know. It would make an inner join of this where rows without
    # a match are left out later, and an inner join with an empty table reads no rows: steps before
    # it would keep no state of the batch, and the next batch could not go on.
    joined = joined.filter(F.spark_partition_id() >= 0)
    if missing == "reject":
        values = F.concat_ws(", ", *[F.col(f"`{name}`").cast("string") for name in on])
        reason = F.concat(F.lit(f"no {', '.join(on)} in the table: "), values)
        joined = reject(joined, F.col(_FOUND).isNull(), reason, error="NotFound")
    return joined.drop(_FOUND)


def aggregate(
    rows: Any,
    by: Sequence[str],
    /,
    *,
    window: str,
    event_time: str,
    late: str,
    slide: str | None = None,
    **aggregates: str,
) -> Any:
    """One row for every group and window: `aggregate(rows, ["shop"], window="1 hour",
    event_time="at", late="10 minutes", orders="count(*)", cents="sum(cents)")`.

    With mode `append` a window comes out once, when it is `late` past its end; with `update`
    every time it has changed. Has the columns window_start and window_end.
    """
    span = F.window(event_time, window, slide) if slide else F.window(event_time, window)
    return _grouped(rows, by, span, event_time, late, aggregates)


def sessions(
    rows: Any, by: Sequence[str], /, *, gap: str, event_time: str, late: str, **aggregates: str
) -> Any:
    """One row for every session: rows of a group without a pause of `gap` between them.

    A session comes out once, when it is `late` past its end. Has window_start and window_end.
    """
    return _grouped(rows, by, F.session_window(event_time, gap), event_time, late, aggregates)


def _grouped(
    rows: Any,
    by: Sequence[str],
    span: Any,
    event_time: str,
    late: str,
    aggregates: Mapping[str, str],
) -> Any:
    if not aggregates:
        raise PipelineError('what is to be computed? name it, as in orders="count(*)"')
    computed = [F.expr(expression).alias(name) for name, expression in aggregates.items()]
    grouped = (
        _watermarked(rows, event_time, late).groupBy(*by, span.alias("_window")).agg(*computed)
    )
    return grouped.select(
        *by,
        F.col("_window.start").alias("window_start"),
        F.col("_window.end").alias("window_end"),
        *aggregates,
    )
