"""Open queues: where they start, how they are restored, and when they close."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues.open_queues import IDLE_SECONDS, SWEEP_SECONDS
from penstock.state.queues.state_shard import QueueKey
from tests.run_with import run_with
from tests.unit.coordinator.queueing import (
    CONFIGS,
    Node,
    append,
    change,
    configure,
    key_of,
    on_node,
    opened,
    take,
    unconfigure,
    values,
)

CLOSED = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)


# -- opening ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "wanted"),
    [("earliest", [0, 1, 2, 3]), ("latest", [3]), ("by_duration:PT1H", [2, 3])],
)
@run_with(on_node, configs=CONFIGS)
async def test_new_group_starts_at_its_configured_offset(
    node: Node, *, reset: str, wanted: list[int]
) -> None:
    await node.create("t", 1)
    now_ms = node.ctx.clock.now_ms()
    await node.produce("t", 3, timestamp=now_ms - 3 * 3_000_000, step=3_000_000)
    queue = await opened(node, share_auto_offset_reset=reset)
    await append(node, ())
    assert (await take(queue)).offsets == wanted


@run_with(on_node, configs=CONFIGS)
async def test_start_of_a_group_is_persisted_before_a_delivery(node: Node) -> None:
    queue = await opened(node, 3, share_auto_offset_reset="latest")
    queue.close(CLOSED)
    await append(node, ())
    queue = await node.ctx.queue.queues.open(queue.key)
    assert (await take(queue)).offsets == [3]


@run_with(on_node, configs=CONFIGS)
async def test_reopened_queue_continues_where_it_was(node: Node) -> None:
    queue = await opened(node, 10)
    await take(queue, "a", 6)
    assert await change(queue, lambda m, now: m.accept("a", 0, 2, now)) is None
    assert await change(queue, lambda m, now: m.release("a", 3, 3, now, delay_ms=0)) is None
    before = queue.machine.kept.snapshot()
    queue.close(CLOSED)
    again = await node.ctx.queue.queues.open(queue.key)
    assert again is not queue
    assert again.machine.kept.snapshot() == before
    taking = await take(again, "b", 9)
    assert taking.offsets == [3, 6, 7, 8, 9]
    assert [one.delivery_count for one in taking.given] == [2, 1]
    assert await values(node, again, taking) == [b"v3", b"v6", b"v7", b"v8", b"v9"]


@run_with(on_node, configs=CONFIGS)
async def test_concurrent_opens_return_the_same_queue(node: Node) -> None:
    await node.create("t", 1)
    key = await key_of(node)
    queues = await asyncio.gather(*(node.ctx.queue.queues.open(key) for _ in range(5)))
    assert len(set(map(id, queues))) == 1
    assert node.ctx.queue.queues.find(key) is queues[0]


@run_with(on_node, configs=CONFIGS)
async def test_queue_needs_a_partition_led_here(node: Node) -> None:
    await node.create("t", 1)
    topic_id = node.ctx.image.topics["t"].id
    for key, code in (
        (QueueKey("g", b"x" * 16, 0), ErrorCode.UNKNOWN_TOPIC_ID),
        (QueueKey("g", topic_id, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (QueueKey("g", topic_id, -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(Refused) as refused:
            await node.ctx.queue.queues.open(key)
        assert refused.value.code is code
        assert node.ctx.queue.queues.find(key) is None


@run_with(on_node, configs=CONFIGS)
async def test_wakeup_does_not_create_a_queue(node: Node) -> None:
    await node.create("t", 1)
    with pytest.raises(Refused) as refused:
        await node.ctx.queue.queues.open(await key_of(node), creates=False)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert await node.ctx.queue.queues.describe(await key_of(node)) is None


@run_with(on_node, configs=CONFIGS)
async def test_repeated_deduplication_id_is_not_delivered_after_the_first_finished(
    node: Node,
) -> None:
    queue = await opened(node)
    same = (("penstock-dedup-id", b"once"),)
    await append(node, same)
    await take(queue)
    assert await change(queue, lambda m, now: m.accept("a", 0, 0, now)) is None
    queue.close(CLOSED)
    queue = await node.ctx.queue.queues.open(queue.key)
    await append(node, same)
    await append(node, ())
    assert (await take(queue)).offsets == [2]


# -- closing and configs ----------------------------------------------------------------------


@run_with(on_node, configs=CONFIGS)
async def test_unused_queue_is_closed_after_a_while(node: Node) -> None:
    idle = await opened(node, 2)
    held = await opened(node, group="h", share_record_lock_duration_ms="3600000")
    await take(held, "a", 1)
    await asyncio.sleep(IDLE_SECONDS + 2 * SWEEP_SECONDS)
    assert idle.is_closed
    assert not held.is_closed
    assert [queue.key.group for queue in node.ctx.queue.queues.queues()] == ["h"]


@run_with(on_node, configs=CONFIGS)
async def test_changed_config_applies_from_the_next_record(node: Node) -> None:
    queue = await opened(node, 2)
    assert queue.machine.policy.lock_ms == 30_000
    assert node.ctx.queue.queues.lease_settings("g").lock_ms == 30_000
    await configure(node, "g", share_record_lock_duration_ms="50000")
    assert not queue.is_closed
    assert queue.machine.policy.lock_ms == 50_000
    assert node.ctx.queue.queues.lease_settings("g").lock_ms == 50_000
    await unconfigure(node, "g")
    assert queue.machine.policy.lock_ms == 30_000


@run_with(on_node, configs=CONFIGS)
async def test_changed_isolation_level_reopens_the_queue(node: Node) -> None:
    queue = await opened(node, 2)
    await configure(node, "g", share_isolation_level="read_uncommitted")
    assert queue.is_closed
    again = await node.ctx.queue.queues.open(queue.key)
    assert not again.committed_only


@run_with(on_node, configs=CONFIGS)
async def test_state_is_deleted_with_the_topic(node: Node) -> None:
    queue = await opened(node, 2)
    host = node.ctx.queue.queues.keeping.host
    assert sum(len(shard) for _, shard in host.active()) == 1
    await node.delete("t")
    assert queue.is_closed
    await asyncio.sleep(0.1)
    assert sum(len(shard) for _, shard in host.active()) == 0


# -- administration ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [True, False])
@run_with(on_node, configs=CONFIGS)
async def test_position_and_lag_of_a_queue_are_described(node: Node, *, is_open: bool) -> None:
    queue = await opened(node, 10)
    await take(queue, "a", 10)
    await change(queue, lambda m, now: m.accept("a", 0, 3, now))
    await change(queue, lambda m, now: m.accept("a", 6, 6, now))
    if not is_open:
        queue.close(CLOSED)
    found = await node.ctx.queue.queues.describe(queue.key)
    assert found is not None
    assert (found.start_offset, found.lag) == (4, 5)
    assert found.leader_epoch == queue.leader_epoch


@run_with(on_node, configs=CONFIGS)
async def test_queue_with_a_moved_start_begins_there(node: Node) -> None:
    queue = await opened(node, 10)
    await take(queue, "a", 10)
    await change(queue, lambda m, now: m.accept("a", 0, 8, now))
    await node.ctx.queue.queues.move(queue.key, 7)
    assert queue.is_closed
    again = await node.ctx.queue.queues.open(queue.key)
    taking = await take(again, "b")
    assert taking.offsets == [7, 8, 9]
    assert [one.delivery_count for one in taking.given] == [1]
    await node.ctx.queue.queues.move(await key_of(node, "new"), 9)
    other = await node.ctx.queue.queues.open(await key_of(node, "new"))
    assert (await take(other)).offsets == [9]


@run_with(on_node, configs=CONFIGS)
async def test_deleted_queue_begins_like_a_new_one(node: Node) -> None:
    queue = await opened(node, 3)
    await take(queue, "a")
    await change(queue, lambda m, now: m.accept("a", 0, 2, now))
    await node.ctx.queue.queues.forget(queue.key)
    assert await node.ctx.queue.queues.describe(queue.key) is None
    again = await node.ctx.queue.queues.open(queue.key)
    assert (await take(again)).offsets == [0, 1, 2]
    await node.ctx.queue.queues.forget(await key_of(node, "unknown"))


@run_with(on_node, configs=CONFIGS)
async def test_log_that_a_queue_cannot_read_goes_offline(node: Node) -> None:
    """Another replica may lead then; a queue that only closes would be opened again in vain."""

    queue = await opened(node, 3)
    queue.close(CLOSED)
    partition = queue.partition
    node.disk.damage(f"{partition.log.path}/{0:020}.log", 80)
    await node.ctx.queue.queues.open(queue.key)
    await asyncio.sleep(1)
    assert partition.log.offline is not None
