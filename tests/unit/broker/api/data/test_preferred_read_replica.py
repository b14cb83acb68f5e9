"""Reading from followers (KIP-392): who is sent where, and what a follower serves."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.fetch import fetch
from penstock.broker.api.data.preferred_read_replica import RACK_AWARE, selects
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import BrokerRecord
from penstock.wire.messages.fetch import FetchPartitionData
from penstock.wire.records import Record, encode, stamp
from tests.run_with import run_with
from tests.unit.broker.api.fetching import asked, offsets, request, rows
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.replicating import EPOCH, append, led, replicate, synced


async def read(
    node: Node, offset: int = 0, *, rack: str = "", version: int = 12, **options: Any
) -> FetchPartitionData:
    epoch = options.pop("epoch", -1)
    topics = asked(("t", 0, offset), epoch=epoch)
    (row,) = rows(await node.ask(fetch, version, request(topics, rack_id=rack, **options)))
    return row


def fetched(node: Node, node_id: int, offset: int, start_offset: int = 0) -> None:
    now_s = asyncio.get_running_loop().time()
    led(node).replica_fetched(node_id, 100 + node_id, offset, now_s, start_offset=start_offset)


async def three_copies(node: Node) -> None:
    """Two records, committed on nodes 1, 2 and 3 in racks r1, r2 and r3."""
    node.ctx.fetch.replicas.has_selector = True
    await replicate(node)
    append(node)
    append(node)
    await synced(node)
    fetched(node, 2, 2)
    fetched(node, 3, 2)


def test_the_selector_is_named_as_in_kafka() -> None:
    assert selects(RACK_AWARE)
    assert not selects(None)
    assert not selects("org.apache.kafka.common.replica.LeaderSelector")


@run_with(on_node)
async def test_a_consumer_is_sent_to_the_in_sync_replica_in_its_rack(node: Node) -> None:
    await three_copies(node)
    row = await read(node, rack="r3")
    assert (row.error_code, row.preferred_read_replica) == (0, 3)
    assert not row.records


@pytest.mark.parametrize("rack", ["", "r1", "r9"])
@run_with(on_node)
async def test_a_consumer_with_no_rack_or_no_replica_there_stays_with_the_leader(
    node: Node, *, rack: str
) -> None:
    await three_copies(node)
    row = await read(node, rack=rack)
    assert row.preferred_read_replica == -1
    assert offsets(row) == [0, 1]


@run_with(on_node)
async def test_without_a_selector_everybody_reads_from_the_leader(node: Node) -> None:
    await three_copies(node)
    node.ctx.fetch.replicas.has_selector = False
    assert offsets(await read(node, rack="r3")) == [0, 1]


@run_with(on_node)
async def test_nobody_is_sent_to_one_that_lacks_the_offset_lags_or_is_leaving(node: Node) -> None:
    await three_copies(node)
    fetched(node, 3, 1)
    assert (await read(node, 2, rack="r3", max_wait_ms=0)).preferred_read_replica == -1
    fetched(node, 3, 2, start_offset=1)
    assert (await read(node, 0, rack="r3")).preferred_read_replica == -1
    assert (await read(node, 1, rack="r3")).preferred_read_replica == 3
    leaving = BrokerRecord(3, "host3", 9092, epoch=103, rack="r3", is_draining=True)
    await node.put(store_keys.broker_key(3), leaving)
    assert (await read(node, 1, rack="r3")).preferred_read_replica == -1
    await node.put(store_keys.broker_key(3), BrokerRecord(3, "host3", 9092, epoch=103, rack="r3"))
    await replicate(node, isr=(1, 2), partition_epoch=11)
    assert (await read(node, 1, rack="r3")).preferred_read_replica == -1


@run_with(on_node)
async def test_in_a_session_the_choice_is_told(node: Node) -> None:
    await three_copies(node)
    topics = asked(("t", 0, 0))
    opened = await node.ask(fetch, 12, request(topics, session_epoch=0))
    later = request([], session_id=opened.session_id, session_epoch=1, rack_id="r2")
    (row,) = rows(await node.ask(fetch, 12, later))
    assert row.preferred_read_replica == 2


async def follow(node: Node, count: int = 3, committed: int = 2) -> None:
    """This node follows node 2, and has copied so much."""
    await replicate(node, leader=2)
    replica = node.ctx.partitions.replica("t", 0)
    assert replica is not None
    for number in range(count):
        copied = memoryview(encode([Record(0, 1000, None, b"v%d" % number, ())]))
        stamp(copied, number, EPOCH)
        replica.log.append_replica(copied, 0)
    replica.copied()
    replica.learn_high_watermark(committed)


@run_with(on_node)
async def test_a_follower_serves_what_it_knows_to_be_committed(node: Node) -> None:
    await follow(node)
    for row in (await read(node, rack="r1"), await read(node, epoch=EPOCH)):
        assert offsets(row) == [0, 1]
        assert row.high_watermark == 2


@run_with(on_node)
async def test_a_parked_consumer_is_woken_by_what_its_follower_learns(node: Node) -> None:
    await follow(node)
    topics = asked(("t", 0, 2))
    pending = await node.send(fetch, 12, request(topics, rack_id="r1", max_wait_ms=9000))
    await asyncio.sleep(0.1)
    assert not pending.is_answered
    replica = node.ctx.partitions.replica("t", 0)
    assert replica is not None
    replica.learn_high_watermark(3)
    (row,) = rows(await pending.reply())
    assert offsets(row) == [2]


@run_with(on_node)
async def test_who_shows_no_sign_of_wanting_a_follower_is_sent_to_the_leader(node: Node) -> None:
    await follow(node)
    assert (await read(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    old = await read(node, epoch=EPOCH, version=10)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@run_with(on_node)
async def test_a_consumer_with_an_old_epoch_is_fenced_by_a_follower_and_told_who_leads(
    node: Node,
) -> None:
    await follow(node)
    row = await read(node, epoch=EPOCH - 1)
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert row.current_leader is not None
    assert row.current_leader.leader_id == 2


@run_with(on_node)
async def test_what_a_follower_does_not_have_yet_is_not_out_of_range(node: Node) -> None:
    await follow(node)
    assert (await read(node, 9, rack="r1")).error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@run_with(on_node)
async def test_a_log_that_is_being_cut_is_not_read(node: Node) -> None:
    await follow(node)
    replica = node.ctx.partitions.replica("t", 0)
    assert replica is not None
    replica.is_under_repair = True
    assert (await read(node, rack="r1")).error_code == ErrorCode.REPLICA_NOT_AVAILABLE
