"""Results that change, written by key: output modes `update` and `complete`.

Spark admits only the mode append for sinks in Python, and complete because the sink may overwrite;
it refuses update before it calls the sink. So `upsert` writes the rows of each batch in
`foreachBatch`, with the ledger of the query: each batch once, as with `format("penstock")`. In a
compacted topic the last record of a key is then its current row.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.spark.option_values import OptionError
from penstock.spark.settings import write_settings

_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_TEXT_CHARS_MAX: Final = 1_000
_TRACE: Final = ("\t", "  ", "Traceback")
"""Starts of lines of stack traces."""


class BatchNotWritten(Exception):
    """Spark could not write a batch, or stopped the query meanwhile."""


def upsert(**options: Any) -> Callable[[Any, int], None]:
    """Function for `foreachBatch` that writes rows by key, exactly once.

        counts.writeStream.outputMode("update").foreachBatch(
            upsert(brokers="localhost:9092", topic="counts")
        )

    Takes the options of `format("penstock")`. Creates the topic as a compacted one, and refuses one
    that is not compacted. A row with the value null deletes its key. Spark Connect does not tell
    the function which query it serves: pass `txnAppId`, a name that only this query has.
    """
    given = {name: _text(value) for name, value in options.items()}
    named = {"txnAppId": "-", **given, "txnVersion": "0", "delivery": "exactly-once"}
    settings = write_settings(named, is_streaming=False)
    write = exactly_once_batches(given)

    def write_rows(batch: Any, number: int) -> None:
        from penstock.spark.sink.sink import check_rows, check_upserts

        check_rows(batch.schema, settings)
        check_upserts(batch.schema, settings)
        write(batch, number)

    return write_rows


def exactly_once_batches(options: dict[str, str]) -> Callable[[Any, int], None]:
    """Function for `foreachBatch` that writes each batch once, by the ledger of its query."""

    def write(batch: Any, number: int) -> None:
        name = options.get("txnAppId") or query_id_of(batch)
        writer = batch.write.format("penstock").options(**{**options, "delivery": "exactly-once"})
        writer = writer.option("txnAppId", name).option("txnVersion", number).mode("append")
        try:
            writer.save()
        except Exception as error:  # noqa: BLE001 - py4j's and Spark Connect's have no common base
            raise BatchNotWritten(shortened(str(error))) from None

    return write


def shortened(error: str) -> str:
    """Messages of an error without stack traces.

    Spark searches the text of an error in `foreachBatch` with a recursive regular expression. A
    long one overflows its stack, and the query ends without the reason.
    """
    lines = [line for line in error.splitlines() if line.strip() and not line.startswith(_TRACE)]
    return "\n".join(lines)[:_TEXT_CHARS_MAX]


def query_id_of(batch: Any) -> str:
    """Query id in the checkpoint; Spark runs the function in the query's thread."""
    context = getattr(batch.sparkSession, "sparkContext", None)
    if context is None:
        raise OptionError(
            "missing option 'txnAppId': Spark Connect does not provide the query id of a batch, so "
            "pass a name that only this query has"
        )
    found = context.getLocalProperty(_QUERY_PROPERTY)
    if found is None:
        raise OptionError("missing option 'txnAppId': the function runs outside of foreachBatch")
    return str(found)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
