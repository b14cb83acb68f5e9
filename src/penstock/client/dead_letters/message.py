"""Dead-lettered messages as clients read them.

A dead-letter topic is an ordinary topic; `state.queues.dead_letter_format` defines the headers of
its messages. A message without these headers, written by another producer, has no known origin.
`dead_letters.open_messages` finds the messages that are still open.
"""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.consumer.fetched import FetchedRecord
from penstock.state.queues import dead_letter_format as headers

REDRIVES = "penstock-redrive-count"
"""Header that counts how often a record was redriven from a dead-letter topic."""


class RecordOrigin(NamedTuple):
    """Topic, partition and offset of a record before it was dead-lettered."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """One dead-lettered record, with the details of its failure."""

    topic: str
    """Dead-letter topic; `partition` and `offset` are those of the message in it."""
    partition: int
    offset: int
    timestamp_ms: int
    """Time at which the record was dead-lettered."""
    key: bytes | None
    payload: bytes | None
    own_headers: tuple[tuple[str, bytes | None], ...]
    """Headers of the record itself, without those of the dead-lettering."""
    source: RecordOrigin | None
    """None: the message does not name its origin."""
    source_timestamp_ms: int
    group: str
    attempts: int
    error_class: str
    error_message: str
    first_failure_ms: int
    last_failure_ms: int
    redrives: int
    """Number of earlier redrives of the record."""
    traceback: str = ""
    """Traceback of the last failure; empty: the consumer sent none."""

    @property
    def id(self) -> str:
        return f"{self.partition}:{self.offset}"

    @property
    def size_bytes(self) -> int:
        fields = (len(name) + len(value or b"") for name, value in self.own_headers)
        return len(self.key or b"") + len(self.payload or b"") + sum(fields)


def dead_letter_of(message: FetchedRecord) -> DeadLetterMessage:
    """Reads a message of a dead-letter topic; any producer may have written it."""
    found = {name: value for name, value in message.headers if name.startswith(headers.PREFIX)}
    own = tuple(pair for pair in message.headers if not pair[0].startswith(headers.PREFIX))
    topic = _text(found.get(headers.TOPIC))
    offset = _number(found.get(headers.OFFSET))
    partition = _number(found.get(headers.PARTITION))
    return DeadLetterMessage(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp,
        key=message.key,
        payload=message.value,
        own_headers=own,
        source=RecordOrigin(topic, max(partition, 0), offset) if topic else None,
        source_timestamp_ms=_number(found.get(headers.TIMESTAMP)),
        group=_text(found.get(headers.GROUP)),
        attempts=max(_number(found.get(headers.ATTEMPTS)), 0),
        error_class=_text(found.get(headers.ERROR_CLASS)),
        error_message=_text(found.get(headers.ERROR_MESSAGE)),
        first_failure_ms=_number(found.get(headers.FIRST_FAILURE)),
        last_failure_ms=_number(found.get(headers.LAST_FAILURE)),
        redrives=max(_number(dict(own).get(REDRIVES)), 0),
        traceback=_text(found.get(headers.ERROR_TRACEBACK)),
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None) -> int:
    text = _text(value)
    return int(text) if text.lstrip("-").isdecimal() and len(text) <= 19 else -1
