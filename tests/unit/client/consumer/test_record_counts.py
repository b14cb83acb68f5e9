"""Counts of records, not offsets: markers and aborted records are not counted."""

import asyncio

import pytest

from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.committed_offsets import commit_offsets
from penstock.client.consumer import record_counts
from penstock.client.consumer.record_counts import count_records, count_unread
from penstock.client.dead_letters.replay import Copier, CopyPlan, offsets_of
from penstock.client.list_offsets import OffsetSpan
from penstock.client.metadata import TopicPartition
from penstock.runtime.random import SystemRandom
from penstock.state.queues.intervals import IntervalSet
from penstock.testing import Broker
from penstock.wire.compression import Codec
from tests.run_with import run_with
from tests.unit.client.on_cluster import Desk, WatchedWorkers, on_cluster

T0, COPY0 = TopicPartition("t", 0), TopicPartition("copy", 0)


async def prepare(desk: Desk) -> None:
    """Ten records, and a copy of them in transactions of two: a marker after each pair."""
    await desk.admin.create_topic("t", 1, 1)
    await desk.admin.create_topic("copy", 1, 1)
    await desk.produce("t", [b"%d" % number for number in range(10)])
    await Copier(desk.cluster, CopyPlan("c", "copy", {T0: OffsetSpan(0, 10)}), records_max=2).run()


@run_with(on_cluster)
async def test_transaction_markers_are_not_counted(desk: Desk) -> None:
    await prepare(desk)
    whole = offsets_of(OffsetSpan(0, 15))
    counted = await count_records(desk.cluster, {T0: whole, COPY0: whole})
    assert counted.records == {T0: 10, COPY0: 10}
    assert counted.is_exact
    # Offsets 0-7 of the copy: two records and a marker, twice, and two records more.
    assert (await count_records(desk.cluster, {COPY0: offsets_of(OffsetSpan(0, 8))})).total == 6


@run_with(on_cluster)
async def test_partial_batches_are_counted_by_their_records(desk: Desk) -> None:
    await prepare(desk)
    wanted = IntervalSet()
    for first, last in ((1, 1), (4, 6), (9, 40)):
        wanted.add(first, last)
    assert (await count_records(desk.cluster, {T0: wanted})).total == 5
    assert (await count_records(desk.cluster, {T0: IntervalSet()})).total == 0


@run_with(on_cluster)
async def test_large_range_is_estimated_without_reading(
    desk: Desk, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_counts, "OFFSETS_MAX", 9)

    await prepare(desk)
    counted = await count_records(desk.cluster, {COPY0: offsets_of(OffsetSpan(0, 10))})
    assert (counted.total, counted.is_exact) == (10, False)


@run_with(on_cluster)
async def test_compressed_batches_are_decompressed_by_workers(desk: Desk) -> None:
    await desk.admin.create_topic("t", 1, 1)
    await desk.produce("t", [b"%d" % number for number in range(10)], codec=Codec.ZSTD)
    wanted = IntervalSet()
    for first, last in ((1, 1), (4, 6), (9, 40)):
        wanted.add(first, last)
    desk.cluster.workers = workers = WatchedWorkers()
    assert (await count_records(desk.cluster, {T0: wanted})).total == 5
    assert record_counts.__name__ in workers.modules


def test_unread_records_count_from_the_position_or_the_start() -> None:
    async def counted(bootstrap: str) -> list[int]:
        async with Cluster(SystemRandom(), parse_brokers(bootstrap)) as cluster:
            before = await count_unread(cluster, "g", ["t"])
            await commit_offsets(cluster, "g", {TopicPartition("t", 0): 3})
            return [before, await count_unread(cluster, "g", ["t"])]

    with Broker() as broker:
        broker.create_topic("t", 2)
        for number in range(10):
            broker.publish("t", f"v{number}", partition=number % 2)
        assert asyncio.run(counted(broker.bootstrap)) == [10, 7]
