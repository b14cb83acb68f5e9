"""A dead letter as those see it who have to deal with it, and which letters they mean.

A topic of dead letters is an ordinary topic; `state.queues.dead_letter_format` says how a letter is
written. One that somebody else wrote there, without those headers, is a letter of unknown origin.
Finding the letters that are still open is `open_letters`'.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from penstock.client.consumer.fetched import FetchedRecord
from penstock.state.queues import dead_letter_format as headers

REDRIVES = "penstock-redrive-count"
"""A header: how often a record has come back from the dead letters."""


class Place(NamedTuple):
    """Where a record was before it died."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """One record that was given up, and what is known of its end."""

    topic: str
    """Of the dead letters."""
    partition: int
    offset: int
    timestamp_ms: int
    """When it was buried."""
    key: bytes | None
    payload: bytes | None
    own_headers: tuple[tuple[str, bytes | None], ...]
    """Those of the record itself."""
    source: Place | None
    """None: nobody noted where it came from."""
    source_timestamp_ms: int
    group: str
    attempts: int
    error_class: str
    error_message: str
    first_failure_ms: int
    last_failure_ms: int
    redrives: int
    """How often it was sent back before."""

    @property
    def id(self) -> str:
        return f"{self.partition}:{self.offset}"

    @property
    def size_bytes(self) -> int:
        fields = (len(name) + len(value or b"") for name, value in self.own_headers)
        return len(self.key or b"") + len(self.payload or b"") + sum(fields)


def letter_of(message: FetchedRecord) -> DeadLetterMessage:
    """A message of a topic of dead letters, whoever wrote it there."""
    told = {name: value for name, value in message.headers if name.startswith(headers.PREFIX)}
    own = tuple(pair for pair in message.headers if not pair[0].startswith(headers.PREFIX))
    topic = _text(told.get(headers.TOPIC))
    offset = _number(told.get(headers.OFFSET))
    partition = _number(told.get(headers.PARTITION))
    return DeadLetterMessage(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp,
        key=message.key,
        payload=message.value,
        own_headers=own,
        source=Place(topic, max(partition, 0), offset) if topic else None,
        source_timestamp_ms=_number(told.get(headers.TIMESTAMP)),
        group=_text(told.get(headers.GROUP)),
        attempts=max(_number(told.get(headers.ATTEMPTS)), 0),
        error_class=_text(told.get(headers.ERROR_CLASS)),
        error_message=_text(told.get(headers.ERROR_MESSAGE)),
        first_failure_ms=_number(told.get(headers.FIRST_FAILURE)),
        last_failure_ms=_number(told.get(headers.LAST_FAILURE)),
        redrives=max(_number(dict(own).get(REDRIVES)), 0),
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _number(value: bytes | None) -> int:
    text = _text(value)
    return int(text) if text.lstrip("-").isdecimal() and len(text) <= 19 else -1


# -- choosing ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which letters are meant: those that agree with everything that is given."""

    ids: frozenset[tuple[int, int]] = frozenset()
    """Partition and offset among the dead letters."""
    error_class: str = ""
    """With * and ? as in file names."""
    error_text: str = ""
    """A part of the message."""
    key: bytes | None = None
    header: tuple[str, bytes | None] | None = None
    """A header of the record, and its value if that matters."""
    failed_from_ms: int | None = None
    failed_until_ms: int | None = None
    source_topic: str = ""
    source_partition: int | None = None
    source_offsets: tuple[int, int | None] | None = None
    """From, and up to, not including; None: without end."""
    group: str = ""
    redrives_max: int | None = None
    """Leaves out what came back more often than this."""

    def matches(self, letter: DeadLetterMessage) -> bool:
        return (
            (not self.ids or (letter.partition, letter.offset) in self.ids)
            and (not self.error_class or fnmatchcase(letter.error_class, self.error_class))
            and self.error_text in letter.error_message
            and (self.key is None or letter.key == self.key)
            and (self.header is None or _has_header(letter, *self.header))
            and self._is_in_time(letter)
            and self._is_from(letter)
            and (not self.group or letter.group == self.group)
            and (self.redrives_max is None or letter.redrives <= self.redrives_max)
        )

    def _is_in_time(self, letter: DeadLetterMessage) -> bool:
        at_ms = letter.last_failure_ms if letter.last_failure_ms > 0 else letter.timestamp_ms
        return (self.failed_from_ms is None or at_ms >= self.failed_from_ms) and (
            self.failed_until_ms is None or at_ms < self.failed_until_ms
        )

    def _is_from(self, letter: DeadLetterMessage) -> bool:
        wants = self.source_topic, self.source_partition, self.source_offsets
        if wants == ("", None, None):
            return True
        source = letter.source
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
        """What was asked for, in words for the record."""
        found: dict[str, object] = {}
        if self.ids:
            found["letters"] = [f"{partition}:{offset}" for partition, offset in sorted(self.ids)]
        for name in ("error_class", "error_text", "source_topic", "group"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        if self.key is not None:
            found["key"] = _text(self.key)
        if self.header is not None:
            name, value = self.header
            found["header"] = (
                name if value is None else f"{name}:{value.decode('utf-8', 'replace')}"
            )
        for name in ("failed_from_ms", "failed_until_ms", "source_partition", "redrives_max"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.source_offsets is not None:
            found["source_offsets"] = list(self.source_offsets)
        return found


def _has_header(letter: DeadLetterMessage, name: str, value: bytes | None) -> bool:
    return any(own == name and value in (None, held) for own, held in letter.own_headers)
