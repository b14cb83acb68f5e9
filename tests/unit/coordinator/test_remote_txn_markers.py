"""Markers for partitions that other nodes lead: one request for many, and a fate for each."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata import store_keys
from penstock.coordinator.txn_markers import PartitionMarker
from penstock.wire.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.client.model import CLOSE, ModelBroker

CONFIGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
MARKER = PartitionMarker(7, 1, True, 4, 2)


class Other(ModelBroker):
    """Node 2, which leads topic "far" and answers marker requests with chosen codes."""

    def __init__(self) -> None:
        super().__init__(2, "node-2")
        self.codes: dict[int, ErrorCode] = {}
        self.answers[WriteTxnMarkersRequest] = self.write

    def write(self, request: WriteTxnMarkersRequest) -> Any:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self.codes.get(index, ErrorCode.NONE),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    @property
    def requests(self) -> list[WriteTxnMarkersRequest]:
        return [one for one in self.seen if isinstance(one, WriteTxnMarkersRequest)]


def beside(test: Callable[[Node, Other], Awaitable[None]]) -> None:
    """Runs a test on node 1, with node 2 leading the three partitions of "far"."""

    async def main(node: Node) -> None:
        other = Other()
        await other.start()
        await node.put(
            store_keys.broker_key(2), store_keys.BrokerRecord(2, other.host, other.port, epoch=1)
        )
        await node.create("far", 3)
        topic = node.ctx.image.topics["far"]
        for index in range(3):
            record = store_keys.PartitionRecord((2,), 2, (2,), leader_epoch=1, partition_epoch=1)
            await node.put(store_keys.partition_key(topic.id, index), record)
        await test(node, other)
        await node.around.peers.close()

    on_node(main, configs=CONFIGS)


def write(
    node: Node, index: int, marker: PartitionMarker = MARKER, topic: str = "far"
) -> list[ErrorCode]:
    told: list[ErrorCode] = []
    node.ctx.transaction.txns.markers.write_anywhere(marker, topic, index, told.append)
    return told


@run_with(beside)
async def test_markers_of_many_transactions_are_sent_together(node: Node, other: Other) -> None:
    told = [write(node, index) for index in range(3)]
    told += [write(node, 1, MARKER._replace(producer_id=8, committed=False))]
    await asyncio.sleep(1)
    assert told == [[ErrorCode.NONE]] * 4
    (request,) = other.requests
    first, second = request.markers
    assert (first.producer_id, first.producer_epoch, first.coordinator_epoch) == (7, 1, 4)
    assert (first.transaction_result, second.transaction_result) == (True, False)
    assert list(first.topics[0].partition_indexes) == [0, 1, 2]
    assert first.transaction_version == 2


@run_with(beside)
async def test_each_marker_gets_its_own_result(node: Node, other: Other) -> None:
    other.codes = {1: ErrorCode.NOT_LEADER_OR_FOLLOWER, 2: ErrorCode.INVALID_PRODUCER_EPOCH}
    told = [write(node, index) for index in range(3)]
    await asyncio.sleep(1)
    assert told == [
        [ErrorCode.NONE],
        [ErrorCode.NOT_LEADER_OR_FOLLOWER],
        [ErrorCode.INVALID_PRODUCER_EPOCH],
    ]


@run_with(beside)
async def test_leader_unaware_of_the_topic_is_retriable(node: Node, other: Other) -> None:
    other.codes = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    told = write(node, 0)
    await asyncio.sleep(1)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "to be tried again"
    assert write(node, 9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "there is no such partition"


@pytest.mark.parametrize("trouble", ["closes", "says nothing of it", "gone"])
@run_with(beside)
async def test_unreachable_node_is_retriable(node: Node, other: Other, *, trouble: str) -> None:
    if trouble == "closes":
        other.answers[WriteTxnMarkersRequest] = lambda _: CLOSE
    elif trouble == "says nothing of it":
        empty = WriteTxnMarkersResponse(markers=[])
        other.answers[WriteTxnMarkersRequest] = lambda _: empty
    else:
        other.stop()
    told = write(node, 0)
    await asyncio.sleep(20)
    assert told == [ErrorCode.NETWORK_EXCEPTION]


@run_with(beside)
async def test_unregistered_leader_is_not_asked(node: Node, other: Other) -> None:
    topic = node.ctx.image.topics["far"]
    record = store_keys.PartitionRecord((5,), 5, (5,), leader_epoch=2, partition_epoch=2)
    await node.put(store_keys.partition_key(topic.id, 0), record)
    assert write(node, 0) == [ErrorCode.LEADER_NOT_AVAILABLE]
