"""Markers: written to logs and groups, tried until they are, reported once all are there."""

import asyncio
import errno
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata import topics
from penstock.coordinator.txn_markers import PartitionMarker
from penstock.state.transactions.records import TxnState
from penstock.wire.messages.transactions import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)
from penstock.wire.records import Record, encode, read_header
from simulation.disk import Fault
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

CONFIGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


class Caller:
    def __init__(self, version: int) -> None:
        self.api_version = version


async def begin(node: Node, *places: tuple[str, int]) -> tuple[int, int]:
    """An open transaction of "tx" on these partitions, with a record in each."""
    ctx = node.ctx
    await ctx.group.groups.ensure()
    await ctx.transaction.txns.ensure()
    await ctx.transaction.producer_ids.ensure_available()
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    made = await ctx.transaction.txns.handle("tx", "InitProducerId", request, Caller(5))
    add = AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in places],
    )
    await ctx.transaction.txns.handle("tx", "AddPartitionsToTxn", add, Caller(3))
    for name, index in places:
        partition = ctx.partitions.get(name, index)
        assert partition is not None
        batch = memoryview(
            encode(
                [Record(0, 1, None, b"v", ())],
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
        )
        partition.append(batch, read_header(batch), ctx.clock.now_ms())
    return made.producer_id, made.producer_epoch


async def end(node: Node, producer: tuple[int, int]) -> Any:
    request = EndTxnRequest(
        transactional_id="tx", producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    return await node.ctx.transaction.txns.handle("tx", "EndTxn", request, Caller(5))


def state_of(node: Node) -> TxnState:
    return node.ctx.transaction.txns.host.runtime_of("tx").require().durable_state()["tx"].state


def open_at(node: Node, topic: str, index: int) -> int:
    partition = node.ctx.partitions.get(topic, index)
    assert partition is not None
    return partition.log.producers.first_open_offset


@run_with(on_node, configs=CONFIGS)
async def test_end_of_a_transaction_reaches_every_partition(node: Node) -> None:
    await node.create("t", 3)
    producer = await begin(node, ("t", 0), ("t", 2))
    assert open_at(node, "t", 0) == open_at(node, "t", 2) == 0
    answer = await end(node, producer)
    assert answer.error_code == ErrorCode.NONE
    assert answer.producer_epoch == producer[1] + 1
    await asyncio.sleep(0.1)
    assert open_at(node, "t", 0) == open_at(node, "t", 2) == -1
    assert state_of(node) is TxnState.COMPLETE_COMMIT


@run_with(on_node, configs=CONFIGS)
async def test_no_marker_is_written_before_the_decision_is_committed(node: Node) -> None:
    await node.create("t", 1)
    producer = await begin(node, ("t", 0))
    waiting = asyncio.ensure_future(end(node, producer))
    await asyncio.sleep(0)
    assert state_of(node) is TxnState.PREPARE_COMMIT
    assert open_at(node, "t", 0) == 0
    await waiting
    await asyncio.sleep(0.1)
    assert open_at(node, "t", 0) == -1


@run_with(on_node, configs=CONFIGS)
async def test_failed_marker_is_retried(node: Node) -> None:
    await node.create("t", 1)
    producer = await begin(node, ("t", 0))
    topic = node.ctx.image.topics["t"]
    node.disk.inject(Fault("append", errno.ENOSPC, path="/t.", times=3))
    await end(node, producer)
    await asyncio.sleep(0.02)
    assert state_of(node) is TxnState.PREPARE_COMMIT
    await asyncio.sleep(5)
    assert state_of(node) is TxnState.COMPLETE_COMMIT
    assert open_at(node, "t", 0) == -1
    assert topic.name == "t"


@run_with(on_node, configs=CONFIGS)
async def test_deleted_partition_does_not_delay_the_end(node: Node) -> None:
    await node.create("t", 1)
    await node.create("u", 1)
    producer = await begin(node, ("t", 0), ("u", 0))
    await node.ctx.reached(await topics.delete_topic(node.ctx.admin.store, "u"))
    await end(node, producer)
    await asyncio.sleep(0.1)
    assert state_of(node) is TxnState.COMPLETE_COMMIT


@run_with(on_node, configs=CONFIGS)
async def test_pending_markers_are_written_after_a_reload(node: Node) -> None:
    await node.create("t", 1)
    producer = await begin(node, ("t", 0))
    node.disk.inject(Fault("append", errno.ENOSPC, path="/t.", times=1))
    await end(node, producer)
    runtime = node.ctx.transaction.txns.host.runtime_of("tx")
    runtime.discard("to see what is still owed")
    await asyncio.sleep(3)
    assert state_of(node) is TxnState.COMPLETE_COMMIT
    assert open_at(node, "t", 0) == -1


@run_with(on_node, configs=CONFIGS)
async def test_marker_breaks_the_guards_of_its_partition(node: Node) -> None:
    await node.create("t", 1)
    producer = await begin(node, ("t", 0))
    guard = node.ctx.transaction.txns.guards.set(("t", 0, producer[0]))
    await end(node, producer)
    await asyncio.sleep(0.1)
    assert guard.is_broken


@run_with(on_node, configs=CONFIGS)
async def test_stale_marker_is_refused_by_the_log(node: Node) -> None:
    await node.create("t", 1)
    producer = await begin(node, ("t", 0))
    told: list[ErrorCode] = []
    stale = PartitionMarker(producer[0], producer[1], True, 0, 2)
    node.ctx.transaction.txns.markers.write(stale, "t", 0, told.append)
    assert told == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert open_at(node, "t", 0) == 0


@run_with(on_node, configs=CONFIGS)
async def test_marker_for_an_unknown_partition_is_refused(node: Node) -> None:
    told: list[ErrorCode] = []
    marker = PartitionMarker(1, 1, True, 0, 2)
    for topic in ("nowhere", "__consumer_offsets"):
        node.ctx.transaction.txns.markers.write(marker, topic, 0, told.append)
    assert told == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
