"""Depth and age of queues and dead letters, for the node's metrics.

Every `ROUND_SECONDS` it inspects the queues that are open here and the dead-letter topics whose
partitions are led here, and sums them: by group and topic, and by topic. A queue that was closed
because no consumer reads from it matters most: it is remembered for as long as its partition is led
here, and records written since count.

Bounds: `QUEUES_MAX` queues are inspected in a round; `NAMES_MAX` names have figures of their own,
those with the most records, and the rest is added up as `OTHERS`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from penstock.base.errors import Corrupt, Refused
from penstock.cluster.metadata.image import Image, TopicImage
from penstock.coordinator.queues import inspection
from penstock.coordinator.queues.inspection import NO_TIME, Inspection
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.coordinator.queues.policy import DEAD_LETTER_SUFFIX, DEAD_LETTERS
from penstock.state.queues.state_shard import QueueKey

ROUND_SECONDS = 10.0
QUEUES_MAX = 20_000
CLOSED_AT_ONCE = 50
"""Closed queues inspected in a round: their state must be read, as an administrator may change it.
"""
NAMES_MAX = 200
OTHERS = "(others)"
NAME_CONFIG = "errors.deadletterqueue.topic.name"

Name = TypeVar("Name")


@dataclass(slots=True)
class QueueGauge:
    """Unfinished records, over all partitions that are led here."""

    unfinished: int = 0
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    oldest_ms: int = NO_TIME

    def add(self, seen: "Inspection | QueueGauge") -> None:
        self.unfinished += seen.unfinished
        self.ready += seen.ready
        self.leased += seen.leased
        self.delayed += seen.delayed
        if seen.oldest_ms >= 0:
            known = self.oldest_ms
            self.oldest_ms = seen.oldest_ms if known < 0 else min(known, seen.oldest_ms)

    def age_seconds(self, now_ms: int) -> float:
        """Returns the age of the oldest record; 0 without records."""
        return max(0, now_ms - self.oldest_ms) / 1000 if self.oldest_ms >= 0 else 0.0


class DepthTotals(Generic[Name]):
    """Depths by name, bounded."""

    def __init__(self, others: Name) -> None:
        self._others = others
        self._depths: dict[Name, QueueGauge] = {}

    def add(self, name: Name, seen: Inspection) -> None:
        self._depths.setdefault(name, QueueGauge()).add(seen)

    def largest(self) -> dict[Name, QueueGauge]:
        """Returns the largest by name, and the sum of the rest."""
        ranked = sorted(self._depths.items(), key=lambda item: (-item[1].unfinished, str(item[0])))
        shown = dict(ranked[:NAMES_MAX])
        for _, depth in ranked[NAMES_MAX:]:
            shown.setdefault(self._others, QueueGauge()).add(depth)
        return shown


class QueueWatch:
    """Results of the last round."""

    def __init__(self, queues: QueueCoordinator) -> None:
        self.queues: dict[tuple[str, str], QueueGauge] = {}
        """By group and topic."""
        self.dead_letters: dict[str, QueueGauge] = {}
        """By dead-letter topic."""
        self._coordinator = queues
        self._remembered: dict[QueueKey, Inspection] = {}

    async def run(self) -> None:
        """Runs rounds until cancelled."""
        while True:
            await self.run_round()
            await asyncio.sleep(ROUND_SECONDS)

    async def run_round(self) -> None:
        """Runs one round."""
        for key in self._due():
            seen = await self._inspect(key)
            self._remembered.pop(key, None)
            if seen is not None and seen.start >= 0 and len(self._remembered) < QUEUES_MAX:
                self._remembered[key] = seen
        queues: DepthTotals[tuple[str, str]] = DepthTotals((OTHERS, OTHERS))
        for key, seen in list(self._remembered.items()):
            topic, now = self._now(key, seen)
            if now is None:
                del self._remembered[key]
            elif key.group != DEAD_LETTERS:
                queues.add((key.group, topic), now)
        dead_letters: DepthTotals[str] = DepthTotals(OTHERS)
        for topic_name, key in self._dead_letter_topics():
            seen = await self._inspect(key)
            if seen is not None:
                dead_letters.add(topic_name, seen)
        self.queues, self.dead_letters = queues.largest(), dead_letters.largest()

    def _due(self) -> list[QueueKey]:
        """Returns the open queues, and of the closed ones those inspected longest ago."""
        coordinator = self._coordinator
        opened = [queue.key for queue in coordinator.queues()][:QUEUES_MAX]
        closed = [key for key in self._remembered if coordinator.find_quietly(key) is None]
        return opened + closed[:CLOSED_AT_ONCE]

    async def _inspect(self, key: QueueKey) -> Inspection | None:
        await asyncio.sleep(0)  # There may be many.
        try:
            return await inspection.inspect(self._coordinator, key)
        except (Refused, Corrupt, OSError):
            return None  # It is moving, or the disk fails, which is reported elsewhere.

    def _now(self, key: QueueKey, seen: Inspection) -> tuple[str, Inspection | None]:
        """Returns a queue's present state, derived from its last inspection; None: not led here any
        more."""
        coordinator = self._coordinator
        try:
            partition = coordinator.led_partition(key)
        except Refused:
            return "", None
        if coordinator.find_quietly(key) is not None:
            return partition.topic, seen
        written = max(0, partition.high_watermark - seen.high_watermark)
        return partition.topic, replace(
            seen, unfinished=seen.unfinished + written, ready=seen.ready + written
        )

    def _dead_letter_topics(self) -> Iterator[tuple[str, QueueKey]]:
        around = self._coordinator.around
        image = around.watcher.image
        for topic in dead_letter_topics(image):
            for index in range(len(topic.partitions)):
                if around.partitions.get(topic.name, index) is not None:
                    yield topic.name, QueueKey(DEAD_LETTERS, topic.id, index)


def dead_letter_topics(image: Image) -> Iterable[TopicImage]:
    """Yields dead-letter topics: by their name, or because a group's config names them."""
    named = {configs.get(NAME_CONFIG, "") for configs in image.group_configs.values()}
    return [
        topic
        for name, topic in image.topics.items()
        if name.endswith(DEAD_LETTER_SUFFIX) or name in named
    ]
