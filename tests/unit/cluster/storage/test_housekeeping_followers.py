"""Housekeeping of replicas that follow: they remove what their leader removed, and compact."""

import asyncio

from penstock.cluster.metadata.store_keys import PartitionRecord
from simulation.loop import run
from tests.run_with import run_with
from tests.unit.cluster.storage.test_housekeeping import BY_SIZE, COMPACT, Bench

FOLLOWS = PartitionRecord((1, 2), 2, (1, 2), leader_epoch=2, partition_epoch=5)


@run_with(run)
async def test_follower_does_not_remove_by_age_or_size(loop: object) -> None:
    bench = Bench(BY_SIZE)
    await bench.fill(40)
    segments = len(bench.log.segments)
    bench.partition.follow(FOLLOWS)
    bench.housekeeping.retain(bench.partition, bench.clock.now_ms())
    assert len(bench.log.segments) == segments
    bench.partition.lead(PartitionRecord((1,), 1, (1,), 3, 6), 1, 0.0)
    bench.housekeeping.retain(bench.partition, bench.clock.now_ms())
    assert len(bench.log.segments) < segments, "as a leader it does"


@run_with(run)
async def test_follower_removes_segments_below_the_start_of_its_leader(loop: object) -> None:
    bench = Bench(BY_SIZE)
    await bench.fill(40)
    bench.partition.follow(FOLLOWS)
    first = bench.log.segments[0].base_offset
    bench.log.delete_before(bench.log.segments[2].base_offset)
    bench.housekeeping.retain(bench.partition, bench.clock.now_ms())
    await bench.flusher.drain()
    await bench.housekeeping._purge()
    assert bench.log.segments[0].base_offset == bench.log.start_offset > first


@run_with(run)
async def test_log_under_repair_is_left_alone(loop: object) -> None:
    bench = Bench(BY_SIZE)
    await bench.fill(40)
    bench.partition.is_under_repair = True
    segments = len(bench.log.segments)
    bench.housekeeping.retain(bench.partition, bench.clock.now_ms())
    assert len(bench.log.segments) == segments


@run_with(run)
async def test_follower_compacts_below_its_high_watermark(loop: object) -> None:
    bench = Bench(COMPACT)
    await bench.fill(30)
    bench.partition.follow(FOLLOWS)
    bench.partition.high_watermark = 0
    await asyncio.sleep(60)
    assert not await bench.compact()
    bench.partition.learn_high_watermark(bench.log.end_offset)
    assert await bench.compact()
