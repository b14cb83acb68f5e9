"""ListOffsets of a replicated log: answers of a new leader, and deletions on every replica."""

import asyncio

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.list_offsets import EARLIEST, LATEST, delete_records
from penstock.wire.messages.list_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.run_with import run_with
from tests.unit.broker.api.data.test_list_offsets import look_up
from tests.unit.broker.api.harness import Node, Pending, on_node
from tests.unit.broker.api.replicating import EPOCH, append, led, replicate, synced


def fetched(node: Node, node_id: int, offset: int, start_offset: int = 0) -> None:
    now_s = asyncio.get_running_loop().time()
    led(node).replica_fetched(node_id, 100 + node_id, offset, now_s, start_offset=start_offset)


async def newly_elected(node: Node) -> None:
    """Leads with two records that it does not know to be committed."""
    await replicate(node)
    append(node)
    append(node)
    await synced(node)
    await replicate(node, epoch=EPOCH + 1, partition_epoch=11)


@run_with(on_node)
async def test_new_leader_answers_latest_once_its_log_is_committed(
    node: Node,
) -> None:
    await newly_elected(node)
    assert (await look_up(node, LATEST)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    old = await look_up(node, LATEST, version=4)
    assert old.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await look_up(node, EARLIEST)).offset == 0, "that is known"
    fetched(node, 2, 2)
    fetched(node, 3, 2)
    assert (await look_up(node, LATEST)).offset == 2


@run_with(on_node)
async def test_new_leader_answers_timestamps_once_its_log_is_committed(node: Node) -> None:
    await newly_elected(node)
    assert (await look_up(node, 500)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    fetched(node, 2, 2)
    fetched(node, 3, 2)
    assert (await look_up(node, 500)).offset == 0
    assert (await look_up(node, 9999)).offset == -1


@run_with(on_node)
async def test_leader_with_an_expired_registration_answers_nothing(node: Node) -> None:
    await replicate(node)
    node.ctx.metadata.membership.valid_until = asyncio.get_running_loop().time()
    assert (await look_up(node, LATEST)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def delete(node: Node, offset: int, timeout_ms: int = 5000) -> Pending:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="t", partitions=[row])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
    pending, work = node.begin(delete_records, 2, request)

    async def carry_out() -> None:
        pending.call.reply(await work)

    node.background(carry_out())
    await asyncio.sleep(0.1)
    return pending


async def result(pending: Pending) -> tuple[int, int]:
    row = (await pending.reply()).topics[0].partitions[0]
    return row.error_code, row.low_watermark


async def committed(node: Node) -> None:
    await replicate(node)
    append(node)
    append(node)
    await synced(node)
    fetched(node, 2, 2)
    fetched(node, 3, 2)


@run_with(on_node)
async def test_deletion_waits_for_every_live_replica(node: Node) -> None:
    await committed(node)
    pending = await delete(node, 1)
    assert led(node).log.start_offset == 1
    assert not pending.is_answered
    fetched(node, 2, 2, start_offset=1)
    await asyncio.sleep(0.1)
    assert not pending.is_answered
    fetched(node, 3, 2, start_offset=1)
    assert await result(pending) == (ErrorCode.NONE, 1)


@run_with(on_node)
async def test_deletion_that_misses_a_replica_times_out(node: Node) -> None:
    await committed(node)
    pending = await delete(node, 1, timeout_ms=500)
    assert await result(pending) == (ErrorCode.REQUEST_TIMED_OUT, -1)


@run_with(on_node)
async def test_records_above_the_high_watermark_are_not_deleted(node: Node) -> None:
    await replicate(node)
    append(node)
    await synced(node)
    pending = await delete(node, 1)
    assert await result(pending) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@run_with(on_node)
async def test_pending_deletion_ends_with_the_role(node: Node) -> None:
    await committed(node)
    pending = await delete(node, 1)
    await replicate(node, leader=2, epoch=EPOCH + 1, partition_epoch=11)
    assert (await result(pending))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
