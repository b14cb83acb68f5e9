"""Committed positions belong to a topic, not to its name.

Every commit writes a number that no other commit writes. Named promises:

- other-topic: what is read for a topic was committed for an earlier one of the same name;
- lost-position: what was acknowledged for a topic that nobody has asked to delete is gone.

A commit by name that was not answered may count for any topic that has the name later: it is not
judged.
"""

from dataclasses import dataclass, field

from penstock.base.ids import TopicId, show_topic_id
from simulation.checkers.witness import Witness


@dataclass(slots=True)
class BelongingChecker:
    """The positions of one group in one name."""

    world: Witness
    topics: dict[int, TopicId] = field(default_factory=dict)
    """By value: the topic that it was committed for."""
    unsure: set[int] = field(default_factory=set)
    """Values of commits by name that were not answered."""
    kept: dict[TopicId, int] = field(default_factory=dict)
    """Value that was last acknowledged for a topic."""

    def asks(self, topic_id: TopicId) -> int:
        """A commit for this topic is about to be sent; answers its value."""
        value = len(self.topics) + 1
        self.topics[value] = topic_id
        return value

    def acknowledged(self, value: int) -> None:
        self.kept[self.topics[value]] = value

    def read(self, topic_id: TopicId, value: int) -> None:
        """Whoever asked for this topic's position was told `value` (-1: there is none)."""
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
