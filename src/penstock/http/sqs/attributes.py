"""Message attributes as record headers and back, types kept.

An attribute is a header of the same name; its value is the header's. Types other than String are
listed in one more header, `penstock-sqs-types`. A header that a Kafka client set is a String, or
Binary if it is no text. Headers with which a record says something about its own delivery, and the
envelope's message id, are no attributes; those of a dead letter (`penstock-dlq-...`) are.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from penstock.doors.messages import MESSAGE_ID, Headers
from penstock.http.sqs.digests import AttributeValue
from penstock.http.sqs.faults import Fault, invalid
from penstock.queues import intake, letters

TYPES = "penstock-sqs-types"
TRACE = "penstock-sqs-trace"
"""The header of the one system attribute that senders may set, AWSTraceHeader."""
TRACE_ATTRIBUTE = "AWSTraceHeader"
ATTRIBUTES_MAX = 10
NAME_CHARS_MAX = 256
TYPE_CHARS_MAX = 256

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HIDDEN = frozenset({MESSAGE_ID, intake.DEDUP_ID, TYPES, TRACE})


def is_text(text: str) -> bool:
    """Whether XML can carry it: that is what SQS takes as text."""
    return _ILLEGAL.search(text) is None


def check_text(text: str, parameter: str) -> None:
    if not is_text(text):
        raise Fault(
            "InvalidMessageContents",
            f"{parameter} has characters outside the allowed set: tab, newline, carriage return "
            "and what Unicode has from U+0020 on, without surrogates, U+FFFE and U+FFFF.",
        )


# -- sending ----------------------------------------------------------------------------------


def headers_of(attributes: Mapping[str, AttributeValue]) -> Headers:
    """Raises Fault for what SQS would not take."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise Fault(
            "InvalidParameterValue",
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{ATTRIBUTES_MAX}].",
        )
    types: dict[str, str] = {}
    headers: list[tuple[str, bytes | None]] = []
    for name, value in attributes.items():
        _check(name, value)
        headers.append((name, value.content))
        if value.data_type != "String":
            types[name] = value.data_type
    if types:
        headers.append((TYPES, msgspec.json.encode(types)))
    return tuple(headers)


def size_of(attributes: Mapping[str, AttributeValue]) -> int:
    """What attributes count toward the size of a message."""
    return sum(
        len(name.encode()) + len(value.data_type.encode()) + len(value.content)
        for name, value in attributes.items()
    )


def _check(name: str, value: AttributeValue) -> None:
    lowered = name.lower()
    if (
        not _NAME.fullmatch(name)
        or len(name) > NAME_CHARS_MAX
        or lowered.startswith(("aws.", "amazon.", intake.PREFIX))
        or name == MESSAGE_ID
    ):
        raise invalid("MessageAttributes", name, "The attribute's name is not allowed.")
    kind = value.data_type.partition(".")[0]
    if kind not in ("String", "Number", "Binary") or len(value.data_type) > TYPE_CHARS_MAX:
        raise invalid(
            "MessageAttributes",
            name,
            "The attribute's DataType must begin with String, Number or Binary.",
        )
    if kind == "Binary":
        if not value.binary_value or value.string_value is not None:
            raise invalid("MessageAttributes", name, "The attribute must have a BinaryValue.")
        return
    if not value.string_value or value.binary_value is not None:
        raise invalid("MessageAttributes", name, "The attribute must have a StringValue.")
    check_text(value.string_value, f"The attribute {name}")
    if kind == "Number" and not _NUMBER.fullmatch(value.string_value):
        raise invalid("MessageAttributes", name, "The attribute's value is no number.")


# -- receiving --------------------------------------------------------------------------------


def attributes_of(headers: Headers, wanted: Iterable[str]) -> dict[str, AttributeValue]:
    """The attributes of a record that `wanted` names: by name, `prefix.*`, or All."""
    names = list(wanted)
    if not names or not headers:
        return {}
    types = types_of(headers)
    return {
        name: _attribute(types.get(name), value or b"")
        for name, value in headers
        if _is_attribute(name) and _is_wanted(name, names)
    }


def types_of(headers: Headers) -> dict[str, str]:
    text = header(headers, TYPES)
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}  # Not ours; the values are there all the same.


def header(headers: Headers, name: str) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def _is_attribute(name: str) -> bool:
    if name.startswith(intake.PREFIX):
        return name.startswith(letters.PREFIX)
    return name not in _HIDDEN


def _is_wanted(name: str, names: list[str]) -> bool:
    return any(
        wish in ("All", ".*", name) or (wish.endswith(".*") and name.startswith(wish[:-1]))
        for wish in names
    )


def _attribute(data_type: str | None, value: bytes) -> AttributeValue:
    if data_type is not None and data_type.startswith("Binary"):
        return AttributeValue(data_type, binary_value=value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return AttributeValue("Binary", binary_value=value)
    if not is_text(text):
        return AttributeValue("Binary", binary_value=value)
    return AttributeValue(data_type or "String", string_value=text)
