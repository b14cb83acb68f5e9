"""Writes the markers that end transactions, and reports them to the transaction's shard.

A marker goes to a partition's log as a control batch, or to a group's shard, where it decides about
offsets pending in the transaction. If another node leads the partition, that node is asked to write
it (`WriteTxnMarkers`). A marker counts once it is committed there. A
marker that cannot be written yet (a partition offline, a leader away, a shard loading) is retried
until it can, or until the transaction is no longer coordinated here: another coordinator then
writes all of them again, which changes nothing where they are written already.

A partition that is gone needs no marker. One that has already seen a newer epoch has continued
without this one; that is reported as written too, and logged.

Transaction markers for partitions that other nodes lead: WriteTxnMarkers (KIP-98). Markers of
many transactions to one node share a request (`batched_rpc`). Every marker gets its result: the
code that the other node answered, or, if the node could not be asked or its answer is unknown, a
code that has the marker sent again: writing it twice changes nothing.

A leader that does not know the topic may only be behind. A partition is gone only when it is gone
from this node's own image.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.retry import Retry
from penstock.base.state_machine import Decision, Token
from penstock.client.errors import code_of
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.runtime.batched_rpc import BatchedRpc
from penstock.coordinator.runtime.internal_topics import OFFSETS
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.coordinator.runtime.shard_runtime import ShardRuntime
from penstock.coordinator.txn_verification import Guards
from penstock.state.groups.shard import GroupShard
from penstock.state.transactions.shard import TxnShard, WriteMarkers
from penstock.wire.control_batches import encode_marker
from penstock.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from penstock.wire.records import read_header

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


log = logging.getLogger("penstock.coordinator")

RETRY_SECONDS = (0.05, 5.0)
MOVED_ON = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

__all__ = ["MarkerWriter", "PartitionMarker", "Told"]


class MarkerWriter:
    """Ends transactions on this node's partitions and groups, and asks other nodes for theirs."""

    def __init__(self, around: HostContext, groups: GroupCoordinator, guards: Guards) -> None:
        self._around = around
        self.random = around.random
        self._groups = groups
        self._guards = guards
        self._remote = RemoteMarkers(around)

    async def run(self) -> None:
        """Sends markers to other nodes until cancelled."""
        await self._remote.run()

    # -- one marker -------------------------------------------------------------------------

    def write_anywhere(self, marker: PartitionMarker, topic: str, index: int, told: Told) -> None:
        """Writes a marker here, or has the partition's leader write it."""
        around = self._around
        record = around.watcher.image.partition(topic, index)
        if record is None or record.leader == around.peers.node_id:
            self.write(marker, topic, index, told)
        elif record.leader not in around.watcher.image.brokers:
            told(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            self._remote.send(record.leader, marker, topic, index, told)

    def write(self, marker: PartitionMarker, topic: str, index: int, told: Told) -> None:
        """Writes one marker here; calls `told` once it is committed, or with the reason why it
        cannot be."""
        self._guards.marked((topic, index, marker.producer_id), marker.producer_epoch)
        if topic == OFFSETS.name:
            self._write_to_group(marker, index, told)
            return
        partition = self._around.partitions.get(topic, index)
        if partition is None:
            is_known = self._around.watcher.image.partition(topic, index) is not None
            told(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if is_known
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            return
        self._write_to_log(marker, partition, told)

    def _write_to_log(self, marker: PartitionMarker, partition: Partition, told: Told) -> None:
        now_ms = self._around.time.now_ms()
        batch = memoryview(
            encode_marker(
                committed=marker.committed,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=now_ms,
            )
        )
        version = marker.transaction_version
        try:
            appended = partition.append(
                batch, read_header(batch), now_ms, transaction_version=version
            )
        except Refused as refused:
            told(refused.code)
            return
        except OSError:
            told(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if partition.when_committed(appended.last_offset + 1, self, told):
            told(ErrorCode.NONE)

    def committed(self, row: object, code: ErrorCode) -> None:
        assert callable(row)
        row(code)

    def _write_to_group(self, marker: PartitionMarker, index: int, told: Told) -> None:
        def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
            return shard.complete_transaction(
                marker.producer_id, marker.producer_epoch, marker.committed, token, now_ms
            )

        def answer(reply: object) -> None:
            told(reply.code if isinstance(reply, Refused) else ErrorCode.NONE)

        if self._around.watcher.image.partition(OFFSETS.name, index) is None:
            told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        try:
            self._groups.host.runtime(index).call(decide, answer)
        except Refused as refused:
            told(refused.code)

    # -- all markers of a transaction -------------------------------------------------------

    def end(self, runtime: ShardRuntime[TxnShard], write: WriteMarkers) -> None:
        """Writes all markers of one transaction, and notifies its shard when they are written."""
        _Ending(self, runtime, write).start()


class _Ending:
    """A transaction while its markers are being written."""

    def __init__(
        self, writer: MarkerWriter, runtime: ShardRuntime[TxnShard], write: WriteMarkers
    ) -> None:
        self._writer = writer
        self._runtime = runtime
        self._shard = runtime.shard
        self._write = write
        self._left = dict.fromkeys(write.partitions)
        self._asked: dict[tuple[str, int], None] = {}
        """Partitions whose answer is awaited."""
        self._retry: Retry | None = None
        """Created at the first failure."""
        self._is_retrying = False

    def start(self) -> None:
        for topic, index in tuple(self._left):
            if (topic, index) not in self._asked:
                self._send(topic, index)

    def _send(self, topic: str, index: int) -> None:
        write = self._write
        self._asked[topic, index] = None
        marker = PartitionMarker(
            write.producer_id,
            write.producer_epoch,
            write.committed,
            self._runtime.partition.leader_epoch,
            write.transaction_version,
        )
        self._writer.write_anywhere(
            marker, topic, index, lambda code: self._told(topic, index, code)
        )

    def _told(self, topic: str, index: int, code: ErrorCode) -> None:
        self._asked.pop((topic, index), None)
        if code in MOVED_ON:
            log.warning(
                "%s-%d needs no marker of producer %d, epoch %d, any more: %s",
                topic,
                index,
                self._write.producer_id,
                self._write.producer_epoch,
                code.name,
            )
        elif code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._retry_later()
            return
        self._left.pop((topic, index), None)
        if not self._left:
            self._report()

    def _retry_later(self) -> None:
        if self._is_retrying:
            return
        self._is_retrying = True
        self._retry = self._retry or Retry(self._writer.random, *RETRY_SECONDS)
        asyncio.get_running_loop().call_later(self._retry.next_s(), self._try_again)

    def _try_again(self) -> None:
        """Retries, unless the transaction has another coordinator now: that one writes all markers
        again."""
        self._is_retrying = False
        if self._runtime.shard is self._shard:
            self.start()

    def _report(self) -> None:
        write = self._write
        try:
            self._runtime.tell(
                lambda shard, now_ms: shard.marker_written(write, write.partitions, now_ms)
            )
        except Refused:
            log.info(
                "%s: its shard is loaded again, which writes its markers", write.transactional_id
            )
