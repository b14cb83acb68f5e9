"""Tokens that clients store: receipts, page tokens, ids; and attributes as headers."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from penstock.base.ids import NO_TOPIC_ID, TopicId, parse_topic_id, show_topic_id
from penstock.cluster.metadata.image import entity_at, path_of
from penstock.cluster.storage.log_directories import directory_of
from penstock.gateway.core.receipts import MEMBER_BYTES, Receipt, Receipts, new_member
from penstock.gateway.sqs.message_attributes import AttributeValue, attributes_of, headers_of
from penstock.gateway.sqs.requests import page
from penstock.gateway.sqs.send import new_message_id
from penstock.security.quotas import DEFAULT, Entity
from penstock.security.scram import credential_of, salted_password
from penstock.state.queues.state_shard import QueueKey
from simulation.random import SimRandom
from tests.golden.book import Book, Sample

TOPIC_ID: Final = TopicId(bytes(range(16)))
RECEIPTS: Final = Receipts("cluster")
NAMES: Final = [f"queue-{number}" for number in range(5)]
ATTRIBUTES: Final = {
    "color": AttributeValue("String", string_value="red"),
    "size": AttributeValue("Number.int", string_value="7"),
    "picture": AttributeValue("Binary", binary_value=b"\0\xff"),
}
ENTITIES: Final = {
    "user": Entity("ann/bob", None, None),
    "user and client": Entity("ann", "app 1", None),
    "defaults": Entity(DEFAULT, DEFAULT, None),
    "address": Entity(None, None, "1.2.3.4"),
}


def _samples() -> Iterator[Sample]:
    member = new_member(bytes(range(MEMBER_BYTES)))
    yield Sample("member of a gateway", member.encode())
    receipt = Receipt(QueueKey("sales \N{EURO SIGN}", bytes(range(16)), 300), member, 70_000)
    yield Sample("receipt", RECEIPTS.write(*receipt).encode(), receipt, _read_receipt)
    _, token = page(NAMES, 2, None)
    assert token is not None
    yield Sample("token of a page", token.encode(), NAMES[2:4], _next_page)
    yield Sample("message id of SQS", new_message_id(SimRandom(1)).encode())
    headers = headers_of(ATTRIBUTES)
    for name, value in headers:
        yield Sample(f"attribute {name}", value or b"")
    yield Sample(
        "topic id", show_topic_id(TOPIC_ID).encode(), TOPIC_ID, partial(_text, parse_topic_id)
    )
    yield Sample("no topic id", show_topic_id(NO_TOPIC_ID).encode())
    yield Sample("directory of a topic", directory_of("t" * 240, TOPIC_ID).encode())
    for name, entity in ENTITIES.items():
        path = path_of(entity).encode()
        yield Sample(f"path of an entity: {name}", path, entity, partial(_text, entity_at))
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        salt = b"salt" * 4
        salted = salted_password(mechanism, "secret", salt, 4096)
        kept = credential_of(mechanism, salted, salt, 4096)
        yield Sample(f"credential: {mechanism}", kept.stored_key + kept.server_key)


def _text(read: Any, data: bytes) -> Any:
    return read(data.decode())


def _read_receipt(data: bytes) -> Receipt:
    return RECEIPTS.read(data.decode())


def _next_page(data: bytes) -> list[str]:
    return page(NAMES, 2, data.decode())[0]


BOOK: Final = Book("tokens", _samples)


@pytest.mark.parametrize("sample", BOOK.samples, ids=str)
def test_bytes_are_unchanged(sample: Sample) -> None:
    BOOK.check(sample)


def test_no_sample_is_lost() -> None:
    BOOK.check_names()


def test_attributes_round_trip_with_their_types() -> None:
    stored = BOOK.stored()
    prefix = "attribute "
    headers = tuple(
        (name.removeprefix(prefix), value)
        for name, value in stored.items()
        if name.startswith(prefix)
    )
    assert attributes_of(headers, ["All"]) == ATTRIBUTES
