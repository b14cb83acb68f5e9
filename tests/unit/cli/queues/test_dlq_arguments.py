"""Dead letters on the command line: filters, and documents."""

from typing import Any

import pytest

from penstock.cli.queues.dlq_arguments import document_of, filter_of, parse_message_id, show_data
from penstock.cli.terminal.errors import UserError
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.client.dead_letters.message import dead_letter_of

NOTHING: dict[str, Any] = {
    "ids": (),
    "former_ids": (),
    "error": None,
    "message": None,
    "key": None,
    "header": None,
    "failed": None,
    "source": None,
    "by_group": None,
    "redrives_max": None,
}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, DeadLetterFilter()),
        ({"ids": ("0:5", "1:7")}, DeadLetterFilter(ids=frozenset({(0, 5), (1, 7)}))),
        ({"former_ids": ("0:5",)}, DeadLetterFilter(ids=frozenset({(0, 5)}))),
        (
            {"error": "Time*", "message": "bank"},
            DeadLetterFilter(error_class="Time*", error_text="bank"),
        ),
        ({"key": ""}, DeadLetterFilter(key=b"")),
        ({"header": "colour"}, DeadLetterFilter(header=("colour", None))),
        ({"header": "colour:red:1"}, DeadLetterFilter(header=("colour", b"red:1"))),
        ({"header": "colour:"}, DeadLetterFilter(header=("colour", b""))),
        ({"source": "t"}, DeadLetterFilter(source_topic="t")),
        ({"source": "t:3"}, DeadLetterFilter(source_topic="t", source_partition=3)),
        (
            {"source": "t:3:100"},
            DeadLetterFilter(source_topic="t", source_partition=3, source_offsets=(100, 101)),
        ),
        (
            {"source": "t:3:100-"},
            DeadLetterFilter(source_topic="t", source_partition=3, source_offsets=(100, None)),
        ),
        (
            {"source": "t:3:100-200"},
            DeadLetterFilter(source_topic="t", source_partition=3, source_offsets=(100, 200)),
        ),
        (
            {"failed": "@2026-11-01:1d"},
            DeadLetterFilter(failed_from_ms=1_793_491_200_000, failed_until_ms=1_793_577_600_000),
        ),
        (
            {"failed": "@2026-11-01:end", "redrives_max": 0, "by_group": "g"},
            DeadLetterFilter(failed_from_ms=1_793_491_200_000, redrives_max=0, group="g"),
        ),
    ],
)
def test_options_become_a_filter(given: dict[str, Any], chosen: DeadLetterFilter) -> None:
    assert filter_of(**NOTHING | given) == chosen


@pytest.mark.parametrize(
    "given",
    [
        {"ids": ("5",)},
        {"ids": ("a:b",)},
        {"failed": "yesterday"},
        {"failed": "5:9"},
        {"source": ":3"},
        {"source": "t:x"},
        {"source": "t:3:a-b"},
        {"source": "t:3:-5"},
    ],
)
def test_invalid_filter_options_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        filter_of(**NOTHING | given)


def test_dead_letter_id_is_partition_and_offset() -> None:
    assert parse_message_id("3:15") == (3, 15)


@pytest.mark.parametrize(
    ("data", "limit", "shown"),
    [
        (None, 10, None),
        (b"plain", 10, "plain"),
        (b"two\nlines", 20, "two lines"),
        (b"two\nlines", None, "two\nlines"),
        (b"much too long", 4, "much\u2026"),
        (b"\xff\x00", 10, "0xff00"),
        ("é".encode(), 10, "é"),
        ("aé😀é".encode(), 2, "a\u2026"),
        ("aé😀é".encode(), 3, "aé\u2026"),
        ("aé😀é".encode(), 6, "aé\u2026"),
        ("aé😀é".encode(), 7, "aé😀\u2026"),
        (b"\xff" + b"\x80" * 9, 6, "0xff80\u2026"),
    ],
)
def test_data_is_shown_as_text_where_possible(
    data: bytes | None, limit: int | None, shown: str | None
) -> None:
    assert show_data(data, limit) == shown


def test_dead_letter_is_shown_as_a_document() -> None:
    message = dead_letter_of(FetchedRecord("t.dlq", 0, 3, 1_000, b"k", b"\xff", (("h", None),)))
    document = document_of(message)
    assert document["letter"] == "0:3"
    assert document["headers"] == [["h", None]]
    assert document["payload_base64"] == "/w=="
    assert "payload" not in document_of(message, is_whole=False)
