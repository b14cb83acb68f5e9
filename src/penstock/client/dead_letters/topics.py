"""Lists dead-letter topics, counts their open messages and groups them by what they share.

A topic is a dead-letter topic if its name ends in `.dlq`, if a group's
`errors.deadletterqueue.topic.name` names it, or if messages of it were settled before.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import Admin
from penstock.client.admin.queues import inspect, list_queues
from penstock.client.cluster import Cluster
from penstock.client.dead_letters.message import DeadLetterMessage
from penstock.client.dead_letters.open import DEAD_LETTERS, SUFFIX
from penstock.client.dead_letters.templates import Templates
from penstock.client.errors import check
from penstock.client.list_offsets import partitions_of
from penstock.wire.messages.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

GROUP_RESOURCE = 32
NAME_CONFIG = "errors.deadletterqueue.topic.name"
HOUR_MS = 3_600_000
KINDS_MAX = 10_000
"""Limits the kinds that are counted separately; messages of further kinds are counted together."""
OTHER_KINDS = "(others)"


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


# -- kinds of messages ------------------------------------------------------------------------


@dataclass(slots=True)
class DeadLetterKind:
    """Messages with the same values of the chosen aspect."""

    name: tuple[str, ...]
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    sample: str = ""
    """Id of the first message, as an example."""

    def add(self, message: DeadLetterMessage) -> None:
        at_ms = message.last_failure_ms if message.last_failure_ms > 0 else message.timestamp_ms
        if not self.count:
            self.first_ms = self.last_ms = at_ms
            self.sample = message.id
        self.count += 1
        self.first_ms, self.last_ms = min(self.first_ms, at_ms), max(self.last_ms, at_ms)


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode("utf-8", "replace")


ASPECTS: dict[str, tuple[tuple[str, ...], Callable[[DeadLetterMessage], tuple[str, ...]]]] = {
    "error": (("error", "message"), lambda message: (message.error_class, message.error_message)),
    # The message is the template of similar messages, which `DeadLetterKinds` finds.
    "template": (("error", "message"), lambda message: (message.error_class,)),
    "class": (("error",), lambda message: (message.error_class,)),
    "key": (("key",), lambda message: (_text(message.key),)),
    "group": (("group",), lambda message: (message.group,)),
    "source": (
        ("topic", "partition"),
        lambda message: (
            (message.source.topic, str(message.source.partition)) if message.source else ("-", "-")
        ),
    ),
    "redrives": (("redrives",), lambda message: (str(message.redrives),)),
}
"""Aspects to group messages by: names of the columns, and a function that returns their values."""


class DeadLetterKinds:
    """Counts messages by one aspect."""

    def __init__(self, aspect: str) -> None:
        self.columns, self._name_of = ASPECTS[aspect]
        self._kinds: dict[tuple[str, ...], DeadLetterKind] = {}
        self._templates = Templates() if aspect == "template" else None
        self.count = 0

    def add(self, message: DeadLetterMessage) -> None:
        self.count += 1
        name = self._name_of(message)
        if self._templates is not None:
            name = (*name, str(self._templates.add(name[0], message.error_message)))
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                name = (OTHER_KINDS, *("" for _ in self.columns[1:]))
            kind = self._kinds.setdefault(name, DeadLetterKind(name))
        kind.add(message)

    def largest(self) -> list[DeadLetterKind]:
        kinds = list(self._kinds.values())
        if self._templates is not None:
            kinds = [
                replace(kind, name=(kind.name[0], self._templates.text(int(kind.name[1]))))
                if kind.name[1]
                else kind
                for kind in kinds
            ]
        return sorted(kinds, key=lambda kind: (-kind.count, kind.name))
