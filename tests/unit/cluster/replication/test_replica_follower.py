"""Effects of a leader's responses on a follower's log."""

import asyncio
import errno
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from penstock.base.errors import ErrorCode
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.replica_follower import FollowerStatus
from penstock.log.log import Log
from penstock.wire.messages.fetch import FetchPartitionData, FetchRequest, FetchResponse
from penstock.wire.records import Record, encode, read_header
from simulation.disk import Fault
from tests.run_with import run_with
from tests.unit.cluster.replicas import (
    NODE,
    NOW_MS,
    Led,
    ModelLeader,
    Node,
    content,
    replicate,
    until,
)

Change = Callable[[FetchPartitionData], None]


def write(log: Log, epoch: int, *values: bytes) -> None:
    """As this node would have written it while it led."""
    batch = memoryview(encode([Record(0, NOW_MS, None, value, ()) for value in values]))
    log.append(batch, read_header(batch), epoch, NOW_MS)
    log.sync()


async def agree(copy: Partition, led: Led, seconds: float = 10.0) -> None:
    """Waits until both logs are the same, and stay so."""
    await until(lambda: copy.log.durable_offset == led.log.end_offset, seconds)
    await asyncio.sleep(1)
    assert copy.log.durable_offset == copy.log.end_offset == led.log.end_offset
    assert content(copy.log) == content(led.log)


def condition(node: Node, copy: Partition) -> FollowerStatus:
    following = node.fetchers.replica_follower(copy)
    assert following is not None
    return following.status


# -- cutting ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("1 1 2 2 2", "1 1 3"),
        ("1 1 2 2 2", "1 1 2 3 3"),
        ("1 2 2", "1 3 3 3"),
        ("2 2 2", "1 3"),
        ("1 1 1 1", "1 1"),
        ("1 3 3 3", "1 2 2 2 2 4"),
        ("1 3 5 5 5", "1 2 2 2 4 4 4 6"),
        ("2", ""),
        ("", "1 2 3 4"),
        ("1 1 1", "1 1 1"),
    ],
)
@run_with(replicate)
async def test_log_is_truncated_where_the_epochs_diverge(
    node: Node, leader: ModelLeader, *, ours: str, theirs: str
) -> None:
    led = leader.lead("t", epoch=9)
    for number, epoch in enumerate(theirs.split()):
        led.append(b"%d by the leader" % number, epoch=int(epoch))
    copy = node.open("t", 1, epoch=9)
    for number, epoch in enumerate(ours.split()):
        same = theirs.split()[: number + 1] == ours.split()[: number + 1]
        write(copy.log, int(epoch), b"%d by the leader" % number if same else b"ours")
    node.follow()
    await agree(copy, led)


@run_with(replicate)
async def test_epoch_without_records_is_removed(node: Node, leader: ModelLeader) -> None:
    led = leader.lead("t", epoch=9)
    for value in (b"a", b"b", b"c"):
        led.append(value, epoch=4)
    copy = node.open("t", 1, epoch=9)
    write(copy.log, 4, b"a")
    # Elected in epoch 5, and gone before the first write.
    copy.log.begin_epoch(5)
    node.follow()
    await agree(copy, led)
    assert copy.log.epochs.epochs == [4]


