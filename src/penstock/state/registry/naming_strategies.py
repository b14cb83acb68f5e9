"""Subject naming: the three strategies of Confluent's clients.

A topic's `confluent.value.subject.name.strategy` says which of them its producers use; a strategy
may be written with its Java package.
"""

from enum import StrEnum


class Strategy(StrEnum):
    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


def strategy_of(written: str) -> Strategy | None:
    """Parses a strategy's name; None if it is unknown."""
    name = written.rpartition(".")[2]
    return Strategy(name) if name in set(Strategy) else None


def subject_of(
    strategy: Strategy, topic: str, record_name: str | None, *, is_key: bool
) -> str | None:
    """Subject of a record's schema; None if the strategy needs a record name and it has none."""
    if strategy is Strategy.TOPIC:
        return f"{topic}-{'key' if is_key else 'value'}"
    if record_name is None:
        return None
    return record_name if strategy is Strategy.RECORD else f"{topic}-{record_name}"
