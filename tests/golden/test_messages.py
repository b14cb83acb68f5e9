"""Records that Penstock writes into topics of users and of its own: dead letters, retries, copies,
envelopes, audit entries; and commit metadata of its own groups.
"""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from penstock.app import outgoing as app_outgoing
from penstock.app.message import LogMessage
from penstock.app.retry_topics import RetryTopics
from penstock.base.errors import ErrorCode
from penstock.base.ids import Millis
from penstock.client.committed_offsets import Committed
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.dead_letters import open_messages, redrive, replay
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.message import dead_letter_of as read_letter
from penstock.client.dead_letters.redrive import Redriver, RedriveRequest
from penstock.client.list_offsets import OffsetSpan
from penstock.client.metadata import TopicPartition
from penstock.coordinator import audit_log, registry
from penstock.coordinator.queues import state_store
from penstock.coordinator.runtime import internal_topics
from penstock.gateway.core.messages import OutgoingMessage, record_of
from penstock.security.audit_entries import (
    DENIED,
    DONE,
    ENTRY,
    FAILED,
    AuditedCall,
    AuditEntry,
    Trail,
)
from penstock.state.queues import dead_letter_format
from penstock.state.queues.delivery import DeadLetter
from penstock.state.queues.delivery_state import DeliveryFailure
from penstock.wire.records import Codec, Record, decode, encode
from tests.golden.book import Book, Sample
from tests.golden.filling import full, minimal

NOW_MS: Final = 1_700_000_000_000
TOPIC_ID: Final = bytes(range(16))
OWN: Final = (("color", b"red"), ("empty", None))
BURIED: Final = Record(0, NOW_MS - 9, b"key", b"payload", (*OWN, ("penstock-dlq-topic", b"before")))
FAILURE: Final = DeliveryFailure(4, 0, NOW_MS - 7, NOW_MS - 5, "ValueError", "no \N{EURO SIGN}")
CHOSEN: Final = DeadLetterFilter(
    frozenset({(1, 5), (0, 7)}),
    "Value*",
    "text",
    b"key",
    ("color", b"red"),
    1,
    2,
    "orders",
    3,
    (4, None),
    "sales",
    6,
)


class FixedClock:
    """A wall clock that stands still."""

    def now_ms(self) -> Millis:
        return Millis(NOW_MS)


def _samples() -> Iterator[Sample]:
    yield from _dead_letters()
    yield from _redrives()
    yield from _copies()
    yield from _retries()
    yield from _envelopes()
    yield from _audit()
    yield from _internal_topics()


def _batch(*records: Record) -> bytes:
    """As it lies in the log."""
    return bytes(encode(list(records), codec=Codec.NONE))


def _read_batch(data: bytes) -> list[Record]:
    return list(decode(memoryview(data)))


def _recorded(name: str, record: Record) -> Sample:
    return Sample(name, _batch(record), [record], _read_batch)


def _dead_letters() -> Iterator[Sample]:
    source = dead_letter_format.RecordSource("orders", 3, "sales")
    dead_letter = dead_letter_format.dead_letter_record(
        source, DeadLetter(70_000, FAILURE), BURIED, NOW_MS
    )
    yield _recorded("dead letter", dead_letter)
    hollow = dead_letter_format.dead_letter_record(
        source, DeadLetter(7, DeliveryFailure(1, 0, 2, 3)), None, NOW_MS
    )
    yield _recorded("dead letter of a record that is gone", hollow)


def _dead_letter() -> Any:
    source = dead_letter_format.RecordSource("orders", 3, "sales")
    record = dead_letter_format.dead_letter_record(
        source, DeadLetter(70_000, FAILURE), BURIED, NOW_MS
    )
    return read_letter(
        FetchedRecord("orders.dlq", 1, 5, NOW_MS, record.key, record.value, record.headers)
    )


def _redrives() -> Iterator[Sample]:
    yield _recorded("redriven record", redrive.redriven_record(_dead_letter(), NOW_MS + 1))
    yield Sample("group of a redrive", open_messages.cursor_group("orders.dlq").encode())
    note = open_messages.encode_settled_offsets(TOPIC_ID, [5, 6, 70_000])
    assert note is not None
    runs = partial(_noted, open_messages.decode_settled_offsets, TOPIC_ID)
    yield Sample("note of a redrive", note.encode(), [(5, 6), (70_000, 70_000)], runs)
    cluster: Any = SimpleNamespace(random=None)
    clock = FixedClock()
    for name, request in (
        ("full", RedriveRequest("orders.dlq", "run 1", "User:ann", CHOSEN, to="elsewhere")),
        ("minimal", RedriveRequest("orders.dlq", "run 1", "User:ann")),
        ("purge", RedriveRequest("orders.dlq", "run 1", "User:ann", purges=True)),
        (
            "edit",
            RedriveRequest(
                "orders.dlq", "run 1", "User:ann", revise=lambda dead_letter: dead_letter
            ),
        ),
    ):
        redriver = Redriver(cluster, clock, request)
        entry = redriver._entry(TopicPartition("orders.dlq", 1), [_dead_letter()])
        yield _recorded(f"entry of an errand, {name}", entry)
    names = (redrive.AUDIT, open_messages.DEAD_LETTERS, open_messages.SUFFIX)
    yield Sample("names of redrives", " ".join(names).encode())
    yield Sample("configs of the record of errands", _json(redrive.AUDIT_CONFIGS))


