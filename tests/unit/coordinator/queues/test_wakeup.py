"""Queues come back to life by themselves, when states are loaded and when leaders change."""

import asyncio

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues.wakeup import QueueWakeup
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, change, on_node, opened, take


def waking_on(node: Node) -> None:
    waking = QueueWakeup(node.around, node.ctx.queue.queues.keeping, node.ctx.queue.queue_admin)
    node.ctx.watcher.on_change(waking.follow)
    node.background(waking.run())


@run_with(on_node, configs=CONFIGS)
async def test_queue_is_opened_when_its_state_is_loaded(node: Node) -> None:
    waking_on(node)
    queue = await opened(node, 2)
    await take(queue, "a", 2)
    queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    host = node.ctx.queue.queues.keeping.host
    host.close()
    host.follow()
    await asyncio.sleep(5)
    again = node.ctx.queue.queues.find(queue.key)
    assert again is not None
    assert again is not queue
    assert again.machine.kept.leased == 2


@run_with(on_node, configs=CONFIGS)
async def test_expired_lease_of_a_closed_queue_ends_without_a_request(node: Node) -> None:
    """No client asks for the resulting dead letter either."""

    waking_on(node)
    queue = await opened(node, 1, share_delivery_count_limit="2")
    for _ in range(2):
        await take(queue, "a", 1)
        if queue.machine.kept.leases[0].delivery_count == 1:
            await change(queue, lambda m, now: m.release("a", 0, 0, now, delay_ms=0))
    queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    host = node.ctx.queue.queues.keeping.host
    host.close()
    await asyncio.sleep(60)
    host.follow()
    await asyncio.sleep(10)
    partition = node.ctx.partitions.get("t.dlq", 0)
    assert partition is not None
    assert partition.high_watermark == 1


@run_with(on_node, configs=CONFIGS)
async def test_queue_that_cannot_be_opened_yet_is_retried(node: Node) -> None:
    queue = await opened(node, 2)
    queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    led = node.ctx.partitions._led
    del led["t", 0]
    waking_on(node)
    host = node.ctx.queue.queues.keeping.host
    host.close()
    host.follow()
    await asyncio.sleep(5)
    assert node.ctx.queue.queues.find(queue.key) is None
    led["t", 0] = partition
    await asyncio.sleep(5)
    assert node.ctx.queue.queues.find(queue.key) is not None
