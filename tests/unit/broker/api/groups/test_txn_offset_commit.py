"""Positions inside transactions: they count when the transaction commits, or never."""

import asyncio
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.groups.offsets import offset_fetch, txn_offset_commit
from penstock.broker.api.groups.transactions import add_offsets_to_txn
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.messages.offset_commit import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.transacting import CONFIGS, NEW, OLD, Transacting, ready

VERSIONS = pytest.mark.parametrize("versions", [OLD, NEW], ids=["v1", "v2"])


async def add_offsets(producer: Transacting) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
    )
    code: int = (await producer.node.ask(add_offsets_to_txn, 3, request)).error_code
    return code


async def commit(producer: Transacting, offset: int, *places: tuple[str, int]) -> dict[Any, int]:
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
            for name, index in places or [("t", 0)]
        ],
    )
    version = 5 if producer.versions is NEW else 4
    answer = await producer.node.ask(txn_offset_commit, version, request)
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


async def position(node: Node, *, stable: bool = False) -> tuple[int, int]:
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id="g", topics=wanted)
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    answer = await node.ask(offset_fetch, 9, request)
    row = answer.groups[0].topics[0].partitions[0]
    return row.committed_offset, row.error_code


@VERSIONS
@pytest.mark.parametrize("committed", [True, False])
@run_with(on_node, configs=CONFIGS)
async def test_offsets_commit_or_abort_with_their_transaction(
    node: Node, *, versions: dict[str, int], committed: bool
) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, versions).begin()
    if versions is OLD:
        assert await add_offsets(producer) == ErrorCode.NONE
    assert await commit(producer, 7) == {("t", 0): ErrorCode.NONE}
    assert await position(node) == (-1, ErrorCode.NONE)
    assert await position(node, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert await producer.end(committed) == ErrorCode.NONE
    await asyncio.sleep(0.1)
    expected = 7 if committed else -1
    assert await position(node, stable=True) == (expected, ErrorCode.NONE)


@run_with(on_node, configs=CONFIGS)
async def test_old_protocol_producer_must_add_the_group_first(node: Node) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, OLD).begin()
    assert await commit(producer, 7) == {("t", 0): ErrorCode.TRANSACTION_ABORTABLE}
    assert await position(node, stable=True) == (-1, ErrorCode.NONE)


@VERSIONS
@run_with(on_node, configs=CONFIGS)
async def test_late_offset_commit_leaves_nothing_unstable(
    node: Node, *, versions: dict[str, int]
) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, versions).begin()
    if versions is OLD:
        await add_offsets(producer)
    await commit(producer, 7)
    stale = Transacting(node, versions, "tx", producer.producer_id, producer.epoch)
    assert await producer.end() == ErrorCode.NONE
    await asyncio.sleep(0.1)
    (code,) = (await commit(stale, 9)).values()
    assert code != ErrorCode.NONE
    assert await position(node, stable=True) == (7, ErrorCode.NONE)


@pytest.mark.parametrize("seed", range(30))
@VERSIONS
@run_with(on_node, configs=CONFIGS, fixtures=["seed"])
async def test_racing_requests_leave_no_unstable_offset(
    node: Node, *, versions: dict[str, int], seed: int
) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, versions).begin()
    if versions is OLD:
        await add_offsets(producer)
    same = Transacting(node, versions, "tx", producer.producer_id, producer.epoch)
    racing = asyncio.ensure_future(commit(same, 9))
    await asyncio.sleep(0.0004 * (seed % 12))
    ended = await producer.end()
    (code,) = (await racing).values()
    await asyncio.sleep(0.5)
    offset, stability = await position(node, stable=True)
    if ended == ErrorCode.NONE:
        assert stability == ErrorCode.NONE
        assert offset == (9 if code == ErrorCode.NONE else -1)
    else:
        # The end found nothing to commit yet; the transaction is open.
        assert ended == ErrorCode.INVALID_TXN_STATE


@run_with(on_node, configs=CONFIGS)
async def test_permissions_and_missing_partitions_are_errors_in_rows(node: Node) -> None:
    await ready(node, t=1, secret=1)
    producer = await Transacting(node, NEW).begin()
    node.rights.deny(Operation.READ, ResourceType.TOPIC, "secret")
    places = [("t", 0), ("t", 5), ("secret", 0), ("nowhere", 0)]
    assert await commit(producer, 1, *places) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("secret", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    node.rights.deny(Operation.READ, ResourceType.GROUP, "g")
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert await commit(producer, 1) == {("t", 0): refused}
    node.rights.deny(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await commit(producer, 1) == {("t", 0): refused}
