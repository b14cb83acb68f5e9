"""Queues: messages that are ready, leased, delayed or dead-lettered, and their age."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.fair_scheduler import picked
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.visibility import Trend, Visibility, trend_of, visibility_of
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
    """Ready messages by priority from 0 on, for partitions whose queues are open."""
    oldest_ms: int | None
    dead_topic: str
    dead: int | None
    """Open dead letters in `dead_topic`; None if that topic does not exist."""
    trend: Trend
    partitions: list[QueuePartition]


class ConsoleQueues(Struct):
    queues: list[ConsoleQueueRow]


async def list_queues(console: Console, request: Request) -> Response:
    visibility = visibility_of(console.ctx, request)

    async def make() -> ConsoleQueues:
        found = sorted(console.sampler.detail.queues.items())
        scheduler = console.ctx.metadata.scheduler
        return ConsoleQueues(await scheduler.do(visibility.principal.holder, picked(found, shown)))

    def shown(item: tuple[tuple[str, str], QueueStanding]) -> ConsoleQueueRow | None:
        (group, topic), queue = item
        is_seen = visibility.group(group) and visibility.topic(topic)
        return _row(console, visibility, queue) if is_seen else None

    return await console.answers.of(visibility.principal, "queues", make)


def _row(console: Console, visibility: Visibility, queue: QueueStanding) -> ConsoleQueueRow:
    sampler = console.sampler
    dead_topic = console.gateway.dead_letters.topic_of(queue.group, queue.topic)
    dead_letters = sampler.detail.dead_letters.get(dead_topic)
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
        dead_letters.unfinished
        if dead_letters is not None and visibility.topic(dead_topic)
        else None,
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


ROWS = (ConsoleRow("GET", "/queues", "list queues by state and priority", list_queues),)
