"""Counters of records and bytes in and out of each topic, updated by batch and by reply.

Owns four counters for each topic with traffic. The first `NAMED_MAX` topics have separate counters,
others share those of `OTHERS`. They keep sharing them until they are deleted, because a counter
that changed its name would seem to decrease. A deleted topic frees its counters for another one.

The hot path does `traffic[topic].bytes_in += n`, one dict lookup.
"""

from collections.abc import Container, Iterator

NAMED_MAX = 200
TOPICS_MAX = 50_000
"""Limits topics in memory: deleted ones are removed only at a scrape, which may be rare."""
OTHERS = "(others)"


class TopicTraffic:
    """Counters of a topic."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_out: float = 0


class Traffic(dict[str, TopicTraffic]):
    """Counters by topic, created on first use."""

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
        """Yields topics with separate counters, then the shared ones if there are any."""
        has_others = self.others.records_in > 0 or self.others.bytes_out > 0
        for topic, counts in self.items():
            if counts is not self.others:
                yield topic, counts
        if has_others:
            yield OTHERS, self.others
