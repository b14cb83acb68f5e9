"""What went in and out of each topic, counted by batch and by reply.

Owns: four numbers for each topic that has traffic. `NAMED_MAX` topics have numbers of their own,
the first that come; further ones share those of `OTHERS`, and go on doing so until they are
deleted: a counter that changed its name would seem to fall. A topic that is deleted makes room.

The hot path does `traffic[topic].bytes_in += n`: a look into a dict.
"""

from collections.abc import Container, Iterator

NAMED_MAX = 200
TOPICS_MAX = 50_000
"""Nobody may have looked for long, and deleted topics are dropped when somebody does."""
OTHERS = "(others)"


class TopicTraffic:
    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_out: float = 0


class Traffic(dict[str, TopicTraffic]):
    """By topic; one that is not there yet is made."""

    def __init__(self) -> None:
        super().__init__()
        self.others = TopicTraffic()
        self._named = 0

    def __missing__(self, topic: str) -> TopicTraffic:
        if len(self) >= TOPICS_MAX:
            return self.others
        if self._named < NAMED_MAX:
            self._named += 1
            self[topic] = TopicTraffic()
        else:
            self[topic] = self.others
        return self[topic]

    def forget_all_but(self, topics: Container[str]) -> None:
        for gone in [topic for topic in self if topic not in topics]:
            if self.pop(gone) is not self.others:
                self._named -= 1

    def named(self) -> Iterator[tuple[str, TopicTraffic]]:
        """Those with numbers of their own, then the others if there are any."""
        has_others = self.others.records_in > 0 or self.others.bytes_out > 0
        for topic, counts in self.items():
            if counts is not self.others:
                yield topic, counts
        if has_others:
            yield OTHERS, self.others
