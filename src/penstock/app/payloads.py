"""Typed payloads: decodes JSON into the type that a handler or a caller names.

A Pydantic model or dataclass is validated by Pydantic; every other type (msgspec structs,
dataclasses, TypedDicts, `dict[str, int]`, ...) by msgspec. `bytes` and `str` are taken as they are.
A payload that begins with a schema's id (Confluent's wire format, as `Registry.encode` writes it)
is decoded behind it: JSON never begins with a zero byte.

A handler names the type of its payload by the annotation of its first parameter; a parameter that
is annotated with `Message`, or not at all, receives the message itself.
"""

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from penstock.app.message import LogMessage, Message, Received

Decode: TypeAlias = Callable[[bytes], Any]
Arguments: TypeAlias = Callable[[Any], tuple[Any, ...]]
"""Maps a message to the arguments of a handler."""

_PREFIX = b"\0"
_PREFIX_BYTES = 5


class InvalidPayload(ValueError):
    """The payload is not valid for the type: no retry can help."""


def decoder_of(kind: Any) -> Decode:
    """Returns the decoder of a type's payloads, which raises InvalidPayload.

    Raises TypeError for a type that cannot be decoded from JSON.
    """
    if kind is bytes:
        return bytes
    validator = getattr(kind, "__pydantic_validator__", None)
    if kind is str:
        decode: Decode = bytes.decode
    elif validator is not None:
        decode = validator.validate_json
    else:
        try:
            if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
                raise TypeError("it is an ordinary class")
            decode = msgspec.json.Decoder(kind).decode
        except TypeError as error:
            raise TypeError(
                f"{kind!r} cannot be decoded from JSON ({error}): use a Pydantic model, a "
                "msgspec.Struct, a dataclass, or Message"
            ) from None
    name = getattr(kind, "__name__", repr(kind))

    def decoded(payload: bytes) -> Any:
        if payload[:1] == _PREFIX and kind is not str:
            payload = payload[_PREFIX_BYTES:]
        try:
            return decode(payload)
        except ValueError as error:
            raise InvalidPayload(f"payload is not a valid {name}: {error}") from error

    return decoded


def arguments_of(handler: Callable[..., Any], *, may_be_none: bool = False) -> Arguments:
    """Maps messages to the arguments that a handler's annotations ask for.

    `may_be_none` allows a handler without arguments. Raises TypeError for a handler that needs
    anything but a payload and a message.
    """
    name = getattr(handler, "__qualname__", repr(handler))
    called = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004 - its annotations are wanted
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [
        one
        for one in inspect.signature(handler).parameters.values()
        if one.default is one.empty and one.kind in positional
    ]
    if not parameters:
        if any(
            one.kind is inspect.Parameter.VAR_POSITIONAL
            for one in inspect.signature(handler).parameters.values()
        ):
            return lambda message: (message,)
        if may_be_none:
            return lambda message: ()
        raise TypeError(f"{name} takes no argument: declare one for the message or its payload")
    hints = _hints(called, name)
    kinds = [hints.get(one.name, one.annotation) for one in parameters]
    makers = [_maker(kind, is_first=not at) for at, kind in enumerate(kinds)]
    decoded = [at for at, maker in enumerate(makers) if maker is not None]
    if len(makers) > 2 or len(decoded) > 1 or len(makers) - len(decoded) > 1:
        raise TypeError(
            f"{name} takes {len(makers)} arguments: a handler takes the payload, the message "
            "(annotated with Message), or both"
        )
    if not decoded:
        return lambda message: (message,)
    decode = makers[decoded[0]]
    assert decode is not None
    if len(makers) == 1:
        return lambda message: (_payload(decode, message),)
    if decoded[0] == 0:
        return lambda message: (_payload(decode, message), message)
    return lambda message: (message, _payload(decode, message))


def result_decoder_of(handler: Callable[..., Any]) -> Decode:
    """Decoder of a handler's results, by its return annotation; without one, of any JSON."""
    called = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004 - its annotations are wanted
    try:
        kind = typing.get_type_hints(called, include_extras=True).get("return")
    except NameError:
        kind = None
    return msgspec.json.decode if kind in (None, Any, type(None)) else decoder_of(kind)


def _payload(decode: Decode, message: Received) -> Any:
    if message.is_tombstone:
        raise InvalidPayload("the message has no payload")
    return decode(message.payload)


def _maker(kind: Any, *, is_first: bool) -> Decode | None:
    """Decoder of a parameter; None: it receives the message."""
    if kind is inspect.Parameter.empty or (kind is Any and is_first):
        return None
    if isinstance(kind, type) and issubclass(kind, Received):
        return None
    return decoder_of(kind)


def _hints(handler: Callable[..., Any], name: str) -> dict[str, Any]:
    known = {"Message": Message, "LogMessage": LogMessage}
    try:
        return typing.get_type_hints(handler, localns=known, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"annotations of {name} cannot be resolved ({error}): import the payload's type at the "
            "top of the module, outside of `if TYPE_CHECKING`"
        ) from None


__all__ = ["Arguments", "InvalidPayload", "arguments_of", "decoder_of", "result_decoder_of"]
