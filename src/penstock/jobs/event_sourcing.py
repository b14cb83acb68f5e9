"""Job `event-sourcing`: folds events to the state of each key as of a time.

Events of a key are folded in the order of `spark.key_order`: `fold(state, event) -> state`, where
both are JSON dicts and the first state is None; a fold that returns None deletes the key. The
default fold replaces fields of earlier events by those of later ones. Keys are processed in
parallel, the events of one key by one process.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from pyspark.sql import functions as F

from penstock.jobs.inputs import JobInput, filter_records, read_input
from penstock.spark.key_order import order_within_key

Event: TypeAlias = dict[str, Any]
Fold: TypeAlias = Callable[[Event | None, Event], Event | None]
SCHEMA: Final = "key string, state string, events bigint, last_ms bigint"
EVENTS_MAX: Final = 10_000_000
"""Maximum events of one key; a key with more is a constant, not the id of an entity."""


def merge_fields(state: Event | None, event: Event) -> Event | None:
    """Default fold: later fields win, null removes a field."""
    merged = {**(state or {}), **event}
    return {name: value for name, value in merged.items() if value is not None}


def rebuild(
    spark: Any,
    *,
    cluster: Mapping[str, str],
    side: JobInput,
    fold: Fold = merge_fields,
    until_ms: int | None = None,
) -> Any:
    """One row per key: its state as JSON, number of events, and time of the last one."""
    rows = filter_records(read_input(spark, side, cluster), until_ms=until_ms)
    ordered = (
        rows.filter("key is not null")
        .select(
            F.col("key").cast("string").alias("key"),
            F.col("value").cast("string").alias("value"),
            F.unix_millis("timestamp").alias("at_ms"),
            "partition",
            "offset",
        )
        .repartition("key")
        .withColumn("_order", order_within_key(at="at_ms"))
        .sortWithinPartitions("key", "_order", "partition", "offset")
    )

    def fold_all(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        names = ("key", "state", "events", "last_ms")
        types = (pa.string(), pa.string(), pa.int64(), pa.int64())
        schema = pa.schema(list(zip(names, types, strict=True)))
        for done in _fold_sorted(fold, _rows(batches)):
            yield pa.RecordBatch.from_pylist([dict(zip(names, done, strict=True))], schema=schema)

    return ordered.mapInArrow(fold_all, SCHEMA)


def _rows(batches: Iterator[Any]) -> Iterator[tuple[str, str | None, int]]:
    for batch in batches:
        for row in batch.select(["key", "value", "at_ms"]).to_pylist():
            yield row["key"], row["value"], row["at_ms"]


def _fold_sorted(
    fold: Fold, rows: Iterator[tuple[str, str | None, int]]
) -> Iterator[tuple[str, str, int, int]]:
    """Folds rows sorted by key to one row per key with a state."""
    key: str | None = None
    state: Event | None = None
    events = last_ms = 0
    for one, value, at_ms in rows:
        if one != key:
            if key is not None and state is not None:
                yield key, json.dumps(state, sort_keys=True), events, last_ms
            key, state, events, last_ms = one, None, 0, 0
        events += 1
        last_ms = max(last_ms, at_ms)
        # A tombstone deletes the key; later events may create it again.
        state = None if value is None else fold(state, json.loads(value))
        if events > EVENTS_MAX:
            raise ValueError(f"key {key!r} has more than {EVENTS_MAX:,} events")
    if key is not None and state is not None:
        yield key, json.dumps(state, sort_keys=True), events, last_ms
