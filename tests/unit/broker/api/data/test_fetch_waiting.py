"""Fetch: how long it waits, what wakes it, and what it does where reading fails."""

import asyncio
import errno

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.data.fetch import WAIT_MS_MAX
from penstock.broker.api.data.fetch_reply import SLICE_BYTES_MIN
from penstock.wire.records import Record, encode, read_header
from simulation.disk import Fault
from tests.run_with import run_with
from tests.unit.broker.api.fetching import ask, fill, offsets, park, partition_of, rows, watchers
from tests.unit.broker.api.harness import Node, on_node

# -- how long ---------------------------------------------------------------------------------


@run_with(on_node)
async def test_fetch_without_data_waits_for_the_next_batch(node: Node) -> None:
    await node.create("t", 1)
    pending = await park(node, ("t", 0, 0))
    assert not pending.is_answered
    assert watchers(node) == 1
    await node.produce("t", 1)
    (row,) = rows(await pending.reply())
    assert offsets(row) == [0]
    assert watchers(node) == 0


@run_with(on_node)
async def test_fetch_returns_available_records_after_max_wait(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 1)
    loop = asyncio.get_running_loop()
    start = loop.time()
    (row,) = rows(await ask(node, ("t", 0, 0), min_bytes=10_000, max_wait_ms=700))
    assert loop.time() - start == pytest.approx(0.7)
    assert offsets(row) == [0]
    assert watchers(node) == 0


@run_with(on_node)
async def test_wait_is_limited_by_the_broker(node: Node) -> None:
    await node.create("t", 1)
    loop = asyncio.get_running_loop()
    start = loop.time()
    await ask(node, ("t", 0, 0), max_wait_ms=2**31 - 1)
    assert loop.time() - start == pytest.approx(WAIT_MS_MAX / 1000)


@run_with(on_node)
async def test_min_bytes_are_counted_over_all_partitions(node: Node) -> None:
    await node.create("t", 2)
    pending = await park(node, ("t", 0, 0), ("t", 1, 0), min_bytes=1500)
    await fill(node, [800], index=0)
    await asyncio.sleep(0.1)
    assert not pending.is_answered
    await fill(node, [800], index=1)
    assert [offsets(row) for row in rows(await pending.reply())] == [[0], [0]]


@run_with(on_node)
async def test_excluded_partial_batch_counts_towards_min_bytes(node: Node) -> None:
    """Or a reader would wait for more than it can be given at once."""

    await node.create("t", 1)
    await fill(node, [600_000, 600_000])
    pending = await park(node, ("t", 0, 0), min_bytes=1_000_000)
    await asyncio.sleep(0)
    assert pending.is_answered
    assert offsets(rows(await pending.reply())[0]) == [0]


@run_with(on_node)
async def test_one_group_commit_wakes_a_fetch_once_for_all_its_partitions(node: Node) -> None:
    await node.create("t", 2)
    pending = await park(node, ("t", 0, 0), ("t", 1, 0))
    for index in range(2):
        view = memoryview(encode([Record(0, 1000, None, b"v", ())]))
        partition_of(node, "t", index).append(view, read_header(view), 0)
    assert [offsets(row) for row in rows(await pending.reply())] == [[0], [0]]


@run_with(on_node)
async def test_end_of_an_older_segment_does_not_wait(node: Node) -> None:
    await node.create("t", 1, segment_bytes="1048576")
    await fill(node, [100])
    partition_of(node).log.roll()
    await fill(node, [100])
    pending = await park(node, ("t", 0, 0), min_bytes=100_000)
    (row,) = rows(await pending.reply())
    assert offsets(row) == [0]
    assert asyncio.get_running_loop().time() < 10


@run_with(on_node)
async def test_parked_fetch_of_a_lost_connection_is_removed(node: Node) -> None:
    await node.create("t", 1)
    pending = await park(node, ("t", 0, 0))
    view = memoryview(encode([Record(0, 1000, None, b"v", ())]))
    partition_of(node).append(view, read_header(view), 0)
    pending.call.abandon()
    assert watchers(node) == 0
    await asyncio.sleep(20)
    assert not pending.is_answered


@run_with(on_node)
async def test_parked_fetch_is_answered_when_its_topic_is_deleted(node: Node) -> None:
    await node.create("t", 1)
    await node.create("other", 1)
    pending = await park(node, ("t", 0, 0), ("other", 0, 0))
    await node.delete("t")
    gone, other = rows(await pending.reply())
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.error_code == 0
    assert watchers(node, "other") == 0


@run_with(on_node)
async def test_parked_fetch_below_a_moved_start_is_out_of_range(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 3)
    pending = await park(node, ("t", 0, 1), min_bytes=100_000)
    await partition_of(node).delete_before(2)
    (row,) = rows(await pending.reply())
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- the disk ---------------------------------------------------------------------------------


@run_with(on_node)
async def test_offline_partition_is_an_error_even_at_its_end(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 1)
    pending = await park(node, ("t", 0, 1))
    node.ctx.partitions.read_failed(partition_of(node), OSError(errno.EIO, "bad sector"))
    (row,) = rows(await pending.reply())
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (row,) = rows(await ask(node, ("t", 0, 1)))
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("size", [100, SLICE_BYTES_MIN])
@run_with(on_node)
async def test_cold_data_is_read_by_a_worker(node: Node, *, size: int) -> None:
    await node.create("t", 1)
    await fill(node, [size])
    node.disk.cold_ratio = 1.0
    (row,) = rows(await ask(node, ("t", 0, 0)))
    assert offsets(row) == [0]
    assert node.ctx.metrics.cold_reads.value == 1


@run_with(on_node)
async def test_unverifiable_partial_batch_shortens_the_response(node: Node) -> None:
    """Data of an earlier process is verified when it is read, and a partial batch cannot be."""

    await node.create("t", 1)
    await fill(node, [100, 2 * SLICE_BYTES_MIN])
    segment = partition_of(node).log.segments.active
    segment.unverified_end = segment.size
    (row,) = rows(await ask(node, ("t", 0, 0), bytes_max=SLICE_BYTES_MIN))
    assert offsets(row) == [0]
    assert len(row.records or b"") == segment.unverified_start < SLICE_BYTES_MIN


@pytest.mark.parametrize("size", [100, SLICE_BYTES_MIN])
@run_with(on_node)
async def test_unreadable_bytes_take_the_partition_offline(node: Node, *, size: int) -> None:
    await node.create("t", 2)
    await fill(node, [size])
    await fill(node, [10], index=1)
    path = next(path for path in node.disk.files() if "/0/" in path and path.endswith(".log"))
    node.disk.damage(path, 0)
    first, second = rows(await ask(node, ("t", 0, 0), ("t", 1, 0)))
    assert first.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets(second) == [0]
    assert partition_of(node).log.offline is not None


@run_with(on_node)
async def test_lookup_error_affects_only_its_partition(node: Node) -> None:
    await node.create("t", 2, segment_bytes="1048576")
    await fill(node, [100])
    await fill(node, [10], index=1)
    log = partition_of(node).log
    log.roll()
    await fill(node, [100])
    parked = await park(node, ("t", 0, 2))
    for segment in log.segments:
        segment.drop_tail()
        segment.forget()
    node.disk.inject(Fault("read", errno.EIO, path="/0/", times=1000))
    first, second = rows(await ask(node, ("t", 0, 1), ("t", 1, 0)))
    assert first.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets(second) == [0]
    (row,) = rows(await parked.reply())
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
