"""Owned partitions, as a set for computation and as sorted tuples for records."""

from collections.abc import Iterable, Mapping

from penstock.base.ids import TopicId
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.consumer_protocol import ProtocolTopicPartitions
from penstock.state.groups.records import Owned

Slot = tuple[bytes, int]
"""A topic id and a partition."""


def flat(owned: Iterable[tuple[bytes, Iterable[int]]]) -> set[Slot]:
    return {(topic_id, partition) for topic_id, rows in owned for partition in rows}


def packed(slots: Iterable[Slot]) -> Owned:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(slots):
        by_topic.setdefault(topic_id, []).append(partition)
    return tuple((TopicId(topic_id), tuple(rows)) for topic_id, rows in by_topic.items())


def from_names(named: Iterable[ProtocolTopicPartitions], topics: TopicCatalogue) -> set[Slot]:
    """Partitions by topic id; topics that are gone are omitted."""
    slots: set[Slot] = set()
    for row in named:
        known = topics.by_name.get(row.topic)
        if known is not None:
            slots.update((known[0], partition) for partition in row.partitions)
    return slots


def to_names(owned: Owned, names: Mapping[TopicId, str]) -> list[ProtocolTopicPartitions]:
    """Partitions by topic name, sorted; topics that are gone are omitted."""
    known = [(names[topic_id], rows) for topic_id, rows in owned if topic_id in names]
    return [ProtocolTopicPartitions(topic=n, partitions=rows) for n, rows in sorted(known)]
