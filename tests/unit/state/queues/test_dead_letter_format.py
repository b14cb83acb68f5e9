"""Dead-lettered messages: the whole record, and headers with the reason."""

from penstock.state.queues.dead_letter_format import RecordSource, dead_letter_record
from penstock.state.queues.delivery import DeadLetter
from penstock.state.queues.delivery_state import DeliveryFailure
from penstock.wire.columns import Record

SOURCE = RecordSource("jobs", 3, "workers")
LETTER = DeadLetter(42, DeliveryFailure(5, 0, 1_000, 2_000, "TypeError", "no ♥"))


def test_it_has_the_record_and_what_became_of_it() -> None:
    record = Record(42, 900, b"key", b"value", (("mine", b"own"), ("null", None)))
    copy = dead_letter_record(SOURCE, LETTER, record, 3_000)
    assert (copy.key, copy.value, copy.timestamp) == (b"key", b"value", 3_000)
    assert copy.headers == (
        ("mine", b"own"),
        ("null", None),
        ("penstock-dlq-topic", b"jobs"),
        ("penstock-dlq-partition", b"3"),
        ("penstock-dlq-offset", b"42"),
        ("penstock-dlq-timestamp", b"900"),
        ("penstock-dlq-group", b"workers"),
        ("penstock-dlq-attempts", b"5"),
        ("penstock-dlq-error-class", b"TypeError"),
        ("penstock-dlq-error-message", "no ♥".encode()),
        ("penstock-dlq-first-failure", b"1000"),
        ("penstock-dlq-last-failure", b"2000"),
    )


def test_headers_of_an_earlier_death_are_replaced() -> None:
    earlier = dead_letter_record(SOURCE, LETTER, Record(42, 900, None, b"v", ()), 3_000)
    again = dead_letter_record(RecordSource("other", 0, "g"), LETTER, earlier, 4_000)
    topics = [value for name, value in again.headers if name == "penstock-dlq-topic"]
    assert topics == [b"other"]
    assert len(again.headers) == len(earlier.headers)


def test_record_that_is_gone_is_told_of_by_headers_alone() -> None:
    copy = dead_letter_record(SOURCE, LETTER, None, 3_000)
    assert (copy.key, copy.value) == (None, None)
    assert dict(copy.headers)["penstock-dlq-timestamp"] == b"-1"
