"""Queues through a door: which there are, and how each stands.

A queue is a topic as a share group reads it. Which there are is kept all over the cluster
(`coordinator.groups_by_topic`); how one stands, the leaders of its partitions know.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.retry import Retry
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.errors import code_of
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.groups_by_topic import PositionKind
from penstock.gateway.core import coordinator_calls
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.configs import topic_config
from penstock.gateway.core.leader_calls import LeaderCalls
from penstock.gateway.core.permissions import may, require_group, require_topic
from penstock.wire.messages.internal.queue_admin import (
    InspectedPartition,
    InspectQueuesRequest,
    InspectQueuesResponse,
    QueueReport,
)

GROUP = "sqs.group"
VERSION = 0
PATIENCE_SECONDS = 5.0
PAUSE_SECONDS = (0.1, 0.5)
MOVING = (
    *coordinator_calls.MOVING,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


def queue_group(topic: TopicImage, configs: BrokerConfigs) -> str:
    """The share group that receives from a queue where a client does not name one."""
    group = topic_config(topic, GROUP, configs)
    assert isinstance(group, str)
    return group


@dataclass(frozen=True, slots=True)
class QueueStanding:
    """How a group stands in a topic, all partitions together."""

    topic: str
    group: str
    ready: int
    """To be had now."""
    leased: int
    delayed: int
    """Not due yet, or waiting for their next try."""
    given_up: int
    """On their way to the dead letters."""
    unfinished: int
    """All of these together."""
    oldest_ms: int | None
    """The timestamp of the oldest that is not finished."""
    partitions: Sequence[QueueReport]


class Queues:
    """The queues of the cluster."""

    def __init__(self, ctx: Context, leaders: LeaderCalls) -> None:
        self._ctx = ctx
        self._leaders = leaders

    async def all(
        self, principal: Principal, topic: str | None = None, group: str | None = None
    ) -> list[tuple[str, str]]:
        """Topic and group of every queue that the caller may see, of one topic or group or all."""
        listing = await self._ctx.queue.positions.everywhere(None if topic is None else [topic])
        names = {
            (row.topic, row.group)
            for row in listing.positions
            if row.kind is PositionKind.SHARE and group in (None, row.group)
        }
        return [
            name
            for name in sorted(names)
            if may(self._ctx, principal, Operation.DESCRIBE, ResourceType.TOPIC, name[0])
            and may(self._ctx, principal, Operation.DESCRIBE, ResourceType.GROUP, name[1])
        ]

    async def one(self, principal: Principal, topic: str, group: str) -> QueueStanding:
        """How a queue stands; refuses if some leader does not say."""
        require_topic(self._ctx, principal, Operation.DESCRIBE, topic)
        require_group(self._ctx, principal, Operation.DESCRIBE, group)
        there = self._ctx.image.topics.get(topic)
        if there is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
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
        """One for each partition; asks again for a while where something is moving."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
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
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"some of {topic.name} has no leader")
