"""Transaction APIs: permissions, rows, markers, and answers for tools."""

import asyncio
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api.groups.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
    write_txn_markers,
)
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.transacting import CONFIGS, NEW, OLD, Transacting, open_at, ready


@run_with(on_node, configs=CONFIGS)
async def test_invalid_partition_refuses_the_whole_addition(node: Node) -> None:
    await ready(node, t=1, secret=1)
    producer = await Transacting(node, OLD).begin()
    assert await producer.add("t", 0, 5) == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    node.rights.deny(Operation.WRITE, ResourceType.TOPIC, "secret")
    assert await producer.add("secret", 0) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert await producer.end() == ErrorCode.INVALID_TXN_STATE, "nothing was begun"


@run_with(on_node, configs=CONFIGS)
async def test_transactional_id_requires_the_write_permission(node: Node) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, OLD).begin()
    node.rights.deny(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await producer.add("t", 0) == {0: refused}
    assert await producer.end() == refused
    request = AddOffsetsToTxnRequest(
        transactional_id="tx", producer_id=1, producer_epoch=0, group_id="g"
    )
    assert (await node.ask(add_offsets_to_txn, 4, request)).error_code == refused
    node.rights.deny(Operation.READ, ResourceType.GROUP, "g")
    request.transactional_id = "other"
    answer = await node.ask(add_offsets_to_txn, 4, request)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@run_with(on_node, configs=CONFIGS)
async def test_brokers_verify_several_transactions_at_once(node: Node) -> None:
    await ready(node, t=2)
    producer = await Transacting(node, OLD).begin()
    await producer.add("t", 0)

    def asked(name: str, *indexes: int) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
        )

    request = AddPartitionsToTxnRequest(transactions=[asked("tx", 0, 1), asked("other", 0)])
    answer = await node.ask(add_partitions_to_txn, 5, request)
    found = {
        result.transactional_id: [
            row.partition_error_code
            for topic in result.topic_results
            for row in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    }
    assert found == {
        "tx": [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE],
        "other": [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
    }
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    answer = await node.ask(add_partitions_to_txn, 5, request)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@run_with(on_node, configs=CONFIGS)
async def test_next_transaction_waits_for_the_previous_markers(node: Node) -> None:
    """A client pauses after CONCURRENT_TRANSACTIONS, so the error is delayed."""

    await ready(node, t=1)
    producer = await Transacting(node, OLD).begin()
    for _ in range(10):
        assert await producer.add("t", 0) == {0: ErrorCode.NONE}
        assert await producer.send("t") == ErrorCode.NONE
        assert await producer.end() == ErrorCode.NONE


@run_with(on_node, configs=CONFIGS)
async def test_repeated_end_is_answered_alike(node: Node) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, NEW).begin()
    await producer.send("t")
    request = EndTxnRequest(
        transactional_id="tx",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    first = await node.ask(end_txn, 5, request)
    again = await node.ask(end_txn, 5, request)
    assert first.error_code == again.error_code == ErrorCode.NONE
    assert first.producer_epoch == again.producer_epoch == producer.epoch + 1
    request.committed = False
    other = await node.ask(end_txn, 5, request)
    assert other.error_code == ErrorCode.INVALID_TXN_STATE


@run_with(on_node, configs=CONFIGS)
async def test_markers_of_another_coordinator_are_written(node: Node) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, NEW).begin()
    await producer.send("t")
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch + 1,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9]),
            WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[0]),
        ],
        coordinator_epoch=0,
        transaction_version=2,
    )
    request = WriteTxnMarkersRequest(markers=[marker])

    def codes(answer: Any) -> list[list[int]]:
        (result,) = answer.markers
        return [[row.error_code for row in topic.partitions] for topic in result.topics]

    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await node.ask(write_txn_markers, 2, request)
    assert codes(answer) == [[ErrorCode.NONE, missing], [ErrorCode.NONE]]
    assert open_at(node, "t") == -1
    node.rights.deny(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    answer = await node.ask(write_txn_markers, 2, request)
    assert codes(answer) == [[refused, refused], [refused]]


@run_with(on_node, configs=CONFIGS)
async def test_transactions_are_listed_and_described(node: Node) -> None:
    await ready(node, t=1, secret=1)
    producer = await Transacting(node, NEW, "open").begin()
    await producer.send("t")
    await producer.send("secret")
    await Transacting(node, NEW, "idle").begin()

    async def listed(**filters: Any) -> list[str]:
        answer = await node.ask(list_transactions, 2, ListTransactionsRequest(**filters))
        assert answer.error_code == ErrorCode.NONE
        return sorted(row.transactional_id for row in answer.transaction_states)

    assert await listed() == ["idle", "open"]
    assert await listed(state_filters=["Ongoing"]) == ["open"]
    assert await listed(producer_id_filters=[producer.producer_id]) == ["open"]
    assert await listed(transactional_id_pattern="id.*") == ["idle"]
    wrong = ListTransactionsRequest(transactional_id_pattern="(")
    answer = await node.ask(list_transactions, 2, wrong)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    answer = await node.ask(
        list_transactions, 2, ListTransactionsRequest(state_filters=["Nonsense"])
    )
    assert list(answer.unknown_state_filters) == ["Nonsense"]
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    node.rights.deny(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "idle")
    request = DescribeTransactionsRequest(transactional_ids=["open", "idle", "unknown"])
    rows = (await node.ask(describe_transactions, 0, request)).transaction_states
    known, hidden, missing = rows
    assert (known.transaction_state, known.producer_id) == ("Ongoing", producer.producer_id)
    assert [topic.topic for topic in known.topics] == ["t"], "what the caller may see of it"
    assert hidden.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert await listed() == ["open"]


@run_with(on_node, configs=CONFIGS)
async def test_transaction_that_exceeds_its_timeout_is_aborted(node: Node) -> None:
    await ready(node, t=1)
    producer = await Transacting(node, NEW).begin()
    await producer.send("t")
    assert node.ctx.transaction.txns.open_count == 1
    await asyncio.sleep(59)
    assert open_at(node, "t") == 0
    await asyncio.sleep(2)
    assert open_at(node, "t") == -1
    assert node.ctx.transaction.txns.open_count == 0
    assert await producer.send("t") == ErrorCode.INVALID_PRODUCER_EPOCH
