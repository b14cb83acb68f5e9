"""Shared helpers of the Fetch tests: requests, rows, and a node with records to read."""

import asyncio
from collections.abc import Iterable
from typing import Any

from penstock.broker.api.data.fetch import fetch
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.wire.records import Record, batches, encode, read_header
from tests.unit.broker.api.harness import Node, Pending

VERSION = 12
BIG = 1 << 20


def asked(
    *parts: tuple[str, int, int],
    bytes_max: int = BIG,
    epoch: int = -1,
    last_epoch: int = -1,
) -> list[FetchTopic]:
    """Each part is a topic, a partition and an offset."""
    return [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=index,
                    current_leader_epoch=epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    partition_max_bytes=bytes_max,
                )
            ],
        )
        for topic, index, offset in parts
    ]


def request(topics: Iterable[FetchTopic], **options: Any) -> FetchRequest:
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": BIG, **options}
    return FetchRequest(topics=list(topics), **options)


def rows(response: FetchResponse) -> list[FetchPartitionData]:
    return [row for topic in response.responses for row in topic.partitions]


def offsets(row: FetchPartitionData) -> list[int]:
    """The base offsets of the whole batches in a row."""
    assert isinstance(row.records, memoryview)
    return [header.base_offset for _, header in batches(row.records)]


async def ask(node: Node, *parts: tuple[str, int, int], **options: Any) -> Any:
    chosen = {
        key: options.pop(key) for key in ("bytes_max", "epoch", "last_epoch") if key in options
    }
    version = options.pop("version", VERSION)
    return await node.ask(fetch, version, request(asked(*parts, **chosen), **options))


async def park(node: Node, *parts: tuple[str, int, int], **options: Any) -> Pending:
    options = {"max_wait_ms": 10_000, **options}
    return await node.send(fetch, VERSION, request(asked(*parts), **options))


def partition_of(node: Node, topic: str = "t", index: int = 0) -> Partition:
    partition = node.ctx.partitions.get(topic, index)
    assert partition is not None
    return partition


async def fill(node: Node, sizes: Iterable[int], topic: str = "t", index: int = 0) -> None:
    """Appends one batch with one value of each size, and waits until they are committed."""
    partition = partition_of(node, topic, index)
    for size in sizes:
        view = memoryview(encode([Record(0, 1000, None, bytes(size), ())]))
        partition.append(view, read_header(view), node.ctx.clock.now_ms())
    while partition.high_watermark < partition.log.end_offset:
        await asyncio.sleep(0.01)


def watchers(node: Node, topic: str = "t") -> int:
    return len(partition_of(node, topic)._watchers)
