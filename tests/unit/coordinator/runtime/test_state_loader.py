"""Replaying a log: everything below the end, in order, whatever the batches look like."""

import asyncio
from typing import Any

from penstock.coordinator.runtime.shard_host import replay
from penstock.wire.control_batches import encode_marker
from penstock.wire.records import Codec, Record, encode, read_header
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def partition_with(node: Node, *batches: bytearray) -> Any:
    await node.create("t", 1)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    for batch in batches:
        view = memoryview(batch)
        partition.append(view, read_header(view), node.ctx.clock.now_ms())
    while partition.high_watermark < partition.log.end_offset:
        await asyncio.sleep(0.01)
    return partition


def batch(start: int, count: int, codec: int = Codec.NONE) -> bytearray:
    rows = [Record(0, 1, b"%d" % n, b"v%d" % n, ()) for n in range(start, start + count)]
    return encode(rows, codec=codec)


async def read(node: Node, partition: Any, chunk_bytes: int, until: int) -> list[bytes]:
    seen: list[bytes] = []
    count = await replay(
        partition.log, node.workers, chunk_bytes, until, lambda key, value: seen.append(key)
    )
    assert count == len(seen)
    return seen


@run_with(on_node)
async def test_replay_yields_records_in_order_for_any_chunk_size(node: Node) -> None:
    parts = [batch(n * 10, 10, codec) for n, codec in enumerate([0, 1, 2, 3, 4] * 4)]
    partition = await partition_with(node, *parts)
    for chunk_bytes in (1, 300, 10_000_000):
        found = await read(node, partition, chunk_bytes, partition.log.end_offset)
        assert found == [b"%d" % n for n in range(200)]


@run_with(on_node)
async def test_replay_stops_before_the_end_offset(node: Node) -> None:
    partition = await partition_with(node, batch(0, 5), batch(5, 5), batch(10, 5))
    assert await read(node, partition, 10_000, 10) == [b"%d" % n for n in range(10)]
    assert await read(node, partition, 10_000, 0) == []


@run_with(on_node)
async def test_markers_and_records_without_a_key_are_skipped(node: Node) -> None:
    marker = encode_marker(
        committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    keyless = encode([Record(0, 1, None, b"v", ())])
    partition = await partition_with(node, batch(0, 2), marker, keyless, batch(2, 2))
    found = await read(node, partition, 10_000, partition.log.end_offset)
    assert found == [b"0", b"1", b"2", b"3"]


@run_with(on_node)
async def test_tombstones_are_replayed(node: Node) -> None:
    gone = encode([Record(0, 1, b"0", None, ())])
    partition = await partition_with(node, batch(0, 1), gone)
    seen: dict[bytes, bytes | None] = {}
    await replay(partition.log, node.workers, 10_000, partition.log.end_offset, seen.__setitem__)
    assert seen == {b"0": None}
