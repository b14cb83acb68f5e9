"""Dead-lettered messages as clients read them, and filters that select them.

A dead-letter topic is an ordinary topic; `state.queues.dead_letter_format` defines the headers of
its messages. A message without these headers, written by another producer, has no known origin.
`dead_letters.open` finds the messages that are still open.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.dead_letters import templates
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


# -- filters ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects the messages that match every given field."""

    ids: frozenset[tuple[int, int]] = frozenset()
    """Partition and offset in the dead-letter topic."""
    error_class: str = ""
    """Pattern; * and ? work as in file names."""
    error_text: str = ""
    """Substring of the error message."""
    key: bytes | None = None
    header: tuple[str, bytes | None] | None = None
    """Name of a header of the record, and its value; None: any value."""
    failed_from_ms: int | None = None
    failed_until_ms: int | None = None
    source_topic: str = ""
    source_partition: int | None = None
    source_offsets: tuple[int, int | None] | None = None
    """First offset, and the end, excluded; None: no end."""
    group: str = ""
    redrives_max: int | None = None
    """Excludes messages that were redriven more often than this."""
    error_template: str = ""
    """Template of the error message (`dead_letters.templates`)."""

    def matches(self, message: DeadLetterMessage) -> bool:
        return (
            (not self.ids or (message.partition, message.offset) in self.ids)
            and (not self.error_class or fnmatchcase(message.error_class, self.error_class))
            and self.error_text in message.error_message
            and (
                not self.error_template
                or templates.matches(self.error_template, message.error_message)
            )
            and (self.key is None or message.key == self.key)
            and (self.header is None or _has_header(message, *self.header))
            and self._is_in_time(message)
            and self._is_from(message)
            and (not self.group or message.group == self.group)
            and (self.redrives_max is None or message.redrives <= self.redrives_max)
        )

    def _is_in_time(self, message: DeadLetterMessage) -> bool:
        at_ms = message.last_failure_ms if message.last_failure_ms > 0 else message.timestamp_ms
        return (self.failed_from_ms is None or at_ms >= self.failed_from_ms) and (
            self.failed_until_ms is None or at_ms < self.failed_until_ms
        )

    def _is_from(self, message: DeadLetterMessage) -> bool:
        wants = self.source_topic, self.source_partition, self.source_offsets
        if wants == ("", None, None):
            return True
        source = message.source
        if source is None:
            return False
        first, end = self.source_offsets or (0, None)
        return (
            (not self.source_topic or source.topic == self.source_topic)
            and (self.source_partition is None or source.partition == self.source_partition)
            and source.offset >= first
            and (end is None or source.offset < end)
        )

    def described(self) -> dict[str, object]:
        """Returns the given fields as JSON values for the audit entry."""
        fields: dict[str, object] = {}
        if self.ids:
            fields["letters"] = [f"{partition}:{offset}" for partition, offset in sorted(self.ids)]
        for name in ("error_class", "error_text", "error_template", "source_topic", "group"):
            if getattr(self, name):
                fields[name] = getattr(self, name)
        if self.key is not None:
            fields["key"] = _text(self.key)
        if self.header is not None:
            name, value = self.header
            fields["header"] = (
                name if value is None else f"{name}:{value.decode('utf-8', 'replace')}"
            )
        for name in ("failed_from_ms", "failed_until_ms", "source_partition", "redrives_max"):
            if getattr(self, name) is not None:
                fields[name] = getattr(self, name)
        if self.source_offsets is not None:
            fields["source_offsets"] = list(self.source_offsets)
        return fields


def _has_header(message: DeadLetterMessage, name: str, value: bytes | None) -> bool:
    return any(own == name and value in (None, held) for own, held in message.own_headers)
