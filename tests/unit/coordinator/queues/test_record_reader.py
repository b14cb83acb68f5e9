"""From leases to records: only batches that are needed, as many as fit, and no more than that."""

import asyncio

from penstock.coordinator.queues.record_reader import LeasedBatches, read_leased, records_of
from penstock.state.queues.delivery_state import LeaseState
from penstock.wire.records import (
    Record,
    check_stored,
    decode,
    encode,
    read_header,
    stamp_append_time,
)
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, append, on_node, pack

MIB = 1 << 20


def lease(first: int, last: int, count: int = 1) -> LeaseState:
    return LeaseState(first, last, "a", 0, count)


async def read(node: Node, *leases: LeaseState, bytes_max: int = 1 << 20) -> LeasedBatches:
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    return await read_leased(partition, node.workers, leases, bytes_max)


def offsets(leased: LeasedBatches) -> list[tuple[int, int]]:
    return [(record.offset, count) for record, count in records_of(leased)]


async def fill(node: Node, batches: int, records: int) -> None:
    await node.create("t", 1)
    for _ in range(batches):
        await append(node, *[()] * records)


@run_with(on_node, configs=CONFIGS)
async def test_whole_batch_is_returned_and_only_its_leased_records_count(node: Node) -> None:
    await fill(node, 3, 4)
    found = await read(node, lease(5, 6, 2), lease(9, 9))
    assert len(found.parts) == 2
    assert offsets(found) == [(5, 2), (6, 2), (9, 1)]
    assert [(one.first, one.last) for one in found.leases] == [(5, 6), (9, 9)]
    assert found.left == []
    assert found.size == sum(map(len, found.parts))


@run_with(on_node, configs=CONFIGS)
async def test_leases_may_come_in_any_order_and_cross_batches(node: Node) -> None:
    await fill(node, 5, 4)
    found = await read(node, lease(17, 18), lease(2, 9))
    assert [record.offset for record, _ in records_of(found)] == [*range(2, 10), 17, 18]
    assert [(one.first, one.last) for one in found.leases] == [(2, 9), (17, 18)]


@run_with(on_node, configs=CONFIGS)
async def test_batches_without_leased_records_are_skipped(node: Node) -> None:
    await fill(node, 50, 2)
    found = await read(node, lease(1, 1), lease(98, 98))
    assert len(found.parts) == 2
    assert [record.offset for record, _ in records_of(found)] == [1, 98]


@run_with(on_node, configs=CONFIGS)
async def test_records_beyond_the_limit_are_left_except_for_one_batch(node: Node) -> None:
    await fill(node, 4, 3)
    found = await read(node, lease(0, 11), bytes_max=1)
    assert [record.offset for record, _ in records_of(found)] == [0, 1, 2]
    assert [(one.first, one.last) for one in found.left] == [(3, 11)]
    size = found.size
    found = await read(node, lease(0, 1), lease(4, 5), lease(7, 11), bytes_max=2 * size + 10)
    assert [(one.first, one.last) for one in found.leases] == [(0, 1), (4, 5)]
    assert [(one.first, one.last) for one in found.left] == [(7, 11)]


@run_with(on_node, configs=CONFIGS)
async def test_deleted_records_are_left(node: Node) -> None:
    await fill(node, 4, 1)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    await partition.delete_before(2)
    found = await read(node, lease(0, 3))
    assert [record.offset for record, _ in records_of(found)] == [2, 3]
    assert [(one.first, one.last) for one in found.left] == [(0, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_no_leases_read_nothing(node: Node) -> None:
    await fill(node, 1, 1)
    found = await read(node)
    assert (found.parts, found.leases, found.left) == ([], [], [])
    assert offsets(found) == []


@run_with(on_node, configs=CONFIGS)
async def test_few_records_of_a_large_batch_are_extracted(node: Node) -> None:
    await fill(node, 2, 100)
    found = await read(node, lease(103, 103, 2), lease(150, 152), lease(199, 199))
    assert offsets(found) == [(103, 2), (150, 1), (151, 1), (152, 1), (199, 1)]
    (part,) = found.parts
    check_stored(part)
    few = decode(part)
    (whole,) = (await read(node, lease(100, 199))).parts
    many = decode(whole)
    assert [*few] == [record for record in many if record.offset in few.offsets]
    assert few.header.count == 5
    assert few.header[0] == many.header[0]
    assert few.header.last_offset == many.header.last_offset
    assert few.header.max_timestamp == many.header.max_timestamp
    assert found.size == len(part) < len(whole) / 10
    assert found.left == []


@run_with(on_node, configs=CONFIGS)
async def test_extracted_records_have_their_append_time(node: Node) -> None:
    await node.create("t", 1)
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    batch = memoryview(encode([Record(timestamp=n, value=b"%d" % n) for n in range(20)]))
    stamp_append_time(batch, 1_000)
    partition.append(batch, read_header(batch), 1_000)
    while partition.high_watermark < 20:
        await asyncio.sleep(0.001)
    ((record, _),) = records_of(await read(node, lease(7, 7)))
    assert (record.timestamp, record.value) == (1_000, b"7")


@run_with(on_node, configs=CONFIGS)
async def test_decompressed_size_limits_decompressing_reads(node: Node) -> None:
    await node.create("t", 1)
    stored = await pack(node, *[MIB] * 5)
    assert sum(stored) < MIB // 10
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    found = await read_leased(partition, node.workers, [lease(0, 4)], 2 * MIB + 1_000, unpacks=True)
    assert offsets(found) == [(0, 1), (1, 1)]
    assert found.size == sum(map(len, found.parts)) > 2 * MIB
    assert [(one.first, one.last) for one in found.left] == [(2, 4)]
    plain = await read_leased(partition, node.workers, [lease(0, 4)], 2 * MIB)
    assert len(offsets(plain)) == 5, "as they are they are small"
