"""Under which subject a record's schema is registered: the three strategies of Confluent's clients.

A topic says by `confluent.value.subject.name.strategy` which of them its producers use; a strategy
may be written with the Java package in front of it.
"""

from enum import StrEnum


class Strategy(StrEnum):
    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


def strategy_of(written: str) -> Strategy | None:
    """None: there is no such strategy."""
    name = written.rpartition(".")[2]
    return Strategy(name) if name in set(Strategy) else None


def subject_of(
    strategy: Strategy, topic: str, record_name: str | None, *, is_key: bool
) -> str | None:
    """None: the strategy needs the name of a record, and the schema has none."""
    if strategy is Strategy.TOPIC:
        return f"{topic}-{'key' if is_key else 'value'}"
    if record_name is None:
        return None
    return record_name if strategy is Strategy.RECORD else f"{topic}-{record_name}"
