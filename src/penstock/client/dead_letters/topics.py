"""Lists dead-letter topics and counts their open messages.

A topic is a dead-letter topic if its name ends in `.dlq`, if a group's
`errors.deadletterqueue.topic.name` names it, or if messages of it were settled before.
"""

from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import Admin
from penstock.client.admin.queues import inspect, list_queues
from penstock.client.cluster import Cluster
from penstock.client.dead_letters.open_messages import DEAD_LETTERS, SUFFIX
from penstock.client.errors import check
from penstock.client.list_offsets import partitions_of
from penstock.wire.messages.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

GROUP_RESOURCE = 32
NAME_CONFIG = "errors.deadletterqueue.topic.name"
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    topic: str
    partitions: int
    messages: int
    """Number of open messages."""
    oldest_ms: int | None
    """Time at which the oldest open message was dead-lettered; None if there are none."""


async def list_dead_letter_topics(cluster: Cluster) -> list[DeadLetterTopic]:
    """Returns every dead-letter topic, sorted by name."""
    return [
        await describe_dead_letter_topic(cluster, name)
        for name in await dead_letter_topic_names(cluster)
    ]


async def dead_letter_topic_names(cluster: Cluster) -> list[str]:
    """Topics that end in `.dlq`, have settled messages, or are configured by a group."""
    await cluster.refresh(None)
    names = {name for name in cluster.metadata.topics if name.endswith(SUFFIX)}
    names |= {queue.topic for queue in await list_queues(cluster) if queue.group == DEAD_LETTERS}
    names |= await _configured(cluster)
    return sorted(name for name in names if name in cluster.metadata.topics)


async def describe_dead_letter_topic(cluster: Cluster, topic: str) -> DeadLetterTopic:
    reports = await inspect(cluster, DEAD_LETTERS, await partitions_of(cluster, topic))
    oldest = [report.oldest_ms for report in reports.values() if report.oldest_ms >= 0]
    messages = sum(report.unfinished for report in reports.values())
    return DeadLetterTopic(
        topic, len(reports), messages, min(oldest, default=None) if messages else None
    )


async def _configured(cluster: Cluster) -> set[str]:
    """Dead-letter topics that are configured by groups."""

    async def ask() -> ListConfigResourcesResponse:
        request = ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE])
        reply = await cluster.call(request, ListConfigResourcesResponse)
        check(reply.error_code, about="configs of groups")
        return reply

    try:
        reply = await cluster.retrying(ask)
    except Refused as refused:
        if refused.code in (
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            return set()
        raise
    found = set()
    for row in reply.config_resources:
        if row.resource_type == GROUP_RESOURCE:
            for entry in await Admin(cluster).describe_configs(
                GROUP_RESOURCE, row.resource_name, [NAME_CONFIG]
            ):
                if entry.value:
                    found.add(entry.value)
    return found
