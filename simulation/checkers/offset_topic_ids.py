"""Checker that committed offsets belong to a topic id, not to a topic name.

Every commit writes a unique offset. Violations:

- other-topic: an offset read for a topic was committed for an earlier one of the same name;
- lost-position: an acknowledged offset of a topic without a deletion request is lost.

A commit by name without a reply may apply to any later topic of that name: it is not checked.
"""

from dataclasses import dataclass, field

from penstock.base.ids import TopicId, show_topic_id
from simulation.checkers.context import CheckerContext


@dataclass(slots=True)
class OffsetTopicIdChecker:
    """Committed offsets of one group for one topic name."""

    world: CheckerContext
    topics: dict[int, TopicId] = field(default_factory=dict)
    """Topic id of each committed value."""
    unsure: set[int] = field(default_factory=set)
    """Values of commits by name without a reply."""
    kept: dict[TopicId, int] = field(default_factory=dict)
    """Last acknowledged value of each topic id."""

    def begin_commit(self, topic_id: TopicId) -> int:
        """Registers a commit for this topic before it is sent; returns its value."""
        value = len(self.topics) + 1
        self.topics[value] = topic_id
        return value

    def acknowledged(self, value: int) -> None:
        self.kept[self.topics[value]] = value

    def read(self, topic_id: TopicId, value: int) -> None:
        """Checks the committed offset in a reply (-1: none)."""
        if value == -1:
            if topic_id in self.kept:
                self._violate("lost-position", topic_id, f"{self.kept[topic_id]} is gone")
        elif value not in self.topics:
            self._violate("invented", topic_id, f"{value} was never committed")
        elif self.topics[value] != topic_id and value not in self.unsure:
            other = show_topic_id(self.topics[value])
            self._violate("other-topic", topic_id, f"{value} was committed for {other}")

    def _violate(self, name: str, topic_id: TopicId, text: str) -> None:
        self.world.violate(name, f"topic {show_topic_id(topic_id)}: {text}")
