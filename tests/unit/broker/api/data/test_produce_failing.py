"""Produce: what is answered when rights, leaders, disks or topics are missing."""

import asyncio
import errno

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.produce import produce
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.records import (
    read_header,
)
from simulation.disk import Fault
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.producing import VERSION, ask, batch, partition_of, request, rows, stored


@run_with(on_node)
async def test_produce_requires_the_permission(node: Node) -> None:
    await node.create("t", 1)
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert (await ask(node, batch())).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@run_with(on_node)
async def test_partition_not_open_here_is_not_leader_or_follower(
    node: Node,
) -> None:
    node.disk.inject(Fault("mkdir", errno.EIO, path="t.", times=1000))
    await node.create("t", 1)
    assert (await ask(node, batch())).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- the disk ---------------------------------------------------------------------------------


@run_with(on_node)
async def test_writes_are_refused_while_the_disk_is_nearly_full(node: Node) -> None:
    await node.create("t", 1)
    node.ctx.partitions.write_refusal = "the disk has 3 MiB left"
    row = await ask(node, batch())
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "3 MiB" in (row.error_message or "")
    node.ctx.partitions.write_refusal = None
    assert (await ask(node, batch())).base_offset == 0


@run_with(on_node)
async def test_full_disk_refuses_the_batch_and_the_log_continues(node: Node) -> None:
    await node.create("t", 1)
    node.disk.inject(Fault("append", errno.ENOSPC, path=".log"))
    row = await ask(node, batch(b"lost"))
    assert (row.error_code, row.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert (await ask(node, batch(b"kept"))).base_offset == 0
    assert [r.value for columns in stored(node) for r in columns] == [b"kept"]


@run_with(on_node)
async def test_failed_write_is_reported_to_waiting_requests(node: Node) -> None:
    await node.create("t", 1)
    waiting = await node.send(produce, VERSION, request(("t", 0, batch())))
    node.disk.inject(Fault("append", errno.EIO, path=".log"))
    assert (await ask(node, batch())).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (row,) = rows(await waiting.reply())
    assert (row.error_code, row.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@run_with(on_node)
async def test_failed_write_within_a_request_is_answered_once(node: Node) -> None:
    await node.create("t", 2)
    node.disk.inject(Fault("append", errno.EIO, path="/0/", skip=1))
    response = await node.ask(
        produce,
        VERSION,
        request(("t", 0, batch()), ("t", 0, batch()), ("t", 1, batch())),
    )
    assert [row.error_code for row in rows(response)] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        0,
    ]


@run_with(on_node)
async def test_failed_sync_acknowledges_nothing(node: Node) -> None:
    await node.create("t", 1)
    node.disk.inject(Fault("sync", errno.EIO, path=".log"))
    row = await ask(node, batch())
    assert (row.error_code, row.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert len(node.failures) == 1
    assert partition_of(node).high_watermark == 0


@run_with(on_node)
async def test_slow_disk_ends_as_request_timed_out(
    node: Node,
) -> None:
    await node.create("fast", 1, flush_policy="page-cache")
    await node.create("t", 1)
    node.workers.delay_s = (100.0, 100.0)
    sent = request(("fast", 0, batch()), ("t", 0, batch()), timeout_ms=5000)
    pending = await node.send(produce, VERSION, sent)
    assert pending.call.deadline == pytest.approx(pending.call.started + 5.0)
    pending.call.time_out()
    fast, slow = rows(await pending.reply())
    assert (fast.error_code, slow.error_code) == (0, ErrorCode.REQUEST_TIMED_OUT)
    # It is still committed, and no request is answered twice.
    while partition_of(node).high_watermark == 0:
        await asyncio.sleep(1.0)


@run_with(on_node)
async def test_topic_deleted_during_a_write_is_unknown(node: Node) -> None:
    await node.create("t", 1)
    node.workers.delay_s = (5.0, 5.0)
    pending = await node.send(produce, VERSION, request(("t", 0, batch())))
    await node.delete("t")
    (row,) = rows(await pending.reply())
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@run_with(on_node)
async def test_stored_header_has_the_offset_and_leader_epoch(
    node: Node,
) -> None:
    await node.create("t", 1)
    await ask(node, batch())
    await ask(node, batch())
    log = partition_of(node).log
    span = log.locate(1, 1 << 20, 2)
    assert span is not None
    header = read_header(memoryview(span.read()))
    assert (header.base_offset, header.leader_epoch) == (1, 0)
