"""Queues for the gateway protocols: list them, and count their messages.

A queue is a topic as read by a share group. All nodes together know the list
(`coordinator.groups_by_topic`); the leaders of a queue's partitions know its counts.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps, picked
from penstock.base.retry import Retry
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.errors import code_of
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.groups_by_topic import PositionKind
from penstock.gateway.core import coordinator_calls
from penstock.gateway.core.leader_calls import LeaderCalls
from penstock.gateway.core.permissions import Principal, may, require_group, require_topic
from penstock.gateway.core.topics import topic_config
from penstock.wire.messages.internal.queue_admin import (
    InspectedPartition,
    InspectQueuesRequest,
    InspectQueuesResponse,
    QueueReport,
)

GROUP = "sqs.group"
VERSION = 0
RETRY_SECONDS = 5.0
PAUSE_SECONDS = (0.1, 0.5)
MOVING = (
    *coordinator_calls.MOVING,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


def queue_group(topic: TopicImage, configs: BrokerConfigs) -> str:
    """Returns the share group that receives from a queue if a client names none."""
    group = topic_config(topic, GROUP, configs)
    assert isinstance(group, str)
    return group


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """Message counts of a queue, all partitions together."""

    topic: str
    group: str
    ready: int
    """Available now."""
    leased: int
    delayed: int
    """Not due yet, or waiting for their next delivery after a failure."""
    given_up: int
    """Waiting to be dead-lettered."""
    unfinished: int
    """Sum of all of these."""
    oldest_ms: int | None
    """Timestamp of the oldest unfinished message."""
    partitions: Sequence[QueueReport]


class Queues:
    """Lists and inspects the queues of the cluster."""

    def __init__(self, ctx: Context, leaders: LeaderCalls) -> None:
        self._ctx = ctx
        self._leaders = leaders

    async def all(
        self, principal: Principal, topic: str | None = None, group: str | None = None
    ) -> list[tuple[str, str]]:
        """Returns topic and group of every queue that `principal` may describe."""
        listing = await self._ctx.queue.positions.everywhere(
            None if topic is None else [topic], (PositionKind.SHARE,), principal.holder
        )

        def seen() -> Steps[list[tuple[str, str]]]:
            names = set()
            for row in listing.positions:
                yield
                if group in (None, row.group):
                    names.add((row.topic, row.group))
            return (yield from picked(sorted(names), visible))

        def visible(name: tuple[str, str]) -> tuple[str, str] | None:
            is_seen = may(
                self._ctx, principal, Operation.DESCRIBE, ResourceType.TOPIC, name[0]
            ) and may(self._ctx, principal, Operation.DESCRIBE, ResourceType.GROUP, name[1])
            return name if is_seen else None

        return await self._ctx.metadata.scheduler.do(principal.holder, seen())

    async def one(self, principal: Principal, topic: str, group: str) -> QueueStanding:
        """Returns a queue's counts; raises Refused if a leader does not answer."""
        require_topic(self._ctx, principal, Operation.DESCRIBE, topic)
        require_group(self._ctx, principal, Operation.DESCRIBE, group)
        there = self._ctx.image.topics.get(topic)
        if there is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
        reports = await self._reports(principal, there, group)
        oldest = [row.oldest_ms for row in reports if row.oldest_ms >= 0]
        return QueueStanding(
            topic,
            group,
            sum(row.ready for row in reports),
            sum(row.leased for row in reports),
            sum(row.delayed for row in reports),
            sum(row.given_up for row in reports),
            sum(row.unfinished for row in reports),
            min(oldest, default=None),
            reports,
        )

    async def _reports(
        self, principal: Principal, topic: TopicImage, group: str
    ) -> list[QueueReport]:
        """Returns a report of each partition; retries for a while if leaders are moving."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_SECONDS
        retry = Retry(self._ctx.random, *PAUSE_SECONDS)
        while True:
            answers = await self._leaders.ask(
                principal,
                topic,
                range(len(topic.partitions)),
                lambda indexes: InspectQueuesRequest(
                    group_id=group,
                    topic=topic.name,
                    partitions=[InspectedPartition(partition=at) for at in indexes],
                ),
                InspectQueuesResponse,
                version=VERSION,
            )
            rows = [row for answer in answers for row in answer.partitions]
            refused = [row for row in rows if row.error_code]
            if not refused and len(rows) == len(topic.partitions):
                return sorted(rows, key=lambda row: row.partition)
            is_moving = all(code_of(row.error_code) in MOVING for row in refused)
            if not is_moving or loop.time() >= deadline:
                break
            await retry.pause()
        if refused:
            raise Refused(code_of(refused[0].error_code), refused[0].error_message)
        raise Refused(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"some partitions of {topic.name} have no leader: retry later",
        )
