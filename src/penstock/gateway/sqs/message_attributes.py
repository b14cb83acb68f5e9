"""Conversion between message attributes and record headers, preserving types.

An attribute is a header of the same name and value. Types other than String are listed in another
header, `penstock-sqs-types`. A header that a Kafka client set is a String, or Binary if it is not
text. Headers about a record's delivery or redrives, and the envelope's message id, are not
attributes; those of a dead-lettered message (`penstock-dlq-...`) are.

MD5 digests of messages, which SDKs recompute to detect changes in transit. The digest of
attributes covers, in order of names, for each: name, type, one byte for the kind of value (1:
text, 2: bytes), and value. A length of four bytes precedes name, type and value.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import md5

import msgspec

from penstock.client.dead_letters.message import REDRIVES
from penstock.client.dead_letters.redrive import REDRIVEN_FROM
from penstock.gateway.core.messages import MESSAGE_ID, Headers
from penstock.gateway.sqs.errors import Fault
from penstock.state.queues import dead_letter_format, delivery_headers

TEXT = b"\x01"
BINARY = b"\x02"


class AttributeValue(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Message attribute; `data_type` is String, Number or Binary, optionally with `.anything`."""

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None

    @property
    def content(self) -> bytes:
        if self.string_value is not None:
            return self.string_value.encode()
        return self.binary_value or b""


def digest_body(body: str) -> str:
    return md5(body.encode(), usedforsecurity=False).hexdigest()


def digest_attributes(attributes: Mapping[str, AttributeValue]) -> str:
    digest = md5(usedforsecurity=False)
    for name, value in sorted(attributes.items()):
        digest.update(_sized(name.encode()))
        digest.update(_sized(value.data_type.encode()))
        digest.update(TEXT if value.string_value is not None else BINARY)
        digest.update(_sized(value.content))
    return digest.hexdigest()


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


TYPES = "penstock-sqs-types"
TRACE = "penstock-sqs-trace"
"""Header for AWSTraceHeader, the only system attribute that senders may set."""
TRACE_ATTRIBUTE = "AWSTraceHeader"
ATTRIBUTES_MAX = 10
NAME_BYTES_MAX = 256
TYPE_BYTES_MAX = 256

ILLEGAL = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
    "#xE000 to #xFFFD | #x10000 to #x10FFFF"
)
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HIDDEN = frozenset({MESSAGE_ID, delivery_headers.DEDUP_ID, TYPES, TRACE, REDRIVES, REDRIVEN_FROM})


def is_text(text: str) -> bool:
    """True for characters that XML allows: SQS accepts no others."""
    return _ILLEGAL.search(text) is None


def check_text(text: str, parameter: str) -> None:
    if not is_text(text):
        raise Fault(
            "InvalidMessageContents",
            f"{parameter}: {ILLEGAL}",
        )


# -- sending ----------------------------------------------------------------------------------


def headers_of(attributes: Mapping[str, AttributeValue]) -> Headers:
    """Returns the headers of attributes; raises Fault for attributes that SQS refuses."""
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
    """Size of attributes that counts toward the message size, in bytes."""
    return sum(
        len(name.encode()) + len(value.data_type.encode()) + len(value.content)
        for name, value in attributes.items()
    )


def _check(name: str, value: AttributeValue) -> None:
    """Checks an attribute; uses Amazon's error messages where they are known."""
    if len(name.encode()) > NAME_BYTES_MAX:
        raise _refused("names must be shorter than 256 Bytes")
    if not _NAME.fullmatch(name):
        raise _refused(
            "names can contain upper and lower case alphanumeric characters, underscores, "
            "hyphens and periods, and cannot start or end with '.' or have two in a row: "
            f"'{name}'"
        )
    if name.lower().startswith(("aws.", "amazon.", delivery_headers.PREFIX)) or name == MESSAGE_ID:
        raise _refused(f"names cannot start with what is reserved for internal use: '{name}'")
    _check_value(name, value)


def _check_value(name: str, value: AttributeValue) -> None:
    kind = value.data_type.partition(".")[0]
    if not kind:
        raise _refused(f"'{name}' must contain a non-empty attribute type")
    if kind not in ("String", "Number", "Binary"):
        raise _refused(
            f"'{name}' has an invalid type, the set of supported type prefixes is Binary, Number, "
            "and String"
        )
    if len(value.data_type.encode()) > TYPE_BYTES_MAX:
        raise _refused("types must be shorter than 256 Bytes")
    content, other = value.string_value, value.binary_value
    if kind == "Binary":
        if not other or content is not None:
            raise _refused(f"'{name}' must contain a non-empty value of type 'Binary'")
        return
    if not content or other is not None:
        raise _refused(f"'{name}' must contain a non-empty value of type 'String'")
    if not is_text(content):
        raise Fault("InvalidParameterValue", ILLEGAL)
    if kind == "Number" and not _NUMBER.fullmatch(content):
        raise Fault("InvalidParameterValue", f"Can't cast the value of '{name}' to a number.")


def _refused(why: str) -> Fault:
    return Fault("InvalidParameterValue", f"Message (user) attribute {why}.")


# -- receiving --------------------------------------------------------------------------------


def attributes_of(headers: Headers, wanted: Iterable[str]) -> dict[str, AttributeValue]:
    """Returns a record's attributes that match `wanted`: a name, `prefix.*`, or All."""
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
        return {}  # Not written by this endpoint; the values are valid all the same.


def header(headers: Headers, name: str) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def _is_attribute(name: str) -> bool:
    if name.startswith(delivery_headers.PREFIX):
        return name.startswith(dead_letter_format.PREFIX)
    return name not in _HIDDEN


def _is_wanted(name: str, names: list[str]) -> bool:
    return any(
        pattern in ("All", "*", ".*", name)
        or (pattern.endswith(".*") and name.startswith(pattern[:-2]))
        for pattern in names
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
