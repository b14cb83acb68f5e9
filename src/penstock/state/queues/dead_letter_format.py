"""Format of a dead-lettered message: the whole record, with headers that describe the failure.

    penstock-dlq-topic, -partition, -offset   source of the record
    penstock-dlq-timestamp                    its own timestamp, in milliseconds
    penstock-dlq-group                        group that dead-lettered it
    penstock-dlq-attempts                     number of deliveries
    penstock-dlq-error-class, -error-message  reason
    penstock-dlq-error-traceback              traceback of the error, if the consumer sent one
    penstock-dlq-first-failure, -last-failure times, in milliseconds

Values are text. Key, value and the record's own headers are unchanged, and its headers come first.
Headers of an earlier dead-lettering are replaced. If the log no longer has the record, only the
headers remain.
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
ERROR_TRACEBACK = PREFIX + "error-traceback"
FIRST_FAILURE = PREFIX + "first-failure"
LAST_FAILURE = PREFIX + "last-failure"


class RecordSource(NamedTuple):
    topic: str
    partition: int
    group: str


def dead_letter_record(
    source: RecordSource, dead_letter: DeadLetter, record: Record | None, at_ms: int
) -> Record:
    """Copy for the dead-letter topic; `at_ms` is the time at which writing it was decided."""
    failure = dead_letter.failure
    own = () if record is None else record.headers
    texts = (
        (TOPIC, source.topic),
        (PARTITION, str(source.partition)),
        (OFFSET, str(dead_letter.offset)),
        (TIMESTAMP, str(-1 if record is None else record.timestamp)),
        (GROUP, source.group),
        (ATTEMPTS, str(failure.delivery_count)),
        (ERROR_CLASS, failure.error_class),
        (ERROR_MESSAGE, failure.error_message),
        (FIRST_FAILURE, str(failure.first_ms)),
        (LAST_FAILURE, str(failure.last_ms)),
        *([(ERROR_TRACEBACK, failure.traceback)] if failure.traceback else []),
    )
    headers = tuple(pair for pair in own if not pair[0].startswith(PREFIX))
    return Record(
        0,
        at_ms,
        None if record is None else record.key,
        None if record is None else record.value,
        headers + tuple((name, text.encode("utf-8", "replace")) for name, text in texts),
    )
