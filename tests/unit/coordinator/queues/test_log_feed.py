"""Records that a queue is fed from its partition's log, and those it skips."""

import asyncio
from typing import Any

import pytest

from penstock.coordinator.queues import log_feed
from penstock.state.queues.policy import Order, QueuePolicy
from penstock.wire.control_batches import encode_marker
from penstock.wire.records import Codec, Columns, Record, decode, encode, read_header
from tests.run_with import run_with
from tests.unit.coordinator.queueing import (
    CONFIGS,
    Node,
    Taking,
    append,
    key_of,
    on_node,
    opened,
    pack,
)
from tests.unit.coordinator.queues.test_open_queue import world
from tests.unit.log.building import unreadable


@run_with(on_node, configs=CONFIGS)
async def test_aborted_records_are_skipped_by_committed_reads(
    node: Node,
) -> None:
    here = await world(node, committed_only=True)
    taking = Taking(count=100)
    here.queue.take(taking)
    for producer_id, is_committed in ((5, False), (6, True)):
        batch = encode(
            [Record(0, 1, None, b"v", ())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        partition = here.queue.partition
        view = memoryview(batch)
        partition.append(view, read_header(view), 1)
        await asyncio.sleep(0.1)
        assert taking.offsets == []
        marker = memoryview(
            encode_marker(
                committed=is_committed,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=1,
            )
        )
        partition.append(marker, read_header(marker), 1)
        await asyncio.sleep(0.1)
    assert taking.offsets == [2]
    here.queue.change(lambda m, now: m.accept("a", 2, 2, now), lambda _: None)
    assert here.queue.machine.kept.start == 4


@run_with(on_node, configs=CONFIGS)
async def test_full_state_machine_pauses_the_feed(node: Node) -> None:
    policy = QueuePolicy(order=Order.KEY, entries_max=4, lock_ms=60_000)
    here = await world(node, 10, policy=policy)
    taking = Taking(count=100)
    here.queue.take(taking)
    await asyncio.sleep(0.1)
    assert here.queue.machine.end < 12
    seen = list(taking.offsets)
    while len(seen) < 10:
        for offset in taking.offsets:
            here.queue.change(lambda m, now: m.accept("a", offset, offset, now), lambda _: None)  # noqa: B023
        taking = Taking(count=100)
        here.queue.take(taking)
        await asyncio.sleep(0.1)
        seen += taking.offsets
    assert seen == list(range(10))


@run_with(on_node, configs=CONFIGS)
async def test_records_removed_by_retention_are_finished(node: Node) -> None:
    here = await world(node, 5)
    await here.queue.partition.delete_before(3)
    await asyncio.sleep(0.1)
    assert here.queue.machine.kept.start == 3
    taking = Taking(count=100)
    here.queue.take(taking)
    assert taking.offsets == [3, 4]


@run_with(on_node, configs=CONFIGS)
async def test_backlog_larger_than_a_chunk_is_fed_completely(node: Node) -> None:
    here = await world(node)
    for _ in range(30):
        await append(node, (("mine", b"x" * 100_000),))
    again = await world_again(node)
    assert here.queue.machine.end == 30
    assert again == 30


async def world_again(node: Node) -> int:
    """End offset of a second queue of the same partition, opened when all records are there."""
    queue = await opened(node, group="second")
    await asyncio.sleep(1)
    return queue.machine.end


@run_with(on_node, configs=CONFIGS)
async def test_unreadable_log_closes_the_queue(node: Node) -> None:
    here = await world(node, 3)
    here.queue.partition.log.fail("gone")
    here.queue._feed._position = 0
    here.queue._feed.soon()
    await asyncio.sleep(0.1)
    assert here.queue.is_closed
    assert here.closed == [here.queue]


@run_with(on_node, configs=CONFIGS)
async def test_delays_are_restored_from_the_middle_of_a_batch(node: Node) -> None:
    here = await world(node, 2)
    now_ms = here.queue.time.now_ms()
    due = (now_ms + 100, now_ms + 200, now_ms + 60_000)
    await append(node, *((("penstock-deliver-at", b"%d" % due_ms),) for due_ms in due))
    taking = Taking(count=100)
    here.queue.take(taking)
    await asyncio.sleep(0.05)
    assert taking.offsets == [0, 1]
    assert here.queue.machine.delayed_count == 3
    await node.ctx.queue.queues.move(await key_of(node, "second"), 3)
    second = await opened(node, group="second")
    await asyncio.sleep(0.01)
    assert (second.machine.delayed_count, second.machine.end) == (2, 5)
    taking = Taking(count=100)
    second.take(taking)
    assert taking.offsets == []
    await asyncio.sleep(0.3)
    assert taking.offsets == [3]


def test_invalid_batches_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """A client with write permission must not be able to stop the receivers of a queue."""

    async def test(node: Node) -> None:
        here = await world(node, 2)
        partition = here.queue.partition
        poison = unreadable(Codec.NONE)
        partition.append(poison, read_header(poison), 1)
        await append(node, ())
        taking = Taking(count=100)
        here.queue.take(taking)
        await asyncio.sleep(0.1)
        assert taking.offsets == [0, 1, 5]
        assert not here.closed

    on_node(test, configs=CONFIGS)
    assert "t-0 has no records at 2" in caplog.text


@run_with(on_node, configs=CONFIGS)
async def test_large_batches_are_not_decompressed_on_the_event_loop(
    node: Node, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[int] = []

    def watched(batch: memoryview, **options: Any) -> Columns:
        if "bytes_max" in options:
            on_loop.append(options["bytes_max"])
        return decode(batch, **options)

    monkeypatch.setattr(log_feed, "decode", watched)

    here = await world(node, 1)
    await pack(node, 100, 20 << 20, 100)
    await asyncio.sleep(0.1)
    taking = Taking(count=100)
    here.queue.take(taking)
    assert taking.offsets == [0, 1, 2, 3]
    assert max(on_loop) <= 1 << 20
