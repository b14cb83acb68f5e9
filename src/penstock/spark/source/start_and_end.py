"""Start and end of a read: options to a `ReadPosition`, and that to offsets.

A `ReadPosition` is the user's choice; `resolve` looks up its current offset in each partition. A
partition that the user does not name is read completely: it starts at the earliest offset and ends
at the latest one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import committed_offsets
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError

COMMITTED = -4
"""Committed offset of the group; not one of Kafka's special timestamps."""

PerPartition = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Start or end of a read. Exactly one of the four choices is set.

    `everywhere` is EARLIEST, LATEST or COMMITTED.
    """

    option: str
    everywhere: int | None = None
    offsets: PerPartition | None = None
    timestamp_ms: int | None = None
    timestamps_ms: PerPartition | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics to which `offsets` belong, as far as they are known."""
    is_end: bool = False
    or_latest: bool = False
    """True: a timestamp newer than every record resolves to the end instead of an error."""


_WORDS = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}


def starting_position(found: Mapping[str, Any], *, is_streaming: bool) -> ReadPosition:
    or_latest = found["startingOffsetsByTimestampStrategy"] == "latest"
    if found["startingTimestamp"] is not None:
        moment = found["startingTimestamp"]
        return ReadPosition("startingTimestamp", timestamp_ms=moment, or_latest=or_latest)
    if found["startingOffsetsByTimestamp"] is not None:
        name = "startingOffsetsByTimestamp"
        rows = found[name].partitions
        return ReadPosition(name, timestamps_ms=rows, or_latest=or_latest)
    specified = found["startingOffsets"]
    if specified is None:
        specified = "latest" if is_streaming else "earliest"
    if isinstance(specified, str):
        if specified == "latest" and not is_streaming:
            raise OptionError("startingOffsets 'latest' applies to streams: a batch would be empty")
        return ReadPosition("startingOffsets", everywhere=_WORDS[specified])
    by_topic = specified.partitions
    if not is_streaming and any(-1 in rows.values() for rows in by_topic.values()):
        raise OptionError("startingOffsets -1 (latest) applies to streams: a batch would be empty")
    return ReadPosition("startingOffsets", offsets=by_topic, topic_ids=specified.topic_ids)


def ending_position(
    found: Mapping[str, Any], given: Mapping[str, str], *, is_streaming: bool
) -> ReadPosition:
    if is_streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in given or name.lower() in given:
                raise OptionError(f"option {name!r} applies to batches: a stream does not end")
    if found["endingTimestamp"] is not None:
        moment = found["endingTimestamp"]
        return ReadPosition("endingTimestamp", timestamp_ms=moment, or_latest=True)
    if found["endingOffsetsByTimestamp"] is not None:
        name = "endingOffsetsByTimestamp"
        rows = found[name].partitions
        return ReadPosition(name, timestamps_ms=rows, is_end=True, or_latest=True)
    specified = found["endingOffsets"]
    if isinstance(specified, str):
        return ReadPosition("endingOffsets", everywhere=_WORDS[specified])
    by_topic = specified.partitions
    if any(-2 in rows.values() for rows in by_topic.values()):
        raise OptionError("endingOffsets -2 (earliest) would make the batch empty")
    return ReadPosition("endingOffsets", offsets=by_topic, is_end=True)


async def resolve(
    cluster: Cluster,
    position: ReadPosition,
    places: Sequence[TopicPartition],
    *,
    isolation_level: int,
    group: str | None = None,
) -> dict[TopicPartition, int]:
    """Offset of each partition. Exact offsets are used unchanged."""
    if position.everywhere == COMMITTED:
        assert group is not None
        kept = await committed_offsets(cluster, group)
        starts = await _list(cluster, dict.fromkeys(places, EARLIEST), isolation_level)
        return {where: kept[where].offset if where in kept else starts[where] for where in places}
    if position.everywhere is not None:
        return await _list(cluster, dict.fromkeys(places, position.everywhere), isolation_level)
    if position.offsets is not None:
        exact = {**_unnamed(position, places), **_per_partition(position, position.offsets, places)}
        asked = {where: offset for where, offset in exact.items() if offset < 0}
        return {**exact, **await _list(cluster, asked, isolation_level)}
    if position.timestamp_ms is not None:
        moments = dict.fromkeys(places, position.timestamp_ms)
    else:
        assert position.timestamps_ms is not None
        moments = _per_partition(position, position.timestamps_ms, places)
    rest = {w: n for w, n in _unnamed(position, places).items() if w not in moments}
    return {
        **await _at_times(cluster, position, moments, isolation_level),
        **await _list(cluster, rest, isolation_level),
    }


async def _at_times(
    cluster: Cluster,
    position: ReadPosition,
    moments: Mapping[TopicPartition, int],
    isolation_level: int,
) -> dict[TopicPartition, int]:
    found = await _list(cluster, moments, isolation_level)
    missing = [where for where in found if found[where] < 0]
    if missing and not position.or_latest:
        raise OptionError(
            f"{position.option}: {missing[0]} has no record at or after "
            f"timestamp {moments[missing[0]]}; set startingOffsetsByTimestampStrategy to latest to "
            "start at its end"
        )
    return {**found, **await _list(cluster, dict.fromkeys(missing, LATEST), isolation_level)}


async def _list(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, int]:
    if not wanted:
        return {}
    found = await list_offsets(cluster, wanted, isolation_level=isolation_level)
    return {where: found[where].offset for where in wanted}


def _per_partition(
    position: ReadPosition, rows: PerPartition, places: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Specified value of each named partition, which must be part of the read."""
    specified = {TopicPartition(t, p): n for t, parts in rows.items() for p, n in parts.items()}
    for where in specified:
        if where not in places:
            raise OptionError(f"{position.option} names {where}, which is not part of the read")
    return {where: specified[where] for where in places if where in specified}


def _unnamed(position: ReadPosition, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Value of partitions that the user does not name."""
    return dict.fromkeys(places, LATEST if position.is_end else EARLIEST)
