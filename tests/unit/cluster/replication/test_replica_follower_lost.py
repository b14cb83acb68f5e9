"""A follower whose leader lacks what was committed: nothing of its log goes until that is right."""

import asyncio

import pytest
from msgspec.structs import replace

from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.partition import Partition
from tests.run_with import run_with
from tests.unit.cluster.replicas import Led, ModelLeader, Node, replicate, until
from tests.unit.cluster.replication.test_replica_follower import agree, expel, write


def behind(node: Node, leader: ModelLeader) -> tuple[Partition, Led]:
    """A replica of which two records were committed, and a leader that has one of them."""
    led = leader.lead("t", epoch=9)
    led.append(b"a", epoch=1)
    copy = node.open("t", 1, epoch=9)
    for value in (b"a", b"b", b"c"):
        write(copy.log, 1, value)
    copy.learn_high_watermark(2)
    return copy, led


@run_with(replicate)
async def test_follower_is_not_truncated_below_its_high_watermark(
    node: Node, leader: ModelLeader
) -> None:
    copy, _ = behind(node, leader)
    node.follow()
    await until(lambda: node.fetchers.copied.truncations_refused > 0)
    before = len(leader.seen)
    await asyncio.sleep(20)
    assert len(leader.seen) - before < 10, "it does not ask again and again"
    assert (copy.log.end_offset, copy.log.offline) == (3, None)
    assert copy.high_watermark == 2
    # The next leader has everything: it is followed at once.
    led = leader.led[copy.topic_id, 0]
    led.append(b"b", epoch=1)
    led.epoch = 10
    node.elect(copy, 1, 10)
    await agree(copy, led)


def elected_uncleanly(record: PartitionRecord, epoch: int) -> PartitionRecord:
    """As it is to a follower that has yet to follow that election."""
    others = tuple(node for node in record.replicas if node != record.leader)
    isr = (record.leader,)
    return replace(record, isr=isr, is_recovering=True, unclean_epoch=epoch, unreconciled=others)


@run_with(replicate)
async def test_unclean_election_truncates_a_follower_below_its_high_watermark(
    node: Node, leader: ModelLeader
) -> None:
    copy, led = behind(node, leader)
    copy.follow(elected_uncleanly(copy.record, 9))
    node.follow()
    await agree(copy, led)
    assert copy.high_watermark == 1


@run_with(replicate)
async def test_unclean_election_that_a_follower_joined_allows_no_later_truncation(
    node: Node, leader: ModelLeader
) -> None:
    copy, _ = behind(node, leader)
    copy.follow(elected_uncleanly(copy.record, 1))
    node.follow()
    await until(lambda: node.fetchers.copied.truncations_refused > 0)
    assert copy.log.end_offset == 3


@pytest.mark.parametrize("is_damaged", [False, True])
@run_with(replicate)
async def test_follower_in_sync_since_an_unclean_election_keeps_committed_records(
    node: Node, leader: ModelLeader, *, is_damaged: bool
) -> None:
    """It has no record of that leader, and another replica has yet to follow."""

    copy, _ = behind(node, leader)
    record = elected_uncleanly(copy.record, 9)
    copy.follow(replace(record, replicas=(*record.replicas, 3), unreconciled=(3,)))
    if is_damaged:
        copy.log.quarantine("a bit has flipped")
    node.follow()
    await until(lambda: node.fetchers.copied.truncations_refused > 0)
    await asyncio.sleep(20)
    assert copy.log.end_offset == 3
    assert node.fetchers.copied.restored == 0


@run_with(replicate)
async def test_known_end_is_lowered_on_disk_before_the_truncation(
    node: Node, leader: ModelLeader
) -> None:
    saved: list[tuple[int, int]] = []

    async def save() -> None:
        saved.append((copy.known_end, copy.log.end_offset))

    object.__setattr__(node.home, "save_known", save)
    copy, led = behind(node, leader)
    copy.follow(elected_uncleanly(copy.record, 9))
    node.follow()
    await agree(copy, led)
    assert saved == [(1, 3)]
    assert copy.known_end == 1


@run_with(replicate)
async def test_empty_log_does_not_move_below_its_high_watermark(
    node: Node, leader: ModelLeader
) -> None:
    leader.lead("t", epoch=9).append(b"a", epoch=1)
    copy = node.open("t", 1, epoch=9)
    copy.log.start_over(5)
    copy.repair_ended()
    assert copy.high_watermark == 5
    node.follow()
    await until(lambda: node.fetchers.copied.truncations_refused > 0)
    assert (copy.log.start_offset, copy.log.end_offset) == (5, 5)


@run_with(replicate)
async def test_damaged_log_is_kept_while_the_leader_lacks_committed_records(
    node: Node, leader: ModelLeader
) -> None:
    copy, led = behind(node, leader)
    copy.log.quarantine("a bit has flipped")
    expel(copy)
    node.follow()
    await until(lambda: node.fetchers.copied.truncations_refused > 0)
    await asyncio.sleep(20)
    assert node.fetchers.copied.restored == 0
    assert node.disk.exists("data/t-0"), "its files may hold records no other replica has"
    leader.append("t", b"b")
    await agree(copy, led, seconds=20)
    assert node.fetchers.copied.restored == 1
    assert copy.known_end == 2 or copy.high_watermark <= 2
