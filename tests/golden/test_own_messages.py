"""Messages that are Penstock's own: what nodes and tools send each other.

They are the APIs from key 30000 on, and the fields that Penstock adds to Kafka's messages under
tags of its own. Kafka's messages themselves are compared with Kafka's schemas in `tests/wire`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from penstock.wire.apis import REQUESTS, RESPONSES
from penstock.wire.messages import OWN_KEYS
from penstock.wire.schema import Field, wire_of
from tests.golden.book import Book, Sample
from tests.golden.filling import (
    decode_message,
    encode_message,
    full_message,
    minimal_message,
)

OWN_TAGS: Final = 10_000


def _is_ours(kind: type[Any]) -> bool:
    return wire_of(kind).key >= OWN_KEYS or _has_own_tags(kind)


def _has_own_tags(kind: type[Any]) -> bool:
    for field in wire_of(kind).fields:
        if field.tag is not None and field.tag >= OWN_TAGS:
            return True
        if isinstance(field.of, type) and _has_own_tags(field.of):
            return True
    return False


def _samples() -> Iterator[Sample]:
    # The table of each side is made from the ends of class names: a message that is missing in it
    # after a rename is missing here.
    for side, table in (("request", REQUESTS), ("response", RESPONSES)):
        for key, kind in table.items():
            if _is_ours(kind):
                first, last = wire_of(kind).versions
                for version in range(first, last + 1):
                    yield from _both(f"{key} {side} v{version}", kind, version)
    yield Sample("api keys of requests", " ".join(map(str, REQUESTS)).encode())
    yield Sample("api keys of responses", " ".join(map(str, RESPONSES)).encode())


def _both(name: str, kind: type[Any], version: int) -> Iterator[Sample]:
    for size, message in (
        ("full", full_message(kind, version)),
        ("minimal", minimal_message(kind, version)),
    ):
        data = encode_message(message, version)
        yield Sample(f"{name} {size}", data, message, partial(decode_message, kind, version))


BOOK: Final = Book("own_messages", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_message_is_lost() -> None:
    BOOK.check_names()


def test_every_part_of_a_message_is_in_a_sample() -> None:
    """No nested struct is left out: full samples have two elements in every array."""
    for kind in (*REQUESTS.values(), *RESPONSES.values()):
        if _is_ours(kind):
            _check_set(full_message(kind, wire_of(kind).versions[1]))


def _check_set(message: Any) -> None:
    version = 32_767
    for field in wire_of(type(message)).fields:
        value = getattr(message, field.name)
        if not (field.until is None or field.is_in(version)):
            continue
        assert value != field.default, field
        if field.kind == "array" and not isinstance(field.of, Field):
            assert len(value) == 2
            _check_set(value[0])
