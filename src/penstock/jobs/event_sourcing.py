"""The job `event-sourcing`: the state that events add up to, as of a time.

Events of a key are folded in the order of their offsets: `fold(state, event) -> state`, where both
are dicts made of JSON and the first state is None; a fold that returns None ends the key. Without
a fold of the user's, fields of later events replace those of earlier ones. Keys are worked on side
by side, the events of one key by one process.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from pyspark.sql import functions as F

from penstock.jobs.inputs import Side, chosen, read_side

Event: TypeAlias = dict[str, Any]
Fold: TypeAlias = Callable[[Event | None, Event], Event | None]
SCHEMA: Final = "key string, state string, events bigint, last_ms bigint"
EVENTS_MAX: Final = 10_000_000
"""Of one key: more than this is no entity, but a key that was left out."""


def merge_fields(state: Event | None, event: Event) -> Event | None:
    """Later fields win; a field that is null is removed."""
    merged = {**(state or {}), **event}
    return {name: value for name, value in merged.items() if value is not None}


def rebuild(
    spark: Any,
    *,
    cluster: Mapping[str, str],
    side: Side,
    fold: Fold = merge_fields,
    until_ms: int | None = None,
) -> Any:
    """A row for every key: its state as JSON, how many events, and when the last one was."""
    rows = chosen(read_side(spark, side, cluster), until_ms=until_ms)
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
        .sortWithinPartitions("key", "partition", "offset")
    )

    def fold_all(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        names = ("key", "state", "events", "last_ms")
        types = (pa.string(), pa.string(), pa.int64(), pa.int64())
        schema = pa.schema(list(zip(names, types, strict=True)))
        for done in _folded(fold, _rows(batches)):
            yield pa.RecordBatch.from_pylist([dict(zip(names, done, strict=True))], schema=schema)

    return ordered.mapInArrow(fold_all, SCHEMA)


def _rows(batches: Iterator[Any]) -> Iterator[tuple[str, str | None, int]]:
    for batch in batches:
        for row in batch.select(["key", "value", "at_ms"]).to_pylist():
            yield row["key"], row["value"], row["at_ms"]


def _folded(
    fold: Fold, rows: Iterator[tuple[str, str | None, int]]
) -> Iterator[tuple[str, str, int, int]]:
    """Rows sorted by key in, one row for each key that has a state out."""
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
        # A tombstone ends the key; it may begin anew.
        state = None if value is None else fold(state, json.loads(value))
        if events > EVENTS_MAX:
            raise ValueError(f"key {key!r} has more than {EVENTS_MAX:,} events")
    if key is not None and state is not None:
        yield key, json.dumps(state, sort_keys=True), events, last_ms
