"""Checker of client histories against the final log, while nodes fail. Pure.

A history is a list of events in the order in which clients learned of them, about one topic. A
record is known by its producer and its number, which counts per producer and partition; producers
are idempotent, and groups read from the beginning. A send has one of three outcomes: acknowledged,
refused for certain, or unknown (only `Sent`), and an unknown one may be in the log or not.

`check` names every anomaly; none means that the cluster kept its guarantees:

- lost: acknowledged, and nowhere in the log;
- moved: acknowledged at one offset, in the log at another;
- duplicate: in the log more than once;
- reordered: after a later record of the same producer;
- phantom: in the log, but never sent;
- refused but written: in the log although its producer was told that it never would be;
- offset went back: acknowledged below an earlier record of the same producer;
- dirty read: a consumer saw a record where now there is another one, or none;
- skipped: a consumer passed a record without receiving it;
- read went back: a consumer received an earlier offset again without a new assignment;
- committed offset went back: a group continued, or was told to, below what it had committed;
- never delivered: acknowledged, and no member of a group received it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

EXAMPLES = 5


class Record(NamedTuple):
    """Identity of a record; its value is its text."""

    producer: str
    number: int

    def encode(self) -> bytes:
        return str(self).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Record":
        producer, _, number = value.decode().rpartition(" ")
        return cls(producer, int(number))

    def __str__(self) -> str:
        return f"{self.producer} {self.number}"


class Sent(NamedTuple):
    partition: int
    record: Record


class Acknowledged(NamedTuple):
    partition: int
    record: Record
    offset: int
    """Negative: it is there, and the client was not told where."""


class Refused(NamedTuple):
    """The producer knows that the record is not in the log and never will be."""

    partition: int
    record: Record


class Assigned(NamedTuple):
    """A member reads these partitions from here on, each from where its group is."""

    group: str
    consumer: str
    partitions: tuple[int, ...]


class Polled(NamedTuple):
    consumer: str
    partition: int
    offset: int
    record: Record


class Committed(NamedTuple):
    """A commit that was acknowledged; the offset is of the next record to read."""

    group: str
    partition: int
    offset: int


class Found(NamedTuple):
    """Committed offset returned to a client that asked."""

    group: str
    partition: int
    offset: int


Event = Sent | Acknowledged | Refused | Assigned | Polled | Committed | Found
History = Sequence[Event]
Logs = Mapping[int, Mapping[int, Record]]
"""Readable records in the end: by offset, by partition."""
Names = Iterator[tuple[str, str]]
"""Of anomalies, each with one example."""


class Anomaly(NamedTuple):
    name: str
    examples: list[str]

    def __str__(self) -> str:
        return f"{self.name}: {len(self.examples)}, such as {'; '.join(self.examples[:EXAMPLES])}"


def check(history: History, logs: Logs) -> list[Anomaly]:
    """All anomalies, the gravest first."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, example in (
        *_acknowledged(history, logs),
        *_logged(history, logs),
        *_polled(history, logs),
        *_positions(history),
        *_delivered(history, logs),
    ):
        found[name].append(example)
    return [Anomaly(name, examples) for name, examples in found.items()]


def summarize(history: History) -> str:
    """Summary of a run in one line."""
    counts = Counter(type(event).__name__.lower() for event in history)
    return ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))


def _acknowledged(history: History, logs: Logs) -> Names:
    """Anomalies of acknowledged records."""
    places = {
        (partition, record): offset
        for partition, log in logs.items()
        for offset, record in log.items()
    }
    last: dict[tuple[int, str], tuple[int, int]] = {}
    for partition, record, offset in _in_order(history):
        place = places.get((partition, record))
        if place is None:
            yield "lost", f"{record}, acknowledged at {offset} of [{partition}]"
        elif offset >= 0:
            if logs[partition].get(offset) != record:
                yield "moved", f"{record} from {offset} to {place} of [{partition}]"
            number, before = last.get((partition, record.producer), (-1, -1))
            if offset <= before:
                example = f"{record} at {offset} of [{partition}], after {number} at {before}"
                yield "offset went back", example
            last[partition, record.producer] = (record.number, offset)


