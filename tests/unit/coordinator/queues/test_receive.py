"""Taking from several queues: as soon as there is something, no more than asked, nothing lost."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues.receive import ReceiveRequest, Taken, take
from penstock.coordinator.queues.record_reader import records_of
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.records import Record, encode, read_header
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, append, configure, key_of, on_node

ALL = ReceiveRequest("a", 100, 1 << 20)


async def set_up(node: Node, *counts: int) -> list[QueueKey]:
    """A topic with so many records in each partition."""
    await node.create("t", len(counts))
    await configure(node, "g")
    for index, count in enumerate(counts):
        if count:
            await node.produce("t", count, index=index)
    return [await key_of(node, index=index) for index in range(len(counts))]


def offsets(taken: Taken) -> dict[int, list[int]]:
    return {
        key.partition: [record.offset for record, _ in records_of(found)]
        for key, found in taken.found.items()
    }


@run_with(on_node, configs=CONFIGS)
async def test_queues_are_asked_in_turn_until_the_request_is_full(node: Node) -> None:
    keys = await set_up(node, 3, 5, 5)
    wanted = ReceiveRequest("a", 6, 1 << 20, bytes_min=1 << 20)
    assert offsets(await take(node.ctx.queue.queues, keys, wanted)) == {
        0: [0, 1, 2],
        1: [0, 1, 2],
    }
    assert offsets(await take(node.ctx.queue.queues, keys, ALL)) == {
        1: [3, 4],
        2: [0, 1, 2, 3, 4],
    }
    assert offsets(await take(node.ctx.queue.queues, keys, ALL)) == {}


@run_with(on_node, configs=CONFIGS)
async def test_receive_waiting_for_one_queue_takes_from_the_rest_as_well(node: Node) -> None:
    keys = await set_up(node, 0, 0, 0)
    wanted = ReceiveRequest("a", 3, 1 << 20, wait_ms=60_000)
    waiting = asyncio.ensure_future(take(node.ctx.queue.queues, keys, wanted))
    await asyncio.sleep(1)
    for index in (2, 0, 1):
        partition = node.ctx.partitions.get("t", index)
        assert partition is not None
        batch = memoryview(encode([Record(value=b"v")] * 2))
        partition.append(batch, read_header(batch), node.ctx.clock.now_ms())
    taken = offsets(await waiting)
    assert sorted(map(len, taken.values())) == [1, 2]
    rest = offsets(await take(node.ctx.queue.queues, keys, ALL))
    assert sum(map(len, rest.values())) == 3
    assert all(queue.waiting == 0 for queue in node.ctx.queue.queues.queues())


@run_with(on_node, configs=CONFIGS)
async def test_receive_ends_with_the_first_queue_that_has_records(node: Node) -> None:
    keys = await set_up(node, 0, 0)
    waiting = asyncio.ensure_future(
        take(node.ctx.queue.queues, keys, ReceiveRequest("a", 10, 1 << 20, wait_ms=60_000))
    )
    await asyncio.sleep(1)
    await node.produce("t", 2, index=1)
    assert list(offsets(await waiting)) == [1]
    assert all(queue.waiting == 0 for queue in node.ctx.queue.queues.queues())


@pytest.mark.parametrize("lock_ms", [1_000, 3_000])
@run_with(on_node, configs=CONFIGS)
async def test_lease_that_ended_before_it_was_persisted_is_not_handed_out(
    node: Node, *, lock_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = await set_up(node, 2)
    queue = await node.ctx.queue.queues.open(keys[0])
    write = queue._keeper.write

    def write_later(*values: Any) -> "asyncio.Future[int]":
        async def write_slowly() -> int:
            await asyncio.sleep(2)
            return await write(*values)

        return asyncio.ensure_future(write_slowly())

    monkeypatch.setattr(queue._keeper, "write", write_later)
    wanted = replace(ALL, lock_ms=lock_ms)
    first = asyncio.ensure_future(take(node.ctx.queue.queues, keys, wanted))
    await asyncio.sleep(1.1)
    second = asyncio.ensure_future(take(node.ctx.queue.queues, keys, replace(ALL, member="b")))
    taken, retaken = offsets(await first), offsets(await second)
    is_in_time = lock_ms > 2_000
    assert (taken, retaken) == (({0: [0, 1]}, {}) if is_in_time else ({}, {0: [0, 1]}))


@run_with(on_node, configs=CONFIGS)
async def test_lease_has_the_requested_duration(node: Node) -> None:
    keys = await set_up(node, 1)
    await take(node.ctx.queue.queues, keys, ReceiveRequest("a", 1, 1 << 20, lock_ms=2_000))
    await asyncio.sleep(1.9)
    assert offsets(await take(node.ctx.queue.queues, keys, ALL)) == {}
    await asyncio.sleep(0.2)
    assert offsets(await take(node.ctx.queue.queues, keys, ALL)) == {0: [0]}


@run_with(on_node, configs=CONFIGS)
async def test_records_beyond_the_size_limit_are_released_uncounted(node: Node) -> None:
    """Before they are read, only the average size of records is known."""

    keys = await set_up(node, 10)
    await take(node.ctx.queue.queues, keys, ALL)
    for _ in range(3):
        await append(node, (("large", b"x" * 5_000),))
    taken = await take(node.ctx.queue.queues, keys, ReceiveRequest("a", 10, 6_000))
    assert offsets(taken) == {0: [10]}
    (queue,) = node.ctx.queue.queues.queues()
    assert queue.machine.kept.leased == 11
    taken = await take(node.ctx.queue.queues, keys, ALL)
    assert offsets(taken) == {0: [11, 12]}
    assert [lease.delivery_count for lease in taken.found[keys[0]].leases] == [1]


@run_with(on_node, configs=CONFIGS)
async def test_cancelled_receive_leaves_the_state_unchanged(node: Node) -> None:
    keys = await set_up(node, 2)
    wanted = ReceiveRequest("a", 10, 1 << 20, bytes_min=1 << 20, wait_ms=60_000)
    waiting = asyncio.ensure_future(take(node.ctx.queue.queues, keys, wanted))
    await asyncio.sleep(1)
    (queue,) = node.ctx.queue.queues.queues()
    assert queue.machine.kept.leased == 2
    waiting.cancel()
    await asyncio.sleep(0)
    assert queue.machine.kept.leased == 0
    taken = await take(node.ctx.queue.queues, keys, ALL)
    assert [lease.delivery_count for lease in taken.found[keys[0]].leases] == [1]


@run_with(on_node, configs=CONFIGS)
async def test_refusal_of_one_queue_is_returned_beside_records_of_another(node: Node) -> None:
    keys = await set_up(node, 0, 1)
    beyond = QueueKey("g", keys[0].topic_id, 9)
    taken = await take(node.ctx.queue.queues, [beyond, *keys], ALL)
    assert offsets(taken) == {1: [0]}
    assert taken.refused[beyond].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    alone = await take(node.ctx.queue.queues, [beyond], ReceiveRequest("a", 1, 1, wait_ms=600_000))
    assert list(alone.refused) == [beyond]


@run_with(on_node, configs=CONFIGS)
async def test_queue_that_closes_during_a_receive_is_reported_at_once(node: Node) -> None:
    keys = await set_up(node, 0)
    wanted = ReceiveRequest("a", 1, 1 << 20, wait_ms=600_000)
    waiting = asyncio.ensure_future(take(node.ctx.queue.queues, keys, wanted))
    await asyncio.sleep(1)
    (queue,) = node.ctx.queue.queues.queues()
    queue.close(Refused(ErrorCode.FENCED_LEADER_EPOCH))
    taken = await waiting
    assert taken.refused[keys[0]].code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@run_with(on_node, configs=CONFIGS)
async def test_receive_of_zero_records_takes_nothing(node: Node) -> None:
    keys = await set_up(node, 1)
    assert offsets(await take(node.ctx.queue.queues, keys, ReceiveRequest("a", 0, 1 << 20))) == {}
