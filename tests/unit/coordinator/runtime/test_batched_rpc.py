"""Questions to other nodes: gathered, spread over lanes, bounded."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.coordinator.runtime.batched_rpc import ITEMS_MAX, LANES, QUEUED_MAX, BatchedRpc
from simulation.loop import SimLoop, run


class Road:
    """Notes what is delivered; a delivery takes a second of virtual time."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[float, int, str, list[int]]] = []
        self.courier: BatchedRpc[int] = BatchedRpc("road", self.deliver)

    async def deliver(self, node_id: int, lane: str, items: list[int]) -> None:
        began_s = asyncio.get_running_loop().time()
        self.deliveries.append((began_s, node_id, lane, items))
        await asyncio.sleep(1)


def on_road(test: Callable[[Road], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        await test(Road())

    run(main)


def test_what_is_sent_in_one_turn_travels_together() -> None:
    async def test(road: Road) -> None:
        for number in range(5):
            assert road.courier.send(1, number)
            assert road.courier.send(2, 10 * number)
        await asyncio.sleep(0.5)
        assert [(node, items) for _, node, _, items in road.deliveries] == [
            (1, [0, 1, 2, 3, 4]),
            (2, [0, 10, 20, 30, 40]),
        ]

    on_road(test)


def test_one_that_waits_does_not_hold_up_the_next_until_all_lanes_are_taken() -> None:
    async def test(road: Road) -> None:
        for number in range(LANES + 5):
            road.courier.send(1, number)
            await asyncio.sleep(0.01)
        assert len(road.deliveries) == LANES
        assert len({lane for _, _, lane, _ in road.deliveries}) == LANES
        assert road.courier.queued == 5
        await asyncio.sleep(1)
        assert len(road.deliveries) == LANES + 1, "what waited goes together"
        assert road.deliveries[-1][3] == list(range(LANES, LANES + 5))
        assert road.courier.queued == 0

    on_road(test)


def test_a_request_has_no_more_than_so_many_items() -> None:
    async def test(road: Road) -> None:
        for number in range(ITEMS_MAX + 1):
            road.courier.send(1, number)
        await asyncio.sleep(0.1)
        assert sorted(len(items) for _, _, _, items in road.deliveries) == [1, ITEMS_MAX]

    on_road(test)


def test_a_queue_that_is_full_takes_no_more() -> None:
    async def test(road: Road) -> None:
        taken = [road.courier.send(1, number) for number in range(QUEUED_MAX + 2)]
        assert taken == [True] * QUEUED_MAX + [False] * 2
        assert road.courier.send(2, 0), "another node's is not"

    on_road(test)


def test_a_bug_in_a_delivery_ends_the_courier() -> None:
    async def main(loop: SimLoop) -> None:
        async def deliver(node_id: int, lane: str, items: list[int]) -> None:
            raise ValueError("a bug")

        courier: BatchedRpc[int] = BatchedRpc("road", deliver)
        running = asyncio.ensure_future(courier.run())
        courier.send(1, 1)
        with pytest.raises(ValueError, match="a bug"):
            await asyncio.wait_for(running, 1)

    run(main)


def test_a_courier_that_is_ended_takes_its_deliveries_along() -> None:
    async def test(road: Road) -> None:
        running = asyncio.ensure_future(road.courier.run())
        road.courier.send(1, 1)
        await asyncio.sleep(0.5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not [task for task in asyncio.all_tasks() if "_carry" in repr(task)]

    on_road(test)
