"""Partition skew: spread of a topic's writes over its partitions here, in the last minute.

A round notes the end of each led partition; the difference to the previous round is its share. With
the number of partitions led here, the sum over all nodes tells the share of a topic's most written
partition, and the share that each would have if all were equal.

Bounds: `TOPICS_MAX` topics, those with the most records.
"""

from dataclasses import dataclass

from penstock.base.cooperative_yield import CooperativeYield
from penstock.cluster.metadata.image import INTERNAL_TOPICS
from penstock.cluster.replication.partitions import Partitions

ROUND_SECONDS = 60.0
TOPICS_MAX = 200
REST_SECONDS = 0.005


@dataclass(slots=True)
class TopicSkew:
    """Appends to one topic, in the partitions led here."""

    led: int = 0
    records: int = 0
    """Records appended between the last two rounds."""
    hottest: int = 0
    """Records appended to the partition with the most appends."""


class PartitionSkew:
    """Result of the last round."""

    def __init__(self, partitions: Partitions) -> None:
        self.topics: dict[str, TopicSkew] = {}
        self._partitions = partitions
        self._ends: dict[tuple[str, int], int] = {}

    async def run_round(self) -> None:
        """Runs one round."""
        ends: dict[tuple[str, int], int] = {}
        topics: dict[str, TopicSkew] = {}
        yielding = CooperativeYield(REST_SECONDS)
        for partition in list(self._partitions.led()):
            await yielding.draw()
            if partition.topic in INTERNAL_TOPICS:
                continue
            key = partition.topic, partition.index
            end = ends[key] = partition.log.end_offset
            skew = topics.setdefault(partition.topic, TopicSkew())
            # A partition that is new here has no earlier end: its records may all be old.
            appended = max(0, end - self._ends.get(key, end))
            skew.led += 1
            skew.records += appended
            skew.hottest = max(skew.hottest, appended)
        ranked = sorted(topics.items(), key=lambda item: (-item[1].records, item[0]))
        self.topics, self._ends = dict(ranked[:TOPICS_MAX]), ends
