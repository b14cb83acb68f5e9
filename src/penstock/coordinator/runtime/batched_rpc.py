"""Gathers what is to be asked of other nodes: while a request is on its way, the next one fills.

Coordinators and logs of one transaction lie on several nodes, and many transactions want the same
of the same node at once. So every node has a queue; up to `LANES` requests to it are on their way
at a time, each over a connection of its own, because one that waits for a commit or for another
transaction's end must not hold up the rest.

Bounds: `ITEMS_MAX` in a request, `QUEUED_MAX` in a queue. Leaves to its user what is asked and what
the answer means: `deliver` tells every item its fate, whatever happens.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

LANES = 4
ITEMS_MAX = 1_000
QUEUED_MAX = 100_000

Item = TypeVar("Item")
Deliver: TypeAlias = Callable[[int, str, list[Item]], Awaitable[None]]
"""Asks one node, over one lane, about all of these; it must not raise."""


class BatchedRpc(Generic[Item]):
    """The ways to all nodes, for one kind of request."""

    def __init__(
        self, name: str, deliver: Callable[[int, str, list[Item]], Awaitable[None]]
    ) -> None:
        """`deliver(node, lane, items)` asks one node; it must not raise."""
        self._name = name
        self._deliver = deliver
        self._queues: dict[int, deque[Item]] = {}
        self._free: dict[int, list[str]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failed.add_done_callback(_reveal_nothing)

    @property
    def queued(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def send(self, node_id: int, item: Item) -> bool:
        """Has it asked soon; False when too much waits for that node already."""
        queue = self._queues.setdefault(node_id, deque())
        if len(queue) >= QUEUED_MAX:
            return False
        queue.append(item)
        if len(queue) == 1:
            # What others send in the same turn goes along.
            asyncio.get_running_loop().call_soon(self._set_off, node_id)
        return True

    def _set_off(self, node_id: int) -> None:
        queue = self._queues[node_id]
        free = self._free.get(node_id)
        if free is None:
            free = self._free[node_id] = [f"{self._name}-{number}" for number in range(LANES)]
        while queue and free:
            lane = free.pop()
            items = [queue.popleft() for _ in range(min(len(queue), ITEMS_MAX))]
            task = asyncio.get_running_loop().create_task(self._carry(node_id, lane, items))
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    async def _carry(self, node_id: int, lane: str, items: list[Item]) -> None:
        try:
            await self._deliver(node_id, lane, items)
        finally:
            self._free[node_id].append(lane)
        self._set_off(node_id)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled() or self._failed.done():
            return
        error = task.exception()
        if error is not None:
            self._failed.set_exception(error)

    async def run(self) -> None:
        """Until cancelled; raises what broke a delivery."""
        try:
            await asyncio.shield(self._failed)
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _reveal_nothing(failed: "asyncio.Future[None]") -> None:
    if not failed.cancelled():
        failed.exception()
