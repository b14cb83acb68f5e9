"""Transactions are listed, distinguished from hanging ones, and aborted completely."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.transactions import (
    TxnListing,
    coordinated,
    describe_transaction,
    fence,
    hanging_transactions,
    list_transactions,
    open_transactions,
    write_abort,
)
from penstock.client.cluster import Cluster
from penstock.client.errors import ConnectionLost
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.transactions import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    ProducerState,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.group_answers import Committing
from tests.unit.client.model import CLOSE, ModelBroker, with_model

LIST = 66
ONE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@dataclass
class Transacting:
    """Transactions by id (producer id, partitions), and what partitions have open."""

    broker: ModelBroker
    known: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    opened: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Per partition of `t`: producer ids with the first offset, -1 for none open."""

    def __post_init__(self) -> None:
        Committing(self.broker)
        self.broker.create("t", 2)
        self.broker.answers[ListTransactionsRequest] = self.list
        self.broker.answers[DescribeTransactionsRequest] = self.describe
        self.broker.answers[DescribeProducersRequest] = self.producers

    def list(self, request: ListTransactionsRequest) -> Any:
        rows = [
            ListTransactionsTransactionState(
                transactional_id=name, producer_id=producer_id, transaction_state="Ongoing"
            )
            for name, (producer_id, _) in self.known.items()
            if not request.producer_id_filters or producer_id in request.producer_id_filters
        ]
        return ListTransactionsResponse(error_code=0, transaction_states=rows)

    def describe(self, request: DescribeTransactionsRequest) -> Any:
        (name,) = request.transactional_ids
        producer_id, partitions = self.known.get(name, (-1, []))
        code = ErrorCode.NONE if name in self.known else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        topic = DescribeTransactionsTopicData(topic="t", partitions=partitions)
        row = DescribeTransactionsTransactionState(
            error_code=int(code),
            transactional_id=name,
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=5_000,
            producer_id=producer_id,
            producer_epoch=3,
            topics=[topic] if partitions else [],
        )
        return DescribeTransactionsResponse(transaction_states=[row])

    def producers(self, request: DescribeProducersRequest) -> Any:
        (topic,) = request.topics
        rows = [
            DescribeProducersPartitionResponse(
                partition_index=index,
                error_code=0,
                active_producers=[
                    ProducerState(
                        producer_id=producer_id,
                        producer_epoch=3,
                        last_timestamp=10_000,
                        coordinator_epoch=-1,
                        current_txn_start_offset=offset,
                    )
                    for producer_id, offset in self.opened.get(index, [])
                ],
            )
            for index in topic.partition_indexes
        ]
        answer = DescribeProducersTopicResponse(name=topic.name, partitions=rows)
        return DescribeProducersResponse(topics=[answer])


def marked(code: ErrorCode) -> WriteTxnMarkersResponse:
    row = WritableTxnMarkerPartitionResult(partition_index=0, error_code=int(code))
    topic = WritableTxnMarkerTopicResult(name="t", partitions=[row])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])


@run_with(with_model)
async def test_transactions_are_listed_by_id_with_their_coordinator(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Transacting(broker, {"z": (2, [0]), "a": (1, [])})
    assert await list_transactions(cluster) == [
        TxnListing("a", 1, "Ongoing", 1),
        TxnListing("z", 2, "Ongoing", 1),
    ]
    assert [t.transactional_id for t in await list_transactions(cluster, producer_ids=[2])] == ["z"]


@run_with(with_model)
async def test_broker_without_the_duration_filter_is_refused(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Transacting(broker, {"a": (1, [])})
    broker.versions[LIST] = (0, 0)
    assert len(await list_transactions(cluster)) == 1
    with pytest.raises(Refused, match="too old to list transactions by their age"):
        await list_transactions(cluster, older_ms=1_000)
    assert broker.count(ListTransactionsRequest) == 1


@run_with(with_model)
async def test_transaction_is_described_and_an_unknown_one_refused(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Transacting(broker, {"a": (7, [1, 0]), "idle": (8, [])})
    info = await describe_transaction(cluster, "a")
    assert (info.producer_id, info.producer_epoch, info.started_ms) == (7, 3, 5_000)
    assert info.partitions == (ONE, OTHER)
    # A broker may keep the start of the transaction before.
    assert (await describe_transaction(cluster, "idle")).started_ms is None
    with pytest.raises(Refused, match="transactional id 'b' does not exist"):
        await describe_transaction(cluster, "b")


@run_with(with_model)
async def test_only_transactions_without_a_coordinator_are_hanging(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    # Producer 7 is known with partition 0 only, 8 is not known, 9 has nothing open.
    Transacting(broker, {"a": (7, [0])}, {0: [(7, 40), (9, -1)], 1: [(8, 60), (7, 50)]})
    opened = await open_transactions(cluster, [OTHER, ONE])
    assert [(t.where, t.producer_id, t.start_offset) for t in opened] == [
        (ONE, 7, 40),
        (OTHER, 7, 50),
        (OTHER, 8, 60),
    ]
    assert await coordinated(cluster, opened) == {opened[0]: "a"}
    places = [ONE, OTHER]
    hanging = await hanging_transactions(cluster, places, now_ms=20_000, older_ms=9_999)
    assert hanging == opened[1:]
    # Written a moment ago: it may just be beginning or ending.
    assert not await hanging_transactions(cluster, places, now_ms=20_000, older_ms=10_000)


@run_with(with_model)
async def test_fencing_waits_until_the_abort_is_complete(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Transacting(broker, {"a": (7, [0])})
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    broker.answers[InitProducerIdRequest] = lambda request: InitProducerIdResponse(
        error_code=int(codes.pop(0)), producer_id=7, producer_epoch=4
    )
    await fence(cluster, await describe_transaction(cluster, "a"))
    assert not codes
    asked = [r for r in broker.seen if isinstance(r, InitProducerIdRequest)]
    assert {(r.transactional_id, r.transaction_timeout_ms, r.producer_id) for r in asked} == {
        ("a", 60_000, -1)
    }


@run_with(with_model)
async def test_abort_marker_has_the_producer_state_of_the_partition(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Transacting(broker, {}, {0: [(7, 40)]})
    (txn,) = await open_transactions(cluster, [ONE])
    broker.answers[WriteTxnMarkersRequest] = lambda request: marked(ErrorCode.NONE)
    await write_abort(cluster, txn)
    (request,) = [r for r in broker.seen if isinstance(r, WriteTxnMarkersRequest)]
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch) == (7, 3)
    assert not marker.transaction_result
    assert marker.coordinator_epoch == 0
    assert [(t.name, list(t.partition_indexes)) for t in marker.topics] == [("t", [0])]


@run_with(with_model)
async def test_refused_marker_is_reported_and_a_lost_one_not_repeated(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    Transacting(broker, {}, {0: [(7, 40)]})
    (txn,) = await open_transactions(cluster, [ONE])
    answers: list[Any] = [marked(ErrorCode.INVALID_PRODUCER_EPOCH), CLOSE]
    broker.answers[WriteTxnMarkersRequest] = lambda request: answers.pop(0)
    with pytest.raises(Refused, match=r"t\[0\]: a newer producer has fenced it"):
        await write_abort(cluster, txn)
    with pytest.raises(ConnectionLost):
        await write_abort(cluster, txn)
    assert broker.count(WriteTxnMarkersRequest) == 2
