"""Ranges of the grammar, made numbers for each partition and clipped to what is there."""

import pytest

from penstock.base.errors import Refused
from penstock.base.ids import Millis
from penstock.client.cluster import Cluster
from penstock.client.list_offsets import OffsetSpan, partitions_of, resolve
from penstock.client.metadata import TopicPartition
from penstock.client.offset_syntax import parse_offsets
from penstock.wire.records import Record, encode
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.model import ModelBroker, with_model

ONE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)

# Partition 0 holds offsets 5 to 20, a record per second from 100 s on; partition 1 is empty.
CASES = {
    "start": (OffsetSpan(5, None), OffsetSpan(0, None)),
    "end": (OffsetSpan(20, None), OffsetSpan(0, None)),
    ":end": (OffsetSpan(5, 20), OffsetSpan(0, 0)),
    "7": (OffsetSpan(7, None), OffsetSpan(7, None)),
    "2": (OffsetSpan(5, None), OffsetSpan(2, None)),
    "7:9": (OffsetSpan(7, 9), OffsetSpan(7, 9)),
    "+3": (OffsetSpan(8, None), OffsetSpan(3, None)),
    "-3": (OffsetSpan(17, None), OffsetSpan(0, None)),
    "-3:end": (OffsetSpan(17, 20), OffsetSpan(0, 0)),
    "-100": (OffsetSpan(5, None), OffsetSpan(0, None)),
    "@110": (OffsetSpan(10, None), OffsetSpan(0, None)),
    "@110:5s": (OffsetSpan(10, 15), OffsetSpan(0, 0)),
    "@110:end": (OffsetSpan(10, 20), OffsetSpan(0, 0)),
    "@500": (OffsetSpan(20, None), OffsetSpan(0, None)),
    "@-10s": (OffsetSpan(10, None), OffsetSpan(0, None)),
}


@pytest.mark.parametrize("text", CASES)
@run_with(with_model)
async def test_range_is_resolved_to_offsets(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, text: str
) -> None:
    log, _ = broker.create("t", 2)
    for n in range(20):
        log.append(encode([Record(0, (100 + n) * 1000, None, b"")]))
    log.batches = log.batches[5:]
    log.start_offset = 5
    places = await partitions_of(cluster, "t")
    wanted = parse_offsets(text, Millis(120_000))
    spans = await resolve(cluster, places, wanted)
    assert (spans[ONE], spans[OTHER]) == CASES[text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", OffsetSpan(5, 20)),
        ("7:100", OffsetSpan(7, 20)),
        ("7:9", OffsetSpan(7, 9)),
        ("50", OffsetSpan(50, 50)),
    ],
)
@run_with(with_model)
async def test_bounded_range_stops_at_the_end(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, text: str, expected: OffsetSpan
) -> None:
    (log,) = broker.create("t")
    log.start_offset, log.end_offset = 5, 20
    wanted = parse_offsets(text, Millis(0))
    assert (await resolve(cluster, [ONE], wanted, must_end=True))[ONE] == expected


@run_with(with_model)
async def test_partitions_are_validated_before_a_request(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.create("t", 2)
    assert await partitions_of(cluster, "t", [1]) == [OTHER]
    with pytest.raises(Refused, match=r"'t' has 2 partitions, 0-1: there is no partition 2"):
        await partitions_of(cluster, "t", [0, 2])
