"""Building blocks of stages: rejecting rows, Python per row, and stateful steps.

All take and return DataFrames and are built from Spark's operators: Spark keeps their state, which
survives a restart. Durations are in Spark's notation: "10 minutes", "1 hour".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from penstock.app.dedup import ID_HEADERS
from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.record_columns import FAILURE, RECORD, split_failures
from penstock.spark.schemas.dataframes import ERROR_TYPE
from penstock.spark.schemas.format import reason_of

_MESSAGE_ID = "_message_id"
_EVENT_TIME = "_event_time"
_FOUND = "_found"
_WATERMARK = "spark.watermarkDelayMs"
"""Metadata key with which Spark marks a column that has a watermark."""


def reject(rows: Any, when: Any, reason: Any, *, error: str = "Rejected") -> Any:
    """Sends rows that match a condition to the stage's dead-letter queue; returns the others.

    `when` is SQL or a Column; a row for which it is null stays. `reason` is text or a Column; keep
    values out of it, so that dead letters with the same fault form one group.
    """
    condition = F.expr(when) if isinstance(when, str) else when
    message = F.lit(reason) if isinstance(reason, str) else reason
    failure = F.when(condition, F.struct(F.lit(error).alias("class"), message.alias("message")))
    return split_failures(rows.withColumn(FAILURE, failure))


def reject_late(rows: Any, event_time: str, by: str) -> Any:
    """Sends rows that arrived more than `by` after their event time to the dead-letter queue.

    Rows that Spark drops behind a watermark are only counted; these can be redriven.
    """
    late = F.col(f"{RECORD}.timestamp") > F.col(event_time) + F.expr(f"interval {by}")
    return reject(rows, late, f"more than {by} after its {event_time}", error="Late")


def each(rows: Any, function: Callable[[dict[str, Any]], Any], schema: str) -> Any:
    """Calls a Python function for every row: a dict in, a dict or None out; None drops the row.

    `schema` describes the returned dicts; the column `record` is kept. If the call raises, the row
    goes to the dead-letter queue with the exception as its reason, without numbers and quoted
    values, so that dead letters with the same fault form one group; other rows are unaffected.
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
        except Exception as error:  # noqa: BLE001 - any error of user code rejects the row
            failure = {"class": type(error).__name__, "message": reason_of(error)}
            return {**dict.fromkeys(names), RECORD: record, FAILURE: failure}

    return split_failures(rows.mapInArrow(attempt, whole))


def message_id() -> Any:
    """Message id of a row: header message_id or penstock-dedup-id, else topic/partition/offset."""
    from_headers = [_header(name) for name in ID_HEADERS]
    place = F.concat_ws("/", f"{RECORD}.topic", f"{RECORD}.partition", f"{RECORD}.offset")
    return F.coalesce(*from_headers, place)


def _header(name: str) -> Any:
    """First header of this name as text, or null."""
    same = F.filter(F.col(f"{RECORD}.headers"), lambda header: header["key"] == name)
    return F.get(same, 0)["value"].cast("string")


def dedup(rows: Any, within: str, *, by: Sequence[str] = (), event_time: str | None = None) -> Any:
    """Keeps only the first of rows with the same message id, or the same values in `by`.

    Duplicates are detected within `within`, by record timestamp or by the column `event_time`. A
    batch, as in the test kit, compares all of its rows.
    """
    if not rows.isStreaming:
        if by:
            return rows.dropDuplicates(list(by))
        named = rows.withColumn(_MESSAGE_ID, message_id())
        return named.dropDuplicates([_MESSAGE_ID]).drop(_MESSAGE_ID)
    if event_time is not None:
        marked = _watermarked(rows, event_time, within)
    else:
        timed = rows.withColumn(_EVENT_TIME, F.col(f"{RECORD}.timestamp"))
        marked = timed.withWatermark(_EVENT_TIME, within)
    if by:
        return marked.dropDuplicatesWithinWatermark(list(by)).drop(_EVENT_TIME)
    named = marked.withColumn(_MESSAGE_ID, message_id())
    return named.dropDuplicatesWithinWatermark([_MESSAGE_ID]).drop(_MESSAGE_ID, _EVENT_TIME)


def _watermarked(rows: Any, column: str, late: str) -> Any:
    """Adds a watermark unless an earlier step has set one on the column, which then applies."""
    if _WATERMARK in rows.schema[column].metadata:
        return rows
    return rows.withWatermark(column, late)


def lookup(rows: Any, table: Any, on: Sequence[str], *, missing: str = "reject") -> Any:
    """Joins a table to the rows on the columns `on`.

    `missing` decides about rows without a match in the table: `reject` sends them to the
    dead-letter queue, `keep` leaves the table's columns null.
    """
    if missing not in ("reject", "keep"):
        raise PipelineError(f"missing must be reject or keep, not {missing!r}")
    marked = F.broadcast(table.withColumn(_FOUND, F.lit(True)))
    joined = rows.join(marked, list(on), "left")
    # Always true, but opaque to Spark. Otherwise Spark would turn this into an inner join if rows
    # without a match are filtered later, and an inner join with an empty table reads no rows: steps
    # before it would store no state for the batch, and the next batch would fail.
    joined = joined.filter(F.spark_partition_id() >= 0)
    if missing == "reject":
        reason = f"the table has no row with this {', '.join(on)}"
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
    """Aggregates to one row per group and window: `aggregate(rows, ["shop"], window="1 hour",
    event_time="at", late="10 minutes", orders="count(*)", cents="sum(cents)")`.

    With mode `append` a window is emitted once, `late` after its end; with `update` after every
    change. Adds the columns window_start and window_end.
    """
    span = F.window(event_time, window, slide) if slide else F.window(event_time, window)
    return _grouped(rows, by, span, event_time, late, aggregates)


def sessions(
    rows: Any, by: Sequence[str], /, *, gap: str, event_time: str, late: str, **aggregates: str
) -> Any:
    """Aggregates to one row per session: rows of a group with gaps shorter than `gap`.

    A session is emitted once, `late` after its end. Adds window_start and window_end.
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
        raise PipelineError('missing aggregates: pass at least one, such as orders="count(*)"')
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
