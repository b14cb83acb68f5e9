"""Queues: what waits, what is held, what is put off, what died, and since when."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.console import Console
from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.visibility import Visibility, sight_of
from penstock.gateway.console.visible_samples import Trend, trend_of
from penstock.gateway.core.queues import QueueStanding


class QueuePartition(Struct):
    partition: int
    ready: int
    leased: int
    delayed: int
    given_up: int
    unfinished: int
    oldest_ms: int | None


class ConsoleQueueRow(Struct):
    topic: str
    group: str
    ready: int
    leased: int
    delayed: int
    given_up: int
    unfinished: int
    by_priority: list[int]
    """Of those that are ready: how many of priority 0, 1, and so on; as far as queues are open."""
    oldest_ms: int | None
    dead_topic: str
    dead: int | None
    """Open dead letters of the topic they go to; None: there is no such topic."""
    trend: Trend
    partitions: list[QueuePartition]


class ConsoleQueues(Struct):
    queues: list[ConsoleQueueRow]


async def list_queues(console: Console, request: Request) -> Response:
    sight = sight_of(console.ctx, request)

    async def make() -> ConsoleQueues:
        rows = [
            _row(console, sight, queue)
            for (group, topic), queue in sorted(console.sampler.detail.queues.items())
            if sight.group(group) and sight.topic(topic)
        ]
        return ConsoleQueues(rows)

    return await console.answers.of(sight.principal, "queues", make)


def _row(console: Console, sight: Visibility, queue: QueueStanding) -> ConsoleQueueRow:
    sampler = console.sampler
    dead_topic = console.gateway.dead_letters.topic_of(queue.group, queue.topic)
    letters = sampler.detail.letters.get(dead_topic)
    priorities = [0] * max((len(row.ready_by_priority) for row in queue.partitions), default=0)
    for row in queue.partitions:
        for priority, count in enumerate(row.ready_by_priority):
            priorities[priority] += count
    return ConsoleQueueRow(
        queue.topic,
        queue.group,
        queue.ready,
        queue.leased,
        queue.delayed,
        queue.given_up,
        queue.unfinished,
        priorities,
        queue.oldest_ms,
        dead_topic,
        letters.unfinished if letters is not None and sight.topic(dead_topic) else None,
        trend_of(sampler.samples, [(queue.group, queue.topic)]),
        [
            QueuePartition(
                row.partition,
                row.ready,
                row.leased,
                row.delayed,
                row.given_up,
                row.unfinished,
                row.oldest_ms if row.oldest_ms >= 0 else None,
            )
            for row in queue.partitions
        ],
    )


ROWS = (ConsoleRow("GET", "/queues", "every queue, by state and priority", list_queues),)
