"""A coordinator on another node is asked about transactions: in batches, and with patience."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata import store_keys
from penstock.state.transactions.add_partitions import refused_result, result_of
from penstock.state.transactions.records import ProducerEpoch
from penstock.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.client.model import CLOSE, ModelBroker

CONFIGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
PRODUCER = ProducerEpoch(5, 1)


class Other(ModelBroker):
    """Node 2, which coordinates every transaction."""

    def __init__(self) -> None:
        super().__init__(2, "node-2")
        self.codes: dict[str, ErrorCode] = {}
        self.answers[AddPartitionsToTxnRequest] = self.add

    def add(self, request: AddPartitionsToTxnRequest) -> Any:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                refused_result(row, self.codes[row.transactional_id])
                if row.transactional_id in self.codes
                else result_of(row, {("t", 9): ErrorCode.INVALID_TXN_STATE})
                for row in request.transactions
            ]
        )

    @property
    def requests(self) -> list[AddPartitionsToTxnRequest]:
        return [one for one in self.seen if isinstance(one, AddPartitionsToTxnRequest)]


def beside(test: Callable[[Node, Other], Awaitable[None]]) -> None:
    async def main(node: Node) -> None:
        other = Other()
        await other.start()
        await node.put(
            store_keys.broker_key(2), store_keys.BrokerRecord(2, other.host, other.port, epoch=1)
        )
        await node.ctx.transaction.txns.ensure()
        topic = node.ctx.image.topics["__transaction_state"]
        record = store_keys.PartitionRecord((2,), 2, (2,), leader_epoch=1, partition_epoch=1)
        await node.put(store_keys.partition_key(topic.id, 0), record)
        await test(node, other)
        await node.around.peers.close()

    on_node(main, configs=CONFIGS)


def enter(
    node: Node, name: str, *indexes: int, adds: bool = True
) -> Awaitable[dict[tuple[str, int], Refused]]:
    places = [("t", index) for index in indexes]
    return asyncio.ensure_future(node.ctx.transaction.txns.enter(name, PRODUCER, places, adds))


@run_with(beside)
async def test_verifications_of_many_producers_are_sent_together(node: Node, other: Other) -> None:
    found = await asyncio.gather(
        enter(node, "a", 0, 1), enter(node, "b", 2, adds=False), enter(node, "a", 3)
    )
    assert not any(found)
    (request,) = other.requests
    rows = request.transactions
    assert [row.transactional_id for row in rows] == ["a", "b", "a"]
    assert [row.verify_only for row in rows] == [False, True, False]
    assert list(rows[0].topics[0].partitions) == [0, 1]
    assert (rows[0].producer_id, rows[0].producer_epoch) == (5, 1)


@run_with(beside)
async def test_each_producer_gets_the_refusals_of_its_partitions(node: Node, other: Other) -> None:
    other.codes["fenced"] = ErrorCode.PRODUCER_FENCED
    good, fenced = await asyncio.gather(enter(node, "a", 8, 9), enter(node, "fenced", 1, 2))
    assert {place: refused.code for place, refused in good.items()} == {
        ("t", 9): ErrorCode.INVALID_TXN_STATE
    }
    assert {refused.code for refused in fenced.values()} == {ErrorCode.PRODUCER_FENCED}
    assert sorted(fenced) == [("t", 1), ("t", 2)]


@pytest.mark.parametrize("trouble", ["closes", "too few", "refuses", "of another", "gone"])
@run_with(beside)
async def test_unreachable_coordinator_verifies_nothing(
    node: Node, other: Other, *, trouble: str
) -> None:
    answers: dict[str, Any] = {
        "closes": lambda _: CLOSE,
        "too few": lambda _: AddPartitionsToTxnResponse(results_by_transaction=[]),
        "refuses": lambda _: AddPartitionsToTxnResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        ),
        "of another": lambda request: AddPartitionsToTxnResponse(
            results_by_transaction=[result_of(row, {}) for row in _renamed(request.transactions)]
        ),
    }
    if trouble == "gone":
        other.stop()
    else:
        other.answers[AddPartitionsToTxnRequest] = answers[trouble]
    found = await enter(node, "a", 0)
    assert found["t", 0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def _renamed(rows: Any) -> Any:
    for row in rows:
        row.transactional_id = "another"
    return rows


@run_with(beside)
async def test_partition_without_a_leader_has_no_coordinator(node: Node, other: Other) -> None:
    topic = node.ctx.image.topics["__transaction_state"]
    record = store_keys.PartitionRecord((2,), -1, (2,), leader_epoch=2, partition_epoch=2)
    await node.put(store_keys.partition_key(topic.id, 0), record)
    found = await enter(node, "a", 0)
    assert found["t", 0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not other.requests
