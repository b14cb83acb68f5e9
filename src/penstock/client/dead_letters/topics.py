"""Topics of dead letters: which there are, how full each is, and what its letters have in common.

A topic is one by its name (`.dlq`), because a group's `errors.deadletterqueue.topic.name` says so,
or because letters of it were settled before.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import Admin
from penstock.client.admin.queues import inspect, list_queues
from penstock.client.cluster import Cluster
from penstock.client.dead_letters.letter import DeadLetterMessage
from penstock.client.dead_letters.open import DEAD_LETTERS, SUFFIX
from penstock.client.errors import check
from penstock.client.list_offsets import places_of
from penstock.wire.messages.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

GROUP_RESOURCE = 32
NAME_CONFIG = "errors.deadletterqueue.topic.name"
HOUR_MS = 3_600_000
KINDS_MAX = 10_000
"""Kinds of letters that are told apart; the rest is counted together."""
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    topic: str
    partitions: int
    letters: int
    """Open ones."""
    oldest_ms: int | None
    """When the oldest open one was buried."""


async def list_boxes(cluster: Cluster) -> list[DeadLetterTopic]:
    """Every topic of dead letters, by name."""
    return [await look_into(cluster, name) for name in await box_names(cluster)]


async def box_names(cluster: Cluster) -> list[str]:
    """Those that end in `.dlq`, that hold letters, or that a group names for its own."""
    await cluster.refresh(None)
    names = {name for name in cluster.metadata.topics if name.endswith(SUFFIX)}
    names |= {queue.topic for queue in await list_queues(cluster) if queue.group == DEAD_LETTERS}
    names |= await _configured(cluster)
    return sorted(name for name in names if name in cluster.metadata.topics)


async def look_into(cluster: Cluster, topic: str) -> DeadLetterTopic:
    reports = await inspect(cluster, DEAD_LETTERS, await places_of(cluster, topic))
    oldest = [report.oldest_ms for report in reports.values() if report.oldest_ms >= 0]
    letters = sum(report.unfinished for report in reports.values())
    return DeadLetterTopic(
        topic, len(reports), letters, min(oldest, default=None) if letters else None
    )


async def _configured(cluster: Cluster) -> set[str]:
    """Topics that groups name for their letters."""

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


# -- what letters have in common --------------------------------------------------------------


@dataclass(slots=True)
class DeadLetterKind:
    """Letters that are alike."""

    name: tuple[str, ...]
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    sample: str = ""
    """The id of the first one, to look at."""

    def add(self, letter: DeadLetterMessage) -> None:
        at_ms = letter.last_failure_ms if letter.last_failure_ms > 0 else letter.timestamp_ms
        if not self.count:
            self.first_ms = self.last_ms = at_ms
            self.sample = letter.id
        self.count += 1
        self.first_ms, self.last_ms = min(self.first_ms, at_ms), max(self.last_ms, at_ms)


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode("utf-8", "replace")


ASPECTS: dict[str, tuple[tuple[str, ...], Callable[[DeadLetterMessage], tuple[str, ...]]]] = {
    "error": (("error", "message"), lambda letter: (letter.error_class, letter.error_message)),
    "class": (("error",), lambda letter: (letter.error_class,)),
    "key": (("key",), lambda letter: (_text(letter.key),)),
    "group": (("group",), lambda letter: (letter.group,)),
    "source": (
        ("topic", "partition"),
        lambda letter: (
            (letter.source.topic, str(letter.source.partition)) if letter.source else ("-", "-")
        ),
    ),
    "redrives": (("redrives",), lambda letter: (str(letter.redrives),)),
}
"""What letters can be grouped by: the columns, and their values."""


class Kinds:
    """Counts letters by one aspect."""

    def __init__(self, aspect: str) -> None:
        self.columns, self._name_of = ASPECTS[aspect]
        self._kinds: dict[tuple[str, ...], DeadLetterKind] = {}
        self.count = 0

    def add(self, letter: DeadLetterMessage) -> None:
        self.count += 1
        name = self._name_of(letter)
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= KINDS_MAX:
                name = (OTHERS, *("" for _ in self.columns[1:]))
            kind = self._kinds.setdefault(name, DeadLetterKind(name))
        kind.add(letter)

    def largest(self) -> list[DeadLetterKind]:
        return sorted(self._kinds.values(), key=lambda kind: (-kind.count, kind.name))
