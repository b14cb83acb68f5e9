"""Transaction markers for partitions that other nodes lead: WriteTxnMarkers (KIP-98).

Markers of many transactions to one node share a request (`batched_rpc`). Every marker gets its
result: the code that the other node answered, or, if the node could not be asked or its answer is
unknown, a code that has the marker sent again: writing it twice changes nothing.

A leader that does not know the topic may only be behind. A partition is gone only when it is gone
from this node's own image.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.client.errors import code_of
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.coordinator.runtime.batched_rpc import BatchedRpc
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TIMEOUT_MS = 15_000

Told: TypeAlias = Callable[[ErrorCode], None]
Place: TypeAlias = tuple[int, str, int]
"""Producer id, topic and partition, which identify an answer."""


class PartitionMarker(NamedTuple):
    """End of one transaction in one partition."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


@dataclass(frozen=True, slots=True)
class MarkerRequest:
    """One marker for one partition of another node."""

    marker: PartitionMarker
    topic: str
    index: int
    told: Told


class RemoteMarkers:
    """Markers in flight to other nodes."""

    def __init__(self, around: HostContext) -> None:
        self._around = around
        self._rpc: BatchedRpc[MarkerRequest] = BatchedRpc("markers", self._deliver)

    async def run(self) -> None:
        """Sends markers until cancelled."""
        await self._rpc.run()

    def send(
        self, node_id: int, marker: PartitionMarker, topic: str, index: int, told: Told
    ) -> None:
        """Sends a marker; calls `told` once it is committed there, or with the reason why it is
        not."""
        if not self._rpc.send(node_id, MarkerRequest(marker, topic, index, told)):
            told(ErrorCode.REQUEST_TIMED_OUT)

    async def _deliver(self, node_id: int, channel: str, requests: list[MarkerRequest]) -> None:
        answers: dict[Place, ErrorCode] = {}
        try:
            response = await self._around.peers.ask(
                node_id,
                request_of(requests),
                WriteTxnMarkersResponse,
                channel=channel,
                timeout_ms=TIMEOUT_MS,
            )
            answers = answers_of(response)
        except PEER_ERRORS:
            pass  # All of them are retried.
        for request in requests:
            place = (request.marker.producer_id, request.topic, request.index)
            request.told(self._meaning(request, answers.get(place, ErrorCode.NETWORK_EXCEPTION)))

    def _meaning(self, request: MarkerRequest, code: ErrorCode) -> ErrorCode:
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return code
        image = self._around.watcher.image
        is_gone = image.partition(request.topic, request.index) is None
        return code if is_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER


def request_of(requests: list[MarkerRequest]) -> WriteTxnMarkersRequest:
    """Builds the request: one row for each transaction, with all its partitions on that node."""
    rows: dict[PartitionMarker, dict[str, list[int]]] = {}
    for request in requests:
        rows.setdefault(request.marker, {}).setdefault(request.topic, []).append(request.index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, topics in rows.items()
        ]
    )


def answers_of(response: WriteTxnMarkersResponse) -> dict[Place, ErrorCode]:
    return {
        (row.producer_id, topic.name, cell.partition_index): code_of(cell.error_code)
        for row in response.markers
        for topic in row.topics
        for cell in topic.partitions
    }
