"""Where a read begins and ends: the options' words made one value, and that value made offsets.

A `ReadPosition` is what the user said; `resolve` asks the cluster what it means for each partition
now. Partitions that an offset was not given for are refused rather than guessed: either guess
would lose or repeat somebody's records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import committed_offsets
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.spark.option_values import OptionError

COMMITTED = -4
"""Where the group stands; not a timestamp that Kafka knows."""

PerPartition = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Exactly one is set. `everywhere` is EARLIEST, LATEST or COMMITTED."""

    option: str
    everywhere: int | None = None
    offsets: PerPartition | None = None
    timestamp_ms: int | None = None
    timestamps_ms: PerPartition | None = None
    or_latest: bool = False
    """A timestamp younger than every record means the end, not an error."""


_WORDS = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}


def starting_position(found: Mapping[str, Any], *, is_streaming: bool) -> ReadPosition:
    or_latest = found["startingOffsetsByTimestampStrategy"] == "latest"
    if found["startingTimestamp"] is not None:
        moment = found["startingTimestamp"]
        return ReadPosition("startingTimestamp", timestamp_ms=moment, or_latest=or_latest)
    if found["startingOffsetsByTimestamp"] is not None:
        name = "startingOffsetsByTimestamp"
        return ReadPosition(name, timestamps_ms=found[name], or_latest=or_latest)
    said = found["startingOffsets"]
    if said is None:
        said = "latest" if is_streaming else "earliest"
    if isinstance(said, str):
        if said == "latest" and not is_streaming:
            raise OptionError("startingOffsets 'latest' is for streams: a batch would be empty")
        return ReadPosition("startingOffsets", everywhere=_WORDS[said])
    if not is_streaming and any(-1 in rows.values() for rows in said.values()):
        raise OptionError("startingOffsets -1 (latest) is for streams: a batch would be empty")
    return ReadPosition("startingOffsets", offsets=said)


def ending_position(
    found: Mapping[str, Any], given: Mapping[str, str], *, is_streaming: bool
) -> ReadPosition:
    if is_streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in given or name.lower() in given:
                raise OptionError(f"option {name!r} is for batches: a stream does not end")
    if found["endingTimestamp"] is not None:
        moment = found["endingTimestamp"]
        return ReadPosition("endingTimestamp", timestamp_ms=moment, or_latest=True)
    if found["endingOffsetsByTimestamp"] is not None:
        name = "endingOffsetsByTimestamp"
        return ReadPosition(name, timestamps_ms=found[name], or_latest=True)
    said = found["endingOffsets"]
    if isinstance(said, str):
        return ReadPosition("endingOffsets", everywhere=_WORDS[said])
    if any(-2 in rows.values() for rows in said.values()):
        raise OptionError("endingOffsets -2 (earliest) would make the batch empty")
    return ReadPosition("endingOffsets", offsets=said)


async def resolve(
    cluster: Cluster,
    position: ReadPosition,
    places: Sequence[TopicPartition],
    *,
    isolation_level: int,
    group: str | None = None,
) -> dict[TopicPartition, int]:
    """The offset of each partition. Exact offsets are taken as they are."""
    if position.everywhere == COMMITTED:
        assert group is not None
        kept = await committed_offsets(cluster, group)
        starts = await _look(cluster, dict.fromkeys(places, EARLIEST), isolation_level)
        return {where: kept[where].offset if where in kept else starts[where] for where in places}
    if position.everywhere is not None:
        return await _look(cluster, dict.fromkeys(places, position.everywhere), isolation_level)
    if position.offsets is not None:
        exact = _cover(position, position.offsets, places)
        asked = {where: offset for where, offset in exact.items() if offset < 0}
        return {**exact, **await _look(cluster, asked, isolation_level)}
    if position.timestamp_ms is not None:
        moments = dict.fromkeys(places, position.timestamp_ms)
    else:
        assert position.timestamps_ms is not None
        moments = _cover(position, position.timestamps_ms, places)
    return await _at_times(cluster, position, moments, isolation_level)


async def _at_times(
    cluster: Cluster,
    position: ReadPosition,
    moments: Mapping[TopicPartition, int],
    isolation_level: int,
) -> dict[TopicPartition, int]:
    found = await _look(cluster, moments, isolation_level)
    missing = [where for where in found if found[where] < 0]
    if missing and not position.or_latest:
        raise OptionError(
            f"{position.option}: {missing[0]} has no record at or after "
            f"{moments[missing[0]]}; set startingOffsetsByTimestampStrategy to latest to begin "
            "at its end"
        )
    return {**found, **await _look(cluster, dict.fromkeys(missing, LATEST), isolation_level)}


async def _look(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation_level: int
) -> dict[TopicPartition, int]:
    if not wanted:
        return {}
    found = await list_offsets(cluster, wanted, isolation_level=isolation_level)
    return {where: found[where].offset for where in wanted}


def _cover(
    position: ReadPosition, rows: PerPartition, places: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """What was said of each partition; every partition must be named, and no other."""
    said = {TopicPartition(t, p): n for t, parts in rows.items() for p, n in parts.items()}
    for where in places:
        if where not in said:
            raise OptionError(f"{position.option} says nothing of {where}; name every partition")
    for where in said:
        if where not in places:
            raise OptionError(f"{position.option} speaks of {where}, which is not read")
    return {where: said[where] for where in places}
