"""Delays of messages whose publisher's clock is behind count from their append (ADR 35)."""

import asyncio

import pytest

from penstock.state.queues import delivery_headers
from penstock.state.queues.delivery_state import Moved, decode_ops, decode_snapshot
from penstock.wire.records import Record, encode, read_header
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, append, configure, key_of, on_node, take

BEHIND_S = 300
DELAY_S = 60


async def publish_late(node: Node, *, behind_s: int = BEHIND_S) -> None:
    """Appends a delayed message with a timestamp of a clock that is behind."""
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    sent_ms = node.ctx.clock.now_ms() - behind_s * 1000
    delay = (delivery_headers.DELAY_MS, b"%d" % (DELAY_S * 1000))
    batch = memoryview(encode([Record(0, sent_ms, None, b"v", (delay,))]))
    partition.append(batch, read_header(batch), node.ctx.clock.now_ms())
    while partition.high_watermark < partition.log.end_offset:
        await asyncio.sleep(0.001)


async def close(node: Node) -> None:
    """Closes all queues, as a change of leaders does."""
    queues = node.ctx.queue.queues
    for queue in list(queues.queues()):
        queues._close(queue.key, "test")
    assert not list(queues.queues())


def forget_appends(node: Node) -> None:
    """Drops what the replica knows in memory, as a restart does."""
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    partition.append_times.clear()


async def begin(node: Node) -> None:
    await node.create("t", 1)
    await configure(node, "g")
    await node.ctx.queue.queues.open(await key_of(node))
    await append(node, ())
    await asyncio.sleep(5)


async def is_delayed_until(node: Node, from_s: float, others: list[int] | None = None) -> None:
    """The delayed message is delivered once its delay is over, counted from `from_s`."""
    loop = asyncio.get_running_loop()
    queue = await node.ctx.queue.queues.open(await key_of(node))
    await asyncio.sleep(from_s + DELAY_S - 4 - loop.time())
    assert (await take(queue, "a")).offsets == (others or [0])
    await asyncio.sleep(5)
    assert (await take(queue, "b")).offsets == [1]


@pytest.mark.parametrize("is_snapshot", [False, True])
@run_with(on_node, configs=CONFIGS)
async def test_delay_counts_from_the_append_after_a_restart(
    node: Node, *, is_snapshot: bool
) -> None:
    await begin(node)
    queue = await node.ctx.queue.queues.open(await key_of(node))
    await publish_late(node)
    appended_s = asyncio.get_running_loop().time()
    await asyncio.sleep(10)
    if is_snapshot:
        await node.ctx.queue.queues.rewrite(queue.key, lambda snapshot: snapshot)
    await close(node)
    forget_appends(node)
    await asyncio.sleep(5)
    await is_delayed_until(node, appended_s)


@run_with(on_node, configs=CONFIGS)
async def test_delay_counts_from_the_append_while_the_queue_is_closed(node: Node) -> None:
    await begin(node)
    await close(node)
    await asyncio.sleep(3_600)
    await publish_late(node)
    appended_s = asyncio.get_running_loop().time()
    await asyncio.sleep(20)
    await is_delayed_until(node, appended_s)


@run_with(on_node, configs=CONFIGS)
async def test_delay_of_a_clock_ahead_counts_from_the_append_when_read_again(node: Node) -> None:
    await begin(node)
    await publish_late(node, behind_s=-BEHIND_S)
    appended_s = asyncio.get_running_loop().time()
    await append(node, ())
    await asyncio.sleep(20)
    await close(node)
    await is_delayed_until(node, appended_s, [0, 2])


@run_with(on_node, configs=CONFIGS)
async def test_append_times_are_persisted_only_for_clocks_that_are_behind(node: Node) -> None:
    await begin(node)
    queues = node.ctx.queue.queues
    key = await key_of(node)

    async def notes() -> list[Moved]:
        found = await queues.keeping.read(key, queues.led_partition(key).leader_epoch)
        assert found.snapshot is not None
        assert not decode_snapshot(found.snapshot).appended
        ops = [op for delta in found.deltas for op in decode_ops(delta)]
        return [op for op in ops if isinstance(op, Moved)]

    for _ in range(50):
        await publish_late(node, behind_s=0)
    assert await notes() == []
    for _ in range(200):
        await publish_late(node)
        await asyncio.sleep(0.01)
    found = await notes()
    assert 2 <= len(found) <= 4, "one in a second, however many messages there are"
    assert all(op.start == 0 for op in found), "older versions find nothing new in them"
    await asyncio.sleep(600)
    assert await notes() == found