@run_with(replicate)
async def test_partition_elected_before_its_truncation_keeps_its_log(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t", epoch=2)
    led.append(b"a", epoch=1)
    copy = node.open("t", 1, epoch=2)
    for value in (b"a", b"b"):
        write(copy.log, 1, value)
    async with node.flusher.hold(copy.log):
        node.follow()
        await until(lambda: node.fetchers.copied.truncations == 1)
        node.elect(copy, NODE, 3)
    await asyncio.sleep(1)
    assert copy.is_leader
    assert not copy.is_under_repair
    assert copy.log.end_offset == 2


@run_with(replicate)
async def test_next_leader_is_followed_after_the_previous_truncation(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t", epoch=2)
    led.append(b"a", epoch=1)
    copy = node.open("t", 1, epoch=2)
    for value in (b"a", b"b"):
        write(copy.log, 1, value)
    async with node.flusher.hold(copy.log):
        node.follow()
        await until(lambda: node.fetchers.copied.truncations == 1)
        led.epoch = 3
        led.append(b"c")
        node.elect(copy, 1, 3)
        await asyncio.sleep(0.1)
        assert condition(node, copy) is FollowerStatus.BUSY
    await agree(copy, led)


# -- out of range -----------------------------------------------------------------------------


@run_with(replicate)
async def test_follower_below_the_start_of_the_leader_starts_over_there(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t", segment_bytes=200)
    for number in range(30):
        led.append(b"%d" % number)
    led.log.sync()
    led.log.delete_before(20)
    led.log.retain(NOW_MS, 30)
    copy = node.open("t", 1)
    write(copy.log, 1, b"0")
    node.follow()
    await until(lambda: copy.log.durable_offset == 30)
    assert copy.log.start_offset == led.log.start_offset == 20
    assert node.fetchers.copied.resets == 1


@run_with(replicate)
async def test_leader_that_starts_within_a_batch_is_followed_from_there(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t")
    led.append(b"a", b"b", b"c", b"d")
    led.append(b"e")
    led.log.sync()
    led.log.delete_before(2)
    led.high_watermark = 5
    copy = node.open("t", 1)
    node.follow()
    await until(lambda: copy.log.durable_offset == 5)
    assert content(copy.log) == content(led.log)
    await until(lambda: copy.log.start_offset == 2)


# -- copying ----------------------------------------------------------------------------------


@run_with(replicate)
async def test_high_watermark_and_start_offset_follow_the_leader(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t")
    for number in range(10):
        led.append(b"%d" % number)
    led.log.sync()
    copy = node.open("t", 1)
    node.follow()
    led.high_watermark = 7
    await until(lambda: copy.high_watermark == 7)
    led.log.delete_before(9)
    leader.append("t", b"x")
    await until(lambda: copy.log.start_offset == 7)
    led.high_watermark = 10
    leader.append("t", b"x")
    await until(lambda: copy.log.start_offset == 9)
    leader.append("t", b"x")
    await until(lambda: led.asked[-1].log_start_offset == 9)


@run_with(replicate)
async def test_damaged_bytes_are_never_appended(node: Node, leader: ModelLeader) -> None:
    led = leader.lead("t")
    led.append(b"a")
    copy = node.open("t", 1)
    spoilt = is_armed = 0

    def spoil(row: FetchPartitionData) -> None:
        nonlocal spoilt
        if is_armed and row.records and spoilt < 5:
            spoilt += 1
            assert isinstance(row.records, bytes | memoryview)
            data = bytearray(row.records)
            data[-1 - spoilt] ^= 0x40
            row.records = bytes(data)

    answer_through(leader, spoil)
    node.follow()
    await agree(copy, led)
    is_armed = 1
    leader.append("t", b"good", b"good")
    leader.append("t", b"good")
    await agree(copy, led)
    assert spoilt == 5
    assert node.fetchers.copied.batches_refused >= 5


@pytest.mark.parametrize("epoch", [0, 2, 99])
@run_with(replicate)
async def test_batch_of_an_impossible_epoch_is_refused(
    node: Node, leader: ModelLeader, *, epoch: int
) -> None:
    led = leader.lead("t")
    led.append(b"a")
    copy = node.open("t", 1)
    spoilt = is_armed = 0

    def spoil(row: FetchPartitionData) -> None:
        nonlocal spoilt
        if is_armed and row.records and spoilt < 3:
            spoilt += 1
            assert isinstance(row.records, bytes | memoryview)
            data = bytearray(row.records)
            data[12:16] = epoch.to_bytes(4, "big")  # It is not under the checksum.
            row.records = bytes(data)

    answer_through(leader, spoil)
    node.follow()
    await agree(copy, led)
    is_armed = 1
    leader.append("t", b"good")
    await agree(copy, led)
    assert spoilt == 3
    assert copy.log.epochs.epochs == [1]


@run_with(replicate)
async def test_full_disk_is_retried(node: Node, leader: ModelLeader) -> None:
    led = leader.lead("t")
    led.append(b"a")
    copy = node.open("t", 1)
    node.follow()
    await agree(copy, led)
    node.disk.inject(Fault("append", errno.ENOSPC, times=3))
    leader.append("t", b"b")
    await agree(copy, led)


@run_with(replicate)
async def test_failed_log_is_no_longer_fetched(node: Node, leader: ModelLeader) -> None:
    leader.lead("t")
    leader.lead("u")
    copy, other = node.open("t", 1), node.open("u", 1)
    node.follow()
    await until(lambda: bool(leader.parked))
    copy.log.quarantine("a bit has flipped")
    leader.append("t", b"a")
    leader.append("u", b"a")
    await until(lambda: other.log.durable_offset == 1)
    assert condition(node, copy) is FollowerStatus.BROKEN
    before = len(leader.seen)
    await asyncio.sleep(5)
    assert len(leader.seen) - before < 15


def expel(copy: Partition, *, eligible: bool = False) -> None:
    """The image says that this replica is not in sync any more."""
    record = copy.record
    elr = (NODE,) if eligible else ()
    copy.follow(replace(record, isr=(record.leader,), elr=elr))


@run_with(replicate)
async def test_failed_log_is_copied_again_once_it_left_isr_and_elr(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t")
    for number in range(10):
        led.append(b"%d" % number)
    copy = node.open("t", 1)
    node.follow()
    await agree(copy, led)
    copy.log.quarantine("a bit has flipped")
    leader.append("t", b"x")
    await until(lambda: condition(node, copy) is FollowerStatus.BROKEN)
    for eligible in (True, True):
        node.follow()
        await asyncio.sleep(1)
        assert copy.log.offline is not None, "it may hold records no other replica has"
        expel(copy, eligible=eligible)
    expel(copy)
    node.follow()
    await agree(copy, led)
    assert copy.log.offline is None
    assert node.fetchers.copied.restored == 1
    leader.append("t", b"y")
    await agree(copy, led)


@run_with(replicate)
async def test_failed_rebuild_of_a_log_is_retried(node: Node, leader: ModelLeader) -> None:
    led = leader.lead("t")
    led.append(b"a")
    copy = node.open("t", 1)
    node.follow()
    await agree(copy, led)
    copy.log.quarantine("a bit has flipped")
    leader.append("t", b"x")
    await until(lambda: condition(node, copy) is FollowerStatus.BROKEN)
    expel(copy)
    node.disk.inject(Fault("rename", errno.EIO, path="t-0"))
    node.follow()
    for _ in range(3):
        await asyncio.sleep(1)
        node.follow()
    assert copy.log.offline is not None
    await agree(copy, led, seconds=10)


# -- images that differ -----------------------------------------------------------------------


@run_with(replicate)
async def test_leader_unaware_of_its_election_is_retried_soon(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t", epoch=1)
    led.append(b"a")
    copy = node.open("t", 1, epoch=2)
    node.follow()
    await asyncio.sleep(0.3)
    assert copy.log.end_offset == 0
    led.epoch = 2
    await until(lambda: copy.log.durable_offset == 1, seconds=1.0)


@run_with(replicate)
async def test_follower_with_an_old_epoch_waits_for_the_image(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t", epoch=5)
    led.append(b"a")
    copy = node.open("t", 1, epoch=4)
    node.follow()
    await asyncio.sleep(5)
    assert copy.log.end_offset == 0
    node.elect(copy, 1, 5)
    await until(lambda: copy.log.durable_offset == 1, seconds=0.05)


@run_with(replicate)
async def test_partition_that_fails_at_the_leader_does_not_delay_the_rest(
    node: Node, leader: ModelLeader
) -> None:
    led = leader.lead("t")
    copy, missing = node.open("t", 1), node.open("missing", 1)
    node.follow()
    for _ in range(9):
        leader.append("t", b"x")
        await until(lambda: copy.log.durable_offset == led.log.end_offset, seconds=0.1)
    assert missing.log.end_offset == 0
    leader.lead("missing").append(b"x")
    await until(lambda: missing.log.durable_offset == 1, seconds=1.5)


@run_with(replicate)
async def test_unknown_error_is_retried_with_backoff(node: Node, leader: ModelLeader) -> None:
    led = leader.lead("t")
    led.append(b"a")
    copy = node.open("t", 1)

    def refuse(row: FetchPartitionData) -> None:
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    answer_through(leader, refuse)
    node.follow()
    await asyncio.sleep(10)
    assert len(led.fetched) < 40
    leader.answers[FetchRequest] = leader.serve
    await until(lambda: copy.log.durable_offset == 1, seconds=1.5)


def answer_through(leader: ModelLeader, change: Change) -> None:
    """Has every row of every answer changed on its way out."""

    async def serve(request: FetchRequest) -> FetchResponse:
        response = await leader.serve(request)
        for topic in response.responses:
            for row in topic.partitions:
                change(row)
        return response

    leader.answers[FetchRequest] = serve
