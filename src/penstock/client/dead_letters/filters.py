"""Filters that select dead-lettered messages."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from penstock.client.dead_letters import templates
from penstock.client.dead_letters.message import DeadLetterMessage


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
            fields["key"] = self.key.decode("utf-8", "replace")
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
