"""Settling leases one by one: each counts on its own, and all of them are kept together."""

import asyncio
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.queues.settle import SettleAction, SettleCommand, settle
from penstock.state.queues.state_shard import QueueKey
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, key_of, on_node, opened, take

LOST = ErrorCode.INVALID_RECORD_STATE


def ruling(
    key: QueueKey, offset: int, verdict: SettleAction = SettleAction.ACCEPT, **more: Any
) -> SettleCommand:
    return SettleCommand(key, "a", offset, offset, verdict)._replace(**more)


async def codes(node: Node, *rulings: SettleCommand) -> list[ErrorCode | None]:
    answers = await settle(node.ctx.queue.queues, rulings)
    return [None if answer is None else answer.code for answer in answers]


@run_with(on_node, configs=CONFIGS)
async def test_every_settlement_action_takes_effect(node: Node) -> None:
    queue = await opened(node, 5, errors_deadletterqueue_enable="false")
    await take(queue, "a", 5)
    assert (
        await codes(
            node,
            ruling(queue.key, 0),
            ruling(queue.key, 1, SettleAction.RELEASE, delay_ms=60_000),
            ruling(queue.key, 2, SettleAction.REJECT, error_class="Bad"),
            ruling(queue.key, 3, SettleAction.EXTEND, lock_ms=90_000),
            ruling(queue.key, 4, SettleAction.GIVE_BACK),
        )
        == [None] * 5
    )
    kept = queue.machine.kept
    assert kept.is_settled(0)
    assert kept.is_settled(2)
    assert kept.failures[1].delivery_count == 1
    assert [(lease.first, lease.last) for lease in kept.leases.values()] == [(3, 3)]
    again = await take(queue, "b", 5)
    assert [(lease.first, lease.delivery_count) for lease in again.given] == [(4, 1)]


@run_with(on_node, configs=CONFIGS)
async def test_invalid_settlement_does_not_affect_its_neighbours(node: Node) -> None:
    queue = await opened(node, 6)
    await take(queue, "a", 5)
    rulings = [ruling(queue.key, offset) for offset in range(6)]
    rulings[2] = rulings[2]._replace(member="b")
    assert await codes(node, *rulings) == [None, None, LOST, None, None, LOST]
    assert await codes(node, ruling(queue.key, 2)) == [None]


@run_with(on_node, configs=CONFIGS)
async def test_neighbouring_settlements_are_persisted_as_one_range(node: Node) -> None:
    queue = await opened(node, 100)
    await take(queue, "a", 100)
    size = queue._loaded.delta_bytes
    assert await codes(node, *(ruling(queue.key, n) for n in range(100))) == [None] * 100
    assert queue._loaded.delta_bytes - size < 100, "one operation, not a hundred"


@run_with(on_node, configs=CONFIGS)
async def test_closed_queue_is_opened_and_unknown_queue_is_not_created(
    node: Node,
) -> None:
    queue = await opened(node, 1)
    await take(queue, "a", 1)
    node.ctx.queue.queues.close()
    assert node.ctx.queue.queues.find(queue.key) is None
    assert await codes(node, ruling(queue.key, 0)) == [None]
    other = await key_of(node, "unknown")
    gone = QueueKey("g", b"x" * 16, 0)
    assert await codes(node, ruling(other, 0), ruling(gone, 0)) == [
        LOST,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    await asyncio.sleep(0)
    assert node.ctx.queue.queues.find(other) is None, "a receipt makes no queue"
