"""Receiving from several nodes at once: one gives records, and those of the others are returned.

Over real nodes, and through failures: `tests/sim/test_cluster_gateways.py`. Here are rare races.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.queues.receive import ReceiveRequest, Taken
from penstock.coordinator.queues.record_reader import LeasedBatches
from penstock.coordinator.queues.router import QueueRouter
from penstock.coordinator.queues.settle import SettleAction, SettleCommand
from penstock.state.queues.delivery_state import LeaseState
from penstock.state.queues.state_shard import QueueKey
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node

WANTED = ReceiveRequest("m", 10, 1 << 20, wait_ms=60_000)
KEYS = {node: [QueueKey("g", b"t" * 16, node)] for node in (1, 2, 3)}


class Race(QueueRouter):
    """Three nodes, of which some give at the very same moment, and some never."""

    def __init__(self, node: Node, giving: set[int]) -> None:
        super().__init__(node.around, node.ctx.queue.queues)
        self.giving = giving
        self.settled: list[tuple[int, SettleCommand]] = []
        self.start = asyncio.Event()

    def _take_at(
        self, node_id: int, keys: Sequence[QueueKey], wanted: ReceiveRequest
    ) -> Coroutine[Any, Any, Taken]:
        async def take() -> Taken:
            await self.start.wait()
            if node_id not in self.giving:
                await asyncio.Event().wait()
            lease = LeaseState(7, 8, wanted.member, 1, 1)
            return Taken({key: LeasedBatches(leases=[lease]) for key in keys})

        return take()

    async def _settle_at(
        self, node_id: int, rulings: Sequence[SettleCommand]
    ) -> list[Refused | None]:
        self.settled += [(node_id, ruling) for ruling in rulings]
        return [None] * len(rulings)


@pytest.mark.parametrize("giving", [{1}, {3}, {1, 2}, {1, 2, 3}], ids=str)
@run_with(on_node, configs=CONFIGS)
async def test_one_node_gives_records_and_the_rest_are_returned(
    node: Node, *, giving: set[int]
) -> None:
    race = Race(node, giving)
    waiting = asyncio.ensure_future(race._wait_for_first(KEYS, WANTED))
    await asyncio.sleep(1)
    race.start.set()
    taken = await waiting
    await asyncio.sleep(1)
    (kept,) = (key.partition for key in taken.found)
    assert {node_id for node_id, _ in race.settled} == giving - {kept}
    for _, ruling in race.settled:
        assert ruling[1:5] == ("m", 7, 8, SettleAction.GIVE_BACK)


@run_with(on_node, configs=CONFIGS)
async def test_empty_wait_at_several_nodes_asks_each_twice(node: Node) -> None:
    """Once in turn without waiting, once to wait."""

    asked: list[tuple[int, bool]] = []

    class Empty(QueueRouter):
        def _by_leader(self, keys: Sequence[QueueKey]) -> tuple[dict[int, list[QueueKey]], Taken]:
            return KEYS, Taken()

        def _take_at(
            self, node_id: int, keys: Sequence[QueueKey], wanted: ReceiveRequest
        ) -> Coroutine[Any, Any, Taken]:
            async def take() -> Taken:
                asked.append((node_id, wanted.wait_ms > 0))
                await asyncio.sleep(wanted.wait_ms / 1000)
                return Taken()

            return take()

    reach = Empty(node.around, node.ctx.queue.queues)
    keys = [key for some in KEYS.values() for key in some]
    waits: list[int] = []
    taken = await reach.take(keys, WANTED, lambda: waits.append(1))
    assert not taken.found
    assert sorted(asked) == [(n, waits) for n in (1, 2, 3) for waits in (False, True)]
    assert waits == [1]


@run_with(on_node, configs=CONFIGS)
async def test_cancelled_receive_returns_all_records(node: Node) -> None:
    race = Race(node, {1, 2, 3})
    waiting = asyncio.ensure_future(race._wait_for_first(KEYS, WANTED))
    await asyncio.sleep(1)
    race.start.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(1)
    if waiting.cancelled():
        assert {node_id for node_id, _ in race.settled} in ({1, 2, 3}, set())


@run_with(on_node, configs=CONFIGS)
async def test_leaderless_queues_are_the_reason_only_if_there_are_no_others(
    node: Node,
) -> None:
    await node.create("t", 1)
    there = QueueKey("g", node.ctx.image.topics["t"].id, 0)
    nowhere = there._replace(partition=5)
    started = asyncio.get_running_loop().time()
    wanted = ReceiveRequest("m", 10, 1 << 20, wait_ms=2_000)
    taken = await node.ctx.queue.queue_router.take([there, nowhere], wanted)
    assert (taken.found, taken.refused) == ({}, {})
    assert asyncio.get_running_loop().time() - started >= 2
    taken = await node.ctx.queue.queue_router.take([nowhere], ReceiveRequest("m", 10, 1 << 20))
    assert taken.refused[nowhere].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Unreadable(QueueRouter):
    """Two nodes of which neither can read the state of its queues; they say so one by one."""

    def _by_leader(self, keys: Sequence[QueueKey]) -> tuple[dict[int, list[QueueKey]], Taken]:
        return {key.partition: [key] for key in keys}, Taken()

    def _take_at(
        self, node_id: int, keys: Sequence[QueueKey], wanted: ReceiveRequest
    ) -> Coroutine[Any, Any, Taken]:
        async def take() -> Taken:
            await asyncio.sleep(wanted.wait_ms / 1000 * node_id)
            why = Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"node {node_id} cannot")
            return Taken(refused=dict.fromkeys(keys, why), is_partial=True)

        return take()


@run_with(on_node, configs=CONFIGS)
async def test_long_wait_ends_with_the_reason_common_to_all_nodes(node: Node) -> None:
    reach = Unreadable(node.around, node.ctx.queue.queues)
    keys = [*KEYS[1], *KEYS[2]]
    taken = await reach.take(keys, ReceiveRequest("m", 10, 1 << 20, wait_ms=3_000))
    assert set(taken.refused) == set(keys)


@run_with(on_node, configs=CONFIGS)
async def test_receive_of_a_deleted_topic_is_refused_at_once(node: Node) -> None:
    await node.create("t", 2)
    topic_id = node.ctx.image.topics["t"].id
    keys = [QueueKey("g", topic_id, index) for index in range(2)]
    waiting = asyncio.ensure_future(node.ctx.queue.queue_router.take(keys, WANTED))
    await asyncio.sleep(5)
    await node.delete("t")
    started = asyncio.get_running_loop().time()
    taken = await waiting
    assert {refused.code for refused in taken.refused.values()} == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert asyncio.get_running_loop().time() - started < 2


class MovingLeader(QueueRouter):
    """Settles, but its leader dies before it answers; the next leader finds no lease."""

    def __init__(self, node: Node, found: Refused | None) -> None:
        super().__init__(node.around, node.ctx.queue.queues)
        self.answers = [Refused(ErrorCode.LEADER_NOT_AVAILABLE), found]

    def _leader_of(self, key: QueueKey) -> int:
        return 1

    async def _settle_at(
        self, node_id: int, rulings: Sequence[SettleCommand]
    ) -> list[Refused | None]:
        return [self.answers.pop(0)]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Refused(ErrorCode.INVALID_RECORD_STATE), ErrorCode.REQUEST_TIMED_OUT),
        (Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (None, None),
    ],
)
@run_with(on_node, configs=CONFIGS)
async def test_settlement_has_an_unknown_outcome_if_its_leader_died(
    node: Node, *, found: Refused | None, code: ErrorCode | None
) -> None:
    ruling = SettleCommand(KEYS[1][0], "m", 7, 7, SettleAction.ACCEPT)
    (answer,) = await MovingLeader(node, found).settle([ruling])
    assert (None if answer is None else answer.code) is code
