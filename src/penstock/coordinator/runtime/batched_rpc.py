"""Batched requests to other nodes: items for one node share a request.

`BatchedRpc` batches over time: every node has a queue, and while a request is in flight, the next
one fills. Coordinators and logs of one transaction are on several nodes, and many transactions ask
the same node at once. Up to `channels` requests to a node are in flight at a time, each over a
connection of its own, because one that waits for a commit or for another transaction's end must not
delay the rest. With one channel, and a delivery that returns once it has sent, items arrive in the
order in which they were sent.

`scatter` and `ask_for_each` are for callers that have all items at hand: by leader, all leaders at
once, some items in each request, one answer for each item.

Bounds: `ITEMS_MAX` or about `bytes_max` in a request, `QUEUED_MAX` in a queue. The caller defines
requests and the meaning of answers: `deliver` gives every item its result, whatever happens.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId
from penstock.base.task_set import TaskSet
from penstock.cluster.metadata.image import Image
from penstock.cluster.replication.peer_connections import PEER_ERRORS, PeerConnections

CHANNELS = 4
ITEMS_MAX = 1_000
QUEUED_MAX = 100_000

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class BatchedRpc(Generic[Item]):
    """Queues of items and channels to all nodes, for one kind of request."""

    def __init__(
        self,
        name: str,
        deliver: Callable[[int, str, list[Item]], Awaitable[None]],
        *,
        channels: int = CHANNELS,
        size_of: Callable[[Item], int] | None = None,
        bytes_max: int = 0,
    ) -> None:
        """`deliver(node, channel, items)` sends a request to one node; it must not raise."""
        self._name = name
        self._deliver = deliver
        self._channels = channels
        self._size_of = size_of
        self._bytes_max = bytes_max
        self._queues: dict[int, deque[Item]] = {}
        self._free: dict[int, list[str]] = {}
        self._tasks = TaskSet()

    @property
    def queued(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def send(self, node_id: int, item: Item) -> bool:
        """Queues an item; False if the node's queue is full."""
        queue = self._queues.setdefault(node_id, deque())
        if len(queue) >= QUEUED_MAX:
            return False
        queue.append(item)
        if len(queue) == 1:
            # Items of the same turn go into the same request.
            asyncio.get_running_loop().call_soon(self._set_off, node_id)
        return True

    def withdraw(self, node_id: int) -> list[Item]:
        """Removes and returns a node's queued items, so that they do not overtake failed ones."""
        queue = self._queues.get(node_id, deque())
        items = list(queue)
        queue.clear()
        return items

    def _set_off(self, node_id: int) -> None:
        queue = self._queues[node_id]
        free = self._free.get(node_id)
        if free is None:
            free = self._free[node_id] = [f"{self._name}-{n}" for n in range(self._channels)]
        while queue and free:
            channel = free.pop()
            items = self._take(queue)
            self._tasks.start(self._carry(node_id, channel, items))

    def _take(self, queue: deque[Item]) -> list[Item]:
        if self._size_of is None:
            return [queue.popleft() for _ in range(min(len(queue), ITEMS_MAX))]
        items: list[Item] = []
        size = 0
        while queue and len(items) < ITEMS_MAX and size < self._bytes_max:
            item = queue.popleft()
            size += self._size_of(item)
            items.append(item)
        return items

    async def _carry(self, node_id: int, channel: str, items: list[Item]) -> None:
        try:
            await self._deliver(node_id, channel, items)
        finally:
            self._free[node_id].append(channel)
        self._set_off(node_id)

    async def run(self) -> None:
        """Sends queued items until cancelled; raises the error that ended a delivery."""
        try:
            await self._tasks.failure()
        finally:
            await self._tasks.cancel()


# -- all items at hand ----------------------------------------------------------------------------
# ----------------------------------------------------------------------------


def leader_of(image: Image, topic_id: TopicId, partition: int) -> int:
    """Returns the node that leads a partition. Raises Refused if there is none."""
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= partition < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = topic.partitions[partition].leader
    if leader not in image.brokers:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE)
    return leader


async def scatter(
    items: Sequence[Item],
    leader_of: Callable[[Item], int],
    ask: Callable[[int, list[Item]], Awaitable[Sequence[Answer]]],
) -> list[Answer | Refused]:
    """Returns one answer for each item, in order; asks every node before it awaits an answer.

    `leader_of` may raise Refused, which is the answer then.
    """
    by_node: dict[int, list[int]] = {}
    answers: list[Any] = [None] * len(items)
    for at, item in enumerate(items):
        try:
            by_node.setdefault(leader_of(item), []).append(at)
        except Refused as refused:
            answers[at] = refused
    asked = [ask(node, [items[at] for at in places]) for node, places in by_node.items()]
    found = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)
    for places, some in zip(by_node.values(), found, strict=True):
        for at, answer in zip(places, some, strict=True):
            answers[at] = answer
    return answers


class Answered(Protocol):
    """Response with one answer for each item of its request."""

    answers: Any


async def ask_for_each(
    peers: PeerConnections,
    node_id: int,
    items: Sequence[Item],
    request: Callable[[Sequence[Item]], object],
    response: type[Answered],
    meaning: Callable[[Any], Answer],
    *,
    at_once: int,
    channel: str,
    version: int,
    timeout_ms: int,
    unreached: ErrorCode,
) -> list[Answer | Refused]:
    """Returns one answer of another node for each item, with `at_once` items in a request.

    If the outcome of a request is unknown, each of its items is refused as `unreached`.
    """
    answers: list[Answer | Refused] = []
    for start in range(0, len(items), at_once):
        some = items[start : start + at_once]
        try:
            told = await peers.ask(
                node_id,
                request(some),
                response,
                channel=channel,
                version=version,
                timeout_ms=timeout_ms,
            )
            check_count(told.answers, some)
        except PEER_ERRORS as error:
            why = f"node {node_id} does not answer: {error}"
            answers += [Refused(unreached, why)] * len(some)
            continue
        answers += [meaning(answer) for answer in told.answers]
    return answers


def check_count(answers: Sequence[object], items: Sequence[object]) -> None:
    """Raises PeerError unless there is one answer for each item."""
    if len(answers) != len(items):
        raise PeerError(f"{len(answers)} answers to {len(items)} items")
