"""Dead letters decoded from messages, and filters."""

import pytest

from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.message import (
    REDRIVES,
    DeadLetterMessage,
    RecordOrigin,
    dead_letter_of,
)
from penstock.state.queues import dead_letter_format as written
from penstock.state.queues.delivery import DeadLetter
from penstock.state.queues.delivery_state import DeliveryFailure
from penstock.wire.columns import Record


def message_of(record: Record, partition: int = 0, offset: int = 7) -> FetchedRecord:
    return FetchedRecord("t.dlq", partition, offset, record.timestamp, *record[2:])


def dead_letter_message() -> DeadLetterMessage:
    record = Record(0, 1_000, b"k", b"payload", (("colour", b"red"), (REDRIVES, b"2")))
    dead = DeadLetter(42, DeliveryFailure(5, 0, 2_000, 3_000, "Timeout", "the bank did not answer"))
    copy = written.dead_letter_record(written.RecordSource("t", 3, "workers"), dead, record, 4_000)
    return dead_letter_of(message_of(copy))


def test_dead_letter_round_trips() -> None:
    message = dead_letter_message()
    assert message.source == RecordOrigin("t", 3, 42)
    assert (message.key, message.payload, message.timestamp_ms) == (b"k", b"payload", 4_000)
    assert (message.group, message.attempts, message.redrives) == ("workers", 5, 2)
    assert (message.error_class, message.error_message) == ("Timeout", "the bank did not answer")
    assert (message.first_failure_ms, message.last_failure_ms) == (2_000, 3_000)
    assert message.source_timestamp_ms == 1_000
    assert message.own_headers == (("colour", b"red"), (REDRIVES, b"2"))
    assert message.id == "0:7"


def test_foreign_message_is_a_dead_letter_of_unknown_origin() -> None:
    message = dead_letter_of(message_of(Record(0, 9, b"k", None, (("penstock-dlq-offset", b"x"),))))
    assert (message.source, message.attempts, message.last_failure_ms) == (None, 0, -1)


@pytest.mark.parametrize(
    ("chosen", "is_meant"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(error_class="Time*"), True),
        (DeadLetterFilter(error_class="timeout"), False),
        (DeadLetterFilter(error_text="bank"), True),
        (DeadLetterFilter(error_text="post office"), False),
        (DeadLetterFilter(key=b"k"), True),
        (DeadLetterFilter(key=b""), False),
        (DeadLetterFilter(header=("colour", None)), True),
        (DeadLetterFilter(header=("colour", b"red")), True),
        (DeadLetterFilter(header=("colour", b"blue")), False),
        (DeadLetterFilter(header=("penstock-dlq-topic", None)), False),
        (DeadLetterFilter(failed_from_ms=3_000), True),
        (DeadLetterFilter(failed_from_ms=3_001), False),
        (DeadLetterFilter(failed_until_ms=3_000), False),
        (DeadLetterFilter(source_topic="t", source_partition=3), True),
        (DeadLetterFilter(source_partition=2), False),
        (DeadLetterFilter(source_offsets=(40, 42)), False),
        (DeadLetterFilter(source_offsets=(42, None)), True),
        (DeadLetterFilter(group="workers"), True),
        (DeadLetterFilter(group="other"), False),
        (DeadLetterFilter(redrives_max=1), False),
        (DeadLetterFilter(redrives_max=2), True),
        (DeadLetterFilter(ids=frozenset({(0, 7), (1, 1)})), True),
        (DeadLetterFilter(ids=frozenset({(0, 8)})), False),
        (DeadLetterFilter(error_class="Timeout", key=b"other"), False),
    ],
)
def test_filter_matches_dead_letters_that_meet_every_condition(
    chosen: DeadLetterFilter, is_meant: bool
) -> None:
    assert chosen.matches(dead_letter_message()) is is_meant


def test_dead_letter_of_unknown_origin_matches_no_source_filter() -> None:
    message = dead_letter_of(message_of(Record(0, 9, None, b"v", ())))
    assert DeadLetterFilter().matches(message)
    assert not DeadLetterFilter(source_offsets=(0, None)).matches(message)


def test_filter_describes_only_its_conditions() -> None:
    assert DeadLetterFilter().described() == {}
    chosen = DeadLetterFilter(
        ids=frozenset({(1, 5), (0, 9)}), key=b"k", header=("h", b"v"), redrives_max=0
    )
    assert chosen.described() == {
        "letters": ["0:9", "1:5"],
        "key": "k",
        "header": "h:v",
        "redrives_max": 0,
    }
