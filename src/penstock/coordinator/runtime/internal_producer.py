"""Producer for internal use: appends batches at their partition's leader, here or on another node.

For the broker's own writers (dead letters, the gateway): they choose the partition of a batch,
whichever node leads it. An append is answered when it is committed. Nothing is retried here: only
the writer knows whether a retry is safe.

Elsewhere: a topic's rules for batches (`broker.api.data.produce` checks batches from clients and
from other nodes), permissions.
"""

import asyncio
from collections.abc import Sequence

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.errors import code_of
from penstock.client.metadata import TopicPartition
from penstock.client.producer.produce_request import produce_request
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from penstock.wire.records import read_header

TIMEOUT_MS = 15_000


class InternalProducer:
    """Appends to any partition of the cluster."""

    def __init__(self, around: HostContext, channel: str) -> None:
        """`channel` names the connections to other nodes that these appends share; see
        `cluster.replication.peer_connections`."""
        self._around = around
        self._channel = channel

    async def append(self, topic: TopicImage, index: int, batch: memoryview) -> int:
        """Returns the batch's base offset, once committed; raises Refused, PeerError, OSError.

        If another node leads, `batch` must be one that a client may send.
        """
        leader = topic.partitions[index].leader
        if leader == self._around.peers.node_id:
            partition = self._around.partitions.get(topic.name, index)
            if partition is None:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return await self._append(partition, batch)
        for row in await self.send(leader, topic, [(index, batch)]):
            code = code_of(row.error_code)
            if code is not ErrorCode.NONE:
                raise Refused(code, row.error_message)
            return row.base_offset
        raise PeerError("the produce response has no answer for the partition")

    async def send(
        self,
        leader: int,
        topic: TopicImage,
        batches: Sequence[tuple[int, memoryview]],
        timeout_ms: int = TIMEOUT_MS,
    ) -> list[PartitionProduceResponse]:
        """Sends batches to another node; returns one answer for each partition of the topic."""
        request = request_of(topic, batches, timeout_ms)
        response = await self._around.peers.ask(
            leader, request, ProduceResponse, channel=self._channel, timeout_ms=2 * timeout_ms
        )
        return [row for topic in response.responses for row in topic.partition_responses]

    async def _append(self, partition: Partition, batch: memoryview) -> int:
        if self._around.partitions.write_refusal is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self._around.partitions.write_refusal)
        appended = partition.append(batch, read_header(batch), self._around.time.now_ms())
        waiting = _Waiting()
        if not partition.when_committed(appended.last_offset + 1, waiting, None):
            code = await waiting.code
            if code is not ErrorCode.NONE:
                raise Refused(code)
        return appended.base_offset


def request_of(
    topic: TopicImage, batches: Sequence[tuple[int, memoryview]], timeout_ms: int = TIMEOUT_MS
) -> ProduceRequest:
    """Builds a request with batches of one topic, to be answered when they are committed."""
    return produce_request(
        [(TopicPartition(topic.name, index), batch) for index, batch in batches],
        timeout_ms=timeout_ms,
        topic_id_of=lambda _: topic.id,
    )


class _Waiting:
    """Waits until an append is committed."""

    def __init__(self) -> None:
        self.code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def committed(self, row: object, code: ErrorCode) -> None:
        if not self.code.done():
            self.code.set_result(code)
