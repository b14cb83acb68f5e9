"""Bad rows as dead letters, which `penstock dlq` lists, groups and redrives.

A dead letter is the unchanged record with headers that name its origin and the error, in the same
format that brokers write (`state.queues.dead_letter_format`). It goes to `<topic>.dlq` unless
`dlq` names another topic.

`route` writes good rows and dead letters through one sink, so that both are in one transaction: a
repeated batch duplicates neither.
"""

from typing import TYPE_CHECKING, Any, Final

from penstock.spark.option_values import OptionError, nearest
from penstock.state.queues import dead_letter_format

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SUFFIX: Final = ".dlq"
_HEADER: Final = "struct<key:string,value:binary>"


def dead_letters(
    frame: "DataFrame",
    *,
    dlq: str | None = None,
    group: str = "spark",
    error: str = "error",
    value: str = "value",
) -> "DataFrame":
    """Bad rows in the sink's columns: key, value, headers and topic.

    `error` is a column made by `decode`, or a string; rows where it is null are left out.
    `value` is the column with the original value of the record.
    """
    from pyspark.sql import functions as f

    _check(frame, error, value)
    bad = frame.where(f.col(error).isNotNull())
    return bad.select(
        _key(frame, "key").alias("key"),
        f.col(value).cast("binary").alias("value"),
        _headers(frame, error, group).alias("headers"),
        _target(frame, dlq).alias("topic"),
    )


def route(
    frame: "DataFrame",
    *,
    topic: str,
    value: str = "value",
    key: str = "key",
    original: str = "value",
    dlq: str | None = None,
    group: str = "spark",
    error: str = "error",
) -> "DataFrame":
    """All rows in the sink's columns: good ones to `topic`, bad ones to the dead-letter queue.

    `key` and `value` are the columns of good rows; a dead letter has the record's original key and
    the value in `original`.
    """
    from pyspark.sql import functions as f

    _check(frame, error, original)
    _check(frame, error, value)
    is_bad = f.col(error).isNotNull()
    own = f.col("headers") if "headers" in frame.columns else f.lit(None)
    own_key = _key(frame, "key")
    new_key = _key(frame, key)
    return frame.select(
        f.when(is_bad, own_key).otherwise(new_key).alias("key"),
        f.when(is_bad, f.col(original).cast("binary"))
        .otherwise(f.col(value).cast("binary"))
        .alias("value"),
        f.when(is_bad, _headers(frame, error, group))
        .otherwise(own.cast(f"array<{_HEADER}>"))
        .alias("headers"),
        f.when(is_bad, _target(frame, dlq)).otherwise(f.lit(topic)).alias("topic"),
    )


def _check(frame: "DataFrame", error: str, value: str) -> None:
    for name in (error, value):
        if name not in frame.columns:
            close = nearest(name, frame.columns)
            hint = f"did you mean {close!r}?" if close else f"columns: {', '.join(frame.columns)}"
            raise OptionError(f"unknown column {name!r}: {hint}")


def _target(frame: "DataFrame", dlq: str | None) -> "Column":
    from pyspark.sql import functions as f

    if dlq is not None:
        return f.lit(dlq)
    if "topic" not in frame.columns:
        raise OptionError("missing dead-letter queue: keep the column 'topic', or pass dlq")
    return f.concat(f.col("topic"), f.lit(SUFFIX))


def _key(frame: "DataFrame", name: str) -> "Column":
    from pyspark.sql import functions as f

    found = f.col(name) if name in frame.columns else f.lit(None)
    return found.cast("binary")


def _headers(frame: "DataFrame", error: str, group: str) -> "Column":
    """Headers of the record without earlier dead-letter headers, then those of this failure."""
    from pyspark.sql import functions as f

    def column(name: str, fallback: Any = None) -> "Column":
        return f.col(name) if name in frame.columns else f.lit(fallback)

    is_struct = frame.schema[error].dataType.typeName() == "struct"
    kind = f.col(f"{error}.class") if is_struct else f.lit("Bad")
    message = f.col(f"{error}.message") if is_struct else f.col(error)
    now_ms = f.unix_millis(f.current_timestamp())
    at_ms = f.unix_millis(f.col("timestamp")) if "timestamp" in frame.columns else f.lit(-1)
    added_values = (
        (dead_letter_format.TOPIC, column("topic", "")),
        (dead_letter_format.PARTITION, column("partition", -1)),
        (dead_letter_format.OFFSET, column("offset", -1)),
        (dead_letter_format.TIMESTAMP, at_ms),
        (dead_letter_format.GROUP, f.lit(group)),
        (dead_letter_format.ATTEMPTS, f.lit(1)),
        (dead_letter_format.ERROR_CLASS, kind),
        (dead_letter_format.ERROR_MESSAGE, message),
        (dead_letter_format.FIRST_FAILURE, now_ms),
        (dead_letter_format.LAST_FAILURE, now_ms),
    )
    added = f.array(
        *(
            f.struct(
                f.lit(name).alias("key"),
                f.coalesce(one.cast("string"), f.lit("")).cast("binary").alias("value"),
            )
            for name, one in added_values
        )
    )
    if "headers" not in frame.columns:
        return added
    own = f.filter(
        f.coalesce(f.col("headers"), f.array().cast(f"array<{_HEADER}>")),
        lambda one: ~one["key"].startswith(dead_letter_format.PREFIX),
    )
    return f.concat(own, added)
