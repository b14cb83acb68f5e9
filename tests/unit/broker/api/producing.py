"""Shared helpers of the Produce tests: batches, requests, and contents of a log."""

from typing import Any

from penstock.base.ids import TopicId
from penstock.broker.api.data.produce import produce
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import (
    Record,
    batches,
    decode,
    encode,
)
from tests.unit.broker.api.harness import Node

VERSION = 12
HOUR_MS = 3_600_000


def batch(*values: bytes, key: bytes | None = None, at_ms: int = -1, **options: Any) -> memoryview:
    records = [Record(0, at_ms, key, value, ()) for value in values or (b"value",)]
    return memoryview(encode(records, **options))


def request(
    *parts: tuple[str, int, memoryview | None],
    acks: int = -1,
    timeout_ms: int = 30_000,
    topic_id: TopicId | None = None,
) -> ProduceRequest:
    """Each part is a topic, a partition and its batch."""
    named = {"topic_id": topic_id} if topic_id is not None else {}
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=index, records=records)],
                **named,
            )
            for name, index, records in parts
        ],
    )


def rows(response: ProduceResponse) -> list[PartitionProduceResponse]:
    return [row for topic in response.responses for row in topic.partition_responses]


async def ask(
    node: Node, records: memoryview | None, topic: str = "t", version: int = VERSION, acks: int = -1
) -> PartitionProduceResponse:
    """The only row of a request with one batch."""
    response = await node.ask(produce, version, request((topic, 0, records), acks=acks))
    (row,) = rows(response)
    return row


def partition_of(node: Node, topic: str = "t", index: int = 0) -> Partition:
    partition = node.ctx.partitions.get(topic, index)
    assert partition is not None
    return partition


def stored(node: Node, topic: str = "t", index: int = 0) -> list[Any]:
    """Every batch in the log, decoded."""
    log = partition_of(node, topic, index).log
    span = log.locate(log.start_offset, 1 << 20, log.end_offset)
    if span is None:
        return []
    view = memoryview(span.read())
    return [decode(view[position:]) for position, _ in batches(view)]
