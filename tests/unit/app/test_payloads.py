"""Typed payloads of handlers, from their annotations."""

import dataclasses
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from penstock.app.message import LogMessage, Message
from penstock.app.payloads import InvalidPayload, arguments_of, decoder_of
from penstock.client.consumer.fetched import FetchedRecord


class Model(pydantic.BaseModel):
    id: int


class Struct(msgspec.Struct):
    id: int


@dataclasses.dataclass
class Plain:
    id: int


@pydantic.dataclasses.dataclass
class Validated:
    id: pydantic.PositiveInt


class Typed(TypedDict):
    id: int


def message(payload: bytes | None) -> Any:
    return LogMessage(FetchedRecord("t", 0, 1, 0, None, payload, ()))


@pytest.mark.parametrize("kind", [Model, Struct, Plain, Validated, Typed])
def test_payload_is_decoded_and_validated_as_the_annotated_type(kind: Any) -> None:
    def handle(order: Any) -> None: ...

    handle.__annotations__["order"] = kind
    arguments = arguments_of(handle)
    expected = {"id": 7} if kind is Typed else kind(id=7)
    assert arguments(message(b'{"id": 7}')) == (expected,)
    # As `Registry.encode` writes it: behind the schema's id.
    assert arguments(message(b'\0\0\0\0\x05{"id": 7}')) == (expected,)
    for bad in (b'{"id": "x"}', b"{", b"", None):
        with pytest.raises(InvalidPayload):
            arguments(message(bad))


def test_message_and_payload_come_in_the_order_of_the_parameters() -> None:
    def both(order: Struct, message: Message) -> None: ...
    def reverse(message: Message, order: Struct) -> None: ...
    def plain(message) -> None: ...  # type: ignore[no-untyped-def]
    def log(message: LogMessage, extra: int = 3) -> None: ...
    def text(line: str) -> None: ...
    def raw(data: bytes) -> None: ...

    given = message(b'{"id": 7}')
    assert arguments_of(both)(given) == (Struct(7), given)
    assert arguments_of(reverse)(given) == (given, Struct(7))
    assert arguments_of(plain)(given) == (given,)
    assert arguments_of(log)(given) == (given,)
    assert arguments_of(text)(given) == ('{"id": 7}',)
    assert arguments_of(raw)(given) == (b'{"id": 7}',)
    assert arguments_of(lambda message: None)(given) == (given,)


def test_uncallable_handler_is_rejected_at_declaration() -> None:
    def none() -> None: ...
    def two(first: Struct, second: Model) -> None: ...
    def three(first: Struct, second: Message, third: int) -> None: ...
    def unfit(loop: type) -> None: ...
    def unknown(order: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821

    for handler, told in (
        (none, "takes no argument"),
        (two, "a handler takes the payload, the message"),
        (three, "takes 3 arguments"),
        (unfit, "cannot be decoded"),
        (unknown, "cannot be resolved"),
    ):
        with pytest.raises(TypeError, match=told):
            arguments_of(handler)


def test_received_messages_decode_their_payload_as_a_type() -> None:
    assert message(b'{"id": 7}').json(Plain) == Plain(7)
    with pytest.raises(InvalidPayload, match="payload is not a valid Plain"):
        message(b'{"id": null}').json(Plain)
    assert decoder_of(dict[str, int])(b'{"id": 7}') == {"id": 7}