def _noted(read: Any, topic_id: bytes, data: bytes) -> Any:
    return read(Committed(0, metadata=data.decode()), topic_id)


def _copies() -> Iterator[Sample]:
    yield Sample("group of a copy", replay.cursor_group("orders again").encode())
    cursor = replay._cursor(OffsetSpan(5, 70_000))
    yield Sample("note of a copy", f"{cursor.offset} {cursor.metadata}".encode())


def _retries() -> Iterator[Sample]:
    client: Any = None
    topics = RetryTopics(client, "orders", "billing", clock=FixedClock())
    message = LogMessage(FetchedRecord("orders", 3, 70_000, NOW_MS - 9, b"key", b"payload", OWN))
    error = ValueError("no \N{EURO SIGN}")
    for name, level, is_final in (("retry", 0, False), ("dead letter", 3, True)):
        headers = topics._headers(message, level, error, is_final=is_final)
        yield _recorded(f"{name} by topics", Record(0, NOW_MS, b"key", b"payload", headers))
    names = " ".join([*topics.levels, topics.dead_letters])
    yield Sample("topics of retries", names.encode())


def _envelopes() -> Iterator[Sample]:
    message = OutgoingMessage(
        b"payload",
        b"key",
        OWN,
        timestamp_ms=NOW_MS,
        delay_ms=1,
        deliver_at_ms=NOW_MS + 2,
        priority=3,
        dedup_id="once",
        expires_at_ms=NOW_MS + 4,
        has_envelope=True,
    )
    yield _recorded("record of a gateway, full", record_of(message, NOW_MS, bytes(range(32))))
    record = record_of(OutgoingMessage(b"payload"), NOW_MS, b"")
    yield _recorded("record of a gateway, minimal", record)
    of_app = app_outgoing.Outgoing(
        payload={"a": [1]},
        key="key",
        headers={"color": "red", "number": 7, "none": None},
        delay="1s",
        deliver_at=NOW_MS + 2,
        priority=3,
        dedup_id="once",
        expires_in="2s",
    )
    payload, key = app_outgoing.encode_payload(of_app.payload), app_outgoing.encode_key(of_app.key)
    yield _recorded(
        "record of an application, full", Record(0, NOW_MS, key, payload, of_app.record_headers())
    )


def _audit() -> Iterator[Sample]:
    for size, entry in (("full", full(AuditEntry)), ("minimal", minimal(AuditEntry))):
        yield Sample(f"audit entry, {size}", msgspec.json.encode(entry), entry, ENTRY.decode)
    trail = Trail(7)
    trail.note(
        AuditedCall("kafka", "User:ann", "1.2.3.4", "CreateTopics", DONE, ("topic:a",)), NOW_MS
    )
    trail.note(AuditedCall("http", "User:ann", "1.2.3.4", "GET /", DENIED, codes=("403",)), NOW_MS)
    trail.lost = 3
    for number, entry in enumerate(trail.take(10, NOW_MS)):
        yield Sample(f"audit entry that was told, {number}", msgspec.json.encode(entry))
    yield Sample("outcomes of the audit log", f"{DONE} {DENIED} {FAILED}".encode())


def _internal_topics() -> Iterator[Sample]:
    for topic in (
        internal_topics.OFFSETS,
        internal_topics.TRANSACTIONS,
        state_store.STATES,
        registry.SCHEMAS,
        audit_log.topic_of("1000"),
    ):
        told = [
            topic.name,
            topic.partitions,
            topic.replication_factor,
            topic.segment_bytes,
            topic.min_isr,
            dict(topic.configs),
        ]
        yield Sample(f"internal topic {topic.name}", _json(told))


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


BOOK: Final = Book("messages", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_stored_dead_letter_is_decoded() -> None:
    (record,) = _read_batch(BOOK.stored()["dead letter"])
    dead_letter = read_letter(
        FetchedRecord("orders.dlq", 1, 5, NOW_MS, record.key, record.value, record.headers)
    )
    assert dead_letter.source == ("orders", 3, 70_000)
    assert (dead_letter.group, dead_letter.attempts) == ("sales", 4)
    assert (dead_letter.error_class, dead_letter.error_message) == (
        "ValueError",
        FAILURE.error_message,
    )
    assert dead_letter.own_headers == OWN
    (redriven,) = _read_batch(BOOK.stored()["redriven record"])
    again = read_letter(FetchedRecord("orders.dlq", 1, 5, NOW_MS, None, None, redriven.headers))
    assert again.redrives == 1


def test_stored_copy_progress_is_decoded() -> None:
    offset, _, metadata = BOOK.stored()["note of a copy"].decode().partition(" ")
    words = metadata.split()
    assert (int(offset), words) == (5, ["v1", "70000"])


def test_error_codes_have_their_kafka_names() -> None:
    assert ErrorCode(3).name == "UNKNOWN_TOPIC_OR_PARTITION"
