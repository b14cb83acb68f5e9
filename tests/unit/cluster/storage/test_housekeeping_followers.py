"""Housekeeping of replicas that follow: they remove what their leader removed, and compact."""

import asyncio

from penstock.cluster.metadata.store_keys import PartitionRecord
from simulation.loop import run
from tests.run_with import run_with
from tests.unit.cluster.storage.test_housekeeping import BY_SIZE, COMPACT, House

FOLLOWS = PartitionRecord((1, 2), 2, (1, 2), leader_epoch=2, partition_epoch=5)


@run_with(run)
async def test_a_follower_does_not_remove_by_age_or_size(loop: object) -> None:
    house = House(BY_SIZE)
    await house.fill(40)
    segments = len(house.log.segments)
    house.partition.follow(FOLLOWS)
    house.housekeeping.retain(house.partition, house.clock.now_ms())
    assert len(house.log.segments) == segments
    house.partition.lead(PartitionRecord((1,), 1, (1,), 3, 6), 1, 0.0)
    house.housekeeping.retain(house.partition, house.clock.now_ms())
    assert len(house.log.segments) < segments, "as a leader it does"


@run_with(run)
async def test_a_follower_removes_what_lies_below_its_leaders_start(loop: object) -> None:
    house = House(BY_SIZE)
    await house.fill(40)
    house.partition.follow(FOLLOWS)
    first = house.log.segments[0].base_offset
    house.log.delete_before(house.log.segments[2].base_offset)
    house.housekeeping.retain(house.partition, house.clock.now_ms())
    await house.flusher.drain()
    await house.housekeeping._purge()
    assert house.log.segments[0].base_offset == house.log.start_offset > first


@run_with(run)
async def test_a_log_that_is_being_cut_is_left_alone(loop: object) -> None:
    house = House(BY_SIZE)
    await house.fill(40)
    house.partition.is_under_repair = True
    segments = len(house.log.segments)
    house.housekeeping.retain(house.partition, house.clock.now_ms())
    assert len(house.log.segments) == segments


@run_with(run)
async def test_a_follower_compacts_below_what_it_knows_to_be_committed(loop: object) -> None:
    house = House(COMPACT)
    await house.fill(30)
    house.partition.follow(FOLLOWS)
    house.partition.high_watermark = 0
    await asyncio.sleep(60)
    assert not await house.compact()
    house.partition.learn_high_watermark(house.log.end_offset)
    assert await house.compact()
