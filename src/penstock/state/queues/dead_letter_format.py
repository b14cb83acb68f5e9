"""What a dead letter looks like: the whole record, and headers that say what became of it.

    penstock-dlq-topic, -partition, -offset   where it came from
    penstock-dlq-timestamp                    its own timestamp, in milliseconds
    penstock-dlq-group                        who gave it up
    penstock-dlq-attempts                     how often it was delivered
    penstock-dlq-error-class, -error-message  why
    penstock-dlq-first-failure, -last-failure when, in milliseconds

Values are text. Key, value and the record's own headers stay as they were, the latter first.
Headers of an earlier death are replaced. A record that the log no longer has is told of by headers
alone.
"""

from typing import NamedTuple

from penstock.state.queues.delivery import DeadLetter
from penstock.wire.columns import Record

PREFIX = "penstock-dlq-"
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
TIMESTAMP = PREFIX + "timestamp"
GROUP = PREFIX + "group"
ATTEMPTS = PREFIX + "attempts"
ERROR_CLASS = PREFIX + "error-class"
ERROR_MESSAGE = PREFIX + "error-message"
FIRST_FAILURE = PREFIX + "first-failure"
LAST_FAILURE = PREFIX + "last-failure"


class RecordSource(NamedTuple):
    topic: str
    partition: int
    group: str


def letter_of(
    source: RecordSource, letter: DeadLetter, record: Record | None, at_ms: int
) -> Record:
    """The copy that goes to the dead letters; `at_ms` is when it was decided to write it."""
    failure = letter.failure
    own = () if record is None else record.headers
    texts = (
        (TOPIC, source.topic),
        (PARTITION, str(source.partition)),
        (OFFSET, str(letter.offset)),
        (TIMESTAMP, str(-1 if record is None else record.timestamp)),
        (GROUP, source.group),
        (ATTEMPTS, str(failure.delivery_count)),
        (ERROR_CLASS, failure.error_class),
        (ERROR_MESSAGE, failure.error_message),
        (FIRST_FAILURE, str(failure.first_ms)),
        (LAST_FAILURE, str(failure.last_ms)),
    )
    headers = tuple(pair for pair in own if not pair[0].startswith(PREFIX))
    return Record(
        0,
        at_ms,
        None if record is None else record.key,
        None if record is None else record.value,
        headers + tuple((name, text.encode("utf-8", "replace")) for name, text in texts),
    )
