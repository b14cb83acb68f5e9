"""How evenly the partitions of a topic are written to: over the last minute, on this node.

A round notes where each led partition ends; what was appended since the round before is its
share. With the number of partitions led here, whoever adds up the nodes knows what the hottest
partition of a topic gets, and what it would get if all were alike.

Bounds: `TOPICS_MAX` topics, those with the most records.
"""

from dataclasses import dataclass

from penstock.base.cooperative_yield import CooperativeYield
from penstock.cluster.metadata.image import INTERNAL_TOPICS
from penstock.cluster.replication.partitions import Partitions

LOOK_SECONDS = 60.0
TOPICS_MAX = 200
REST_SECONDS = 0.005


@dataclass(slots=True)
class Warmth:
    """One topic, in the partitions led here."""

    led: int = 0
    records: int = 0
    """Appended between the last two rounds."""
    hottest: int = 0
    """..., in the partition that got most of them."""


class PartitionSkew:
    """What was seen in the last round."""

    def __init__(self, partitions: Partitions) -> None:
        self.topics: dict[str, Warmth] = {}
        self._partitions = partitions
        self._ends: dict[tuple[str, int], int] = {}

    async def look(self) -> None:
        """One round."""
        ends: dict[tuple[str, int], int] = {}
        topics: dict[str, Warmth] = {}
        breath = CooperativeYield(REST_SECONDS)
        for partition in list(self._partitions.led()):
            await breath.draw()
            if partition.topic in INTERNAL_TOPICS:
                continue
            key = partition.topic, partition.index
            end = ends[key] = partition.log.end_offset
            warmth = topics.setdefault(partition.topic, Warmth())
            # One that is new here tells nothing yet: all of it may be old.
            appended = max(0, end - self._ends.get(key, end))
            warmth.led += 1
            warmth.records += appended
            warmth.hottest = max(warmth.hottest, appended)
        ranked = sorted(topics.items(), key=lambda item: (-item[1].records, item[0]))
        self.topics, self._ends = dict(ranked[:TOPICS_MAX]), ends