def _in_order(history: History) -> list[Acknowledged]:
    """As they were sent, whatever the order of the answers."""
    return sorted(event for event in history if isinstance(event, Acknowledged))


def _logged(history: History, logs: Logs) -> Names:
    """Anomalies of the log's contents."""
    sent = {(e.partition, e.record) for e in history if isinstance(e, Sent)}
    refused = {(e.partition, e.record) for e in history if isinstance(e, Refused)}
    for partition, log in logs.items():
        first: dict[Record, int] = {}
        last: dict[str, int] = {}
        for offset, record in sorted(log.items()):
            where = f"{record} at {offset} of [{partition}]"
            if (partition, record) not in sent:
                yield "phantom", where
            if (partition, record) in refused:
                yield "refused but written", where
            if record in first:
                yield "duplicate", f"{where} and at {first[record]}"
                continue
            first[record] = offset
            before = last.get(record.producer, -1)
            if record.number < before:
                yield "reordered", f"{where}, after {before}"
            last[record.producer] = max(before, record.number)


def _polled(history: History, logs: Logs) -> Names:
    """Anomalies of consumed records: only what stays, and everything on their way."""
    ranks = {
        partition: {offset: rank for rank, offset in enumerate(sorted(log))}
        for partition, log in logs.items()
    }
    last: dict[tuple[str, int], int] = {}
    for event in history:
        if isinstance(event, Assigned):
            for partition in event.partitions:
                last.pop((event.consumer, partition), None)
        elif isinstance(event, Polled):
            consumer, partition, offset, record = event
            before = last.get((consumer, partition))
            last[consumer, partition] = offset
            where = f"{consumer} at {offset} of [{partition}]"
            there = logs.get(partition, {}).get(offset)
            if there != record:
                yield "dirty read", f"{where} saw {record}, now it is {there}"
            elif before is not None and before in ranks[partition]:
                steps = ranks[partition][offset] - ranks[partition][before]
                if steps <= 0:
                    yield "read went back", f"{where}, after {before}"
                elif steps > 1:
                    yield "skipped", f"{where}, after {before}, over {steps - 1}"


def _positions(history: History) -> Names:
    """Anomalies of committed offsets: a group never continues below them."""
    committed: dict[tuple[str, int], int] = {}
    due: dict[tuple[str, int], tuple[str, int]] = {}
    for event in history:
        if isinstance(event, Committed):
            key = event.group, event.partition
            committed[key] = max(event.offset, committed.get(key, 0))
        elif isinstance(event, Assigned):
            for partition in event.partitions:
                start = committed.get((event.group, partition), 0)
                due[event.consumer, partition] = event.group, start
        elif isinstance(event, Polled):
            group, start = due.pop((event.consumer, event.partition), ("", 0))
            if event.offset < start:
                went = f"{event.consumer} went on at {event.offset} of [{event.partition}]"
                yield "committed offset went back", f"{went}, {group} had committed {start}"
        elif isinstance(event, Found):
            start = committed.get((event.group, event.partition), 0)
            if event.offset < start:
                was = f"{event.group} was told {event.offset} of [{event.partition}]"
                yield "committed offset went back", f"{was}, it had committed {start}"


def _delivered(history: History, logs: Logs) -> Names:
    """Records that a group never received."""
    groups = {e.consumer: e.group for e in history if isinstance(e, Assigned)}
    seen: dict[str, set[tuple[int, int]]] = {group: set() for group in groups.values()}
    for event in history:
        if isinstance(event, Polled) and event.consumer in groups:
            seen[groups[event.consumer]].add((event.partition, event.offset))
    for group, offsets in sorted(seen.items()):
        for partition, record, offset in acknowledged(history):
            is_there = logs.get(partition, {}).get(offset) == record
            if is_there and (partition, offset) not in offsets:
                yield "never delivered", f"{record} at {offset} of [{partition}] to {group}"


def acknowledged(history: Iterable[Event]) -> list[Acknowledged]:
    return [event for event in history if isinstance(event, Acknowledged)]
