"""Looking into queues, finishing records without a lease, offering them again."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues import inspection
from penstock.coordinator.queues.policy import DEAD_LETTERS
from penstock.state.queues.inspection import Run, RunState
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, change, key_of, on_node, opened, take


@run_with(on_node, configs=CONFIGS)
async def test_inspection_opens_no_queue_and_sees_the_same(node: Node) -> None:
    queue = await opened(node, 8)
    await take(queue, count=4)
    await change(queue, lambda m, now: m.accept("a", 0, 1, now))
    seen = await inspection.inspect(node.ctx.queue.queues, queue.key, 0, 10)
    assert (seen.start, seen.unfinished, seen.leased, seen.ready) == (2, 6, 2, 4)
    assert [run[:3] for run in seen.runs] == [
        (2, 3, RunState.LEASED),
        (4, 7, RunState.WAITING),
    ]
    assert (seen.oldest_ms, seen.is_open) == (1_000, True)
    queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    again = await inspection.inspect(node.ctx.queue.queues, queue.key, 0, 10)
    assert (again.start, again.unfinished, again.runs) == (2, 6, seen.runs)
    assert not again.is_open
    assert node.ctx.queue.queues.find_quietly(queue.key) is None


@run_with(on_node, configs=CONFIGS)
async def test_group_without_a_position_cannot_be_inspected(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 3)
    seen = await inspection.inspect(node.ctx.queue.queues, await key_of(node))
    assert (seen.start, seen.unfinished, seen.high_watermark) == (-1, 0, 3)
    with pytest.raises(Refused):
        await inspection.finish(node.ctx.queue.queues, await key_of(node), [(0, 0)])


@run_with(on_node, configs=CONFIGS)
async def test_all_dead_letters_are_open_until_one_is_finished(node: Node) -> None:
    await node.create("t", 1)
    await node.produce("t", 5)
    key = await key_of(node, DEAD_LETTERS)
    queues = node.ctx.queue.queues
    assert (await inspection.inspect(queues, key)).unfinished == 5
    assert queues.find_quietly(key) is None
    assert await inspection.finish(queues, key, [(1, 2), (4, 4)]) == 3
    assert await inspection.finish(queues, key, [(2, 3)]) == 1
    seen = await inspection.inspect(queues, key, 0, 10)
    assert seen.runs == [Run(0, 0, RunState.WAITING)]


@run_with(on_node, configs=CONFIGS)
async def test_finished_records_stay_finished_after_reopening(node: Node) -> None:
    queue = await opened(node, 6)
    await inspection.finish(node.ctx.queue.queues, queue.key, [(0, 2), (4, 4)])
    queue.close(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    again = await node.ctx.queue.queues.open(queue.key)
    assert (await take(again)).offsets == [3, 5]


@run_with(on_node, configs=CONFIGS)
async def test_finished_records_are_offered_again_and_leased_ones_stay_leased(node: Node) -> None:
    queue = await opened(node, 8)
    await take(queue, "a", 6)
    await change(queue, lambda m, now: m.accept("a", 0, 3, now))
    assert await inspection.offer_again(node.ctx.queue.queues, queue.key, [(2, 7)]) == 2
    again = await node.ctx.queue.queues.open(queue.key)
    assert (await take(again, "b")).offsets == [2, 3, 6, 7]
    assert await change(again, lambda m, now: m.accept("a", 4, 5, now)) is None


@run_with(on_node, configs=CONFIGS)
async def test_deleted_records_are_not_offered_again(node: Node) -> None:
    queue = await opened(node, 6)
    await take(queue)
    await change(queue, lambda m, now: m.accept("a", 0, 5, now))
    await queue.partition.delete_before(4)
    assert await inspection.offer_again(node.ctx.queue.queues, queue.key, [(0, 5)]) == 2
    seen = await inspection.inspect(node.ctx.queue.queues, queue.key, 0, 10)
    assert seen.runs == [Run(4, 5, RunState.WAITING)]


@pytest.mark.parametrize("runs", [[(0, 5)], [(3, 2)], [(-1, 0)], [(0, 0)] * 10_001])
@run_with(on_node, configs=CONFIGS)
async def test_invalid_ranges_are_refused(node: Node, *, runs: list[tuple[int, int]]) -> None:
    queue = await opened(node, 5)
    for change_them in (inspection.finish, inspection.offer_again):
        with pytest.raises(Refused):
            await change_them(node.ctx.queue.queues, queue.key, runs)


@run_with(on_node, configs=CONFIGS)
async def test_records_are_withdrawn_only_if_none_was_delivered(node: Node) -> None:
    queue = await opened(node, 8)
    await take(queue, "a", 3)
    await change(queue, lambda m, now: m.accept("a", 0, 0, now))
    await change(queue, lambda m, now: m.release("a", 1, 1, now))
    for touched in (0, 1, 2):
        assert await inspection.withdraw(node.ctx.queue.queues, queue.key, [(touched, 4)]) == 0
    assert await inspection.withdraw(node.ctx.queue.queues, queue.key, [(3, 4), (6, 6)]) == 3
    seen = await inspection.inspect(node.ctx.queue.queues, queue.key, 0, 10)
    waiting = [run[:2] for run in seen.runs if run.state is RunState.WAITING]
    assert waiting == [(5, 5), (7, 7)]
    assert await inspection.withdraw(node.ctx.queue.queues, queue.key, [(3, 3)]) == 0
