"""Shared helpers of the replication tests: a leader's node and simulated followers."""

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.broker.api.data.fetch import fetch
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchPartitionData,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.wire.records import Record, batches, encode, read_header
from tests.unit.broker.api.harness import Node, Pending

VERSION = 18
EPOCH = 3
"""The leader epoch of every partition here."""
NO_HIGH_WATERMARK = 2**63 - 1


async def replicate(
    node: Node,
    name: str = "t",
    count: int = 1,
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    epoch: int = EPOCH,
    partition_epoch: int = 10,
    **configs: str,
) -> None:
    """A topic with replicas on nodes 1, 2 and 3, of which the first is real."""
    if name not in node.ctx.image.topics:
        await node.create(name, count, **configs)
    for other in (2, 3):
        if other not in node.ctx.image.brokers:
            broker = BrokerRecord(other, f"host{other}", 9092, epoch=100 + other, rack=f"r{other}")
            await node.put(store_keys.broker_key(other), broker)
    record = PartitionRecord((1, 2, 3), leader, isr, epoch, partition_epoch)
    for index in range(count):
        await node.put(store_keys.partition_key(node.ctx.image.topics[name].id, index), record)


def led(node: Node, name: str = "t", index: int = 0) -> Partition:
    partition = node.ctx.partitions.get(name, index)
    assert partition is not None
    return partition


def append(node: Node, size: int = 10, name: str = "t", index: int = 0) -> int:
    """One batch; the offset after it."""
    view = memoryview(encode([Record(0, 1000, None, bytes(size), ())]))
    partition = led(node, name, index)
    return partition.append(view, read_header(view), node.ctx.clock.now_ms()).last_offset + 1


async def synced(node: Node, name: str = "t", index: int = 0) -> None:
    log = led(node, name, index).log
    while log.durable_offset < log.end_offset:
        await asyncio.sleep(0.001)


class Copier:
    """A follower: asks as one would, and keeps nothing."""

    def __init__(self, node: Node, node_id: int = 2) -> None:
        self.node = node
        self.id = node_id
        self.session_id = 0
        self.session_epoch = 0

    def part(self, offset: int, index: int = 0, **more: Any) -> FetchPartition:
        fields = {
            "current_leader_epoch": EPOCH,
            "last_fetched_epoch": -1,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 20,
            "high_watermark": NO_HIGH_WATERMARK,
            **more,
        }
        return FetchPartition(partition=index, fetch_offset=offset, **fields)

    def request(
        self,
        *parts: FetchPartition,
        name: str = "t",
        forgotten: Iterable[int] = (),
        epoch: int | None = None,
        **more: Any,
    ) -> FetchRequest:
        topic_id = self.node.ctx.image.topics[name].id
        gone = [FetchForgottenTopic(topic_id=topic_id, partitions=list(forgotten))]
        fields = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, **more}
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=list(parts))] if parts else [],
            forgotten_topics_data=gone if forgotten else [],
            replica_state=FetchReplicaState(
                replica_id=self.id, replica_epoch=100 + self.id if epoch is None else epoch
            ),
            **fields,
        )

    async def send(self, *parts: FetchPartition, **more: Any) -> Pending:
        request = self.request(*parts, **more)
        if self.session_epoch > 0:
            self.session_epoch += 1
        return await self.node.send(fetch, VERSION, request)

    async def ask(self, *parts: FetchPartition, **more: Any) -> FetchResponse:
        response = await (await self.send(*parts, **more)).reply()
        assert isinstance(response, FetchResponse)
        return response

    async def open(self, *parts: FetchPartition, **more: Any) -> FetchResponse:
        """A full fetch that is answered at once and begins a session."""
        self.session_id = self.session_epoch = 0
        response = await self.ask(*parts, max_wait_ms=0, **more)
        self.session_id, self.session_epoch = response.session_id, 1
        return response


def rows(response: FetchResponse) -> list[FetchPartitionData]:
    return [row for topic in response.responses for row in topic.partitions]


def offsets(row: FetchPartitionData) -> list[int]:
    assert isinstance(row.records, memoryview)
    return [header.base_offset for _, header in batches(row.records)]
