"""Output templates of `penstock consume -f`, in the syntax of kcat and rpk.

    %t topic      %p partition    %o offset      %T timestamp (ms)    %d the same, as ISO 8601
    %k key        %v value        %h headers     %H number of headers
    %K %V (%S)    length of key, of value; -1 for null
    %%  a percent sign

Escapes: \\n \\t \\r \\0 \\\\ \\xFF. Keys, values and headers take a form in braces: %v{hex},
%v{base64}, %v{json}. Without a form they are written unchanged, except that a terminal gets them
escaped. Null is empty.
"""

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import harmless, shown_json

if TYPE_CHECKING:
    from penstock.client.consumer.fetched import FetchedRecord

Part = Callable[["FetchedRecord"], bytes]

DEFAULT = "%v\\n"
WIDE = "%t[%p] %o  %d  %k  %v  %h\\n"
"""Template of `--format wide`."""
META = "%t[%p] %o  %d  %V bytes  %k  %h\\n"
"""Template of `--meta-only`."""
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def compile_template(text: str, *, is_seen: bool = False) -> Callable[["FetchedRecord"], bytes]:
    """Returns a function that renders a message. Raises UserError on an invalid template.

    With `is_seen`, for a terminal, the message's data is escaped; the template's own text is not.
    """
    parts: list[Part] = []
    literal = bytearray()
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            escaped, position = _read_escape(text, position)
            literal += escaped
        elif char == "%" and text[position + 1 : position + 2] == "%":
            literal += b"%"
            position += 2
        elif char == "%":
            if literal:
                parts.append(_constant(bytes(literal)))
                literal.clear()
            part, position = _read_field(text, position)
            parts.append(_harmless_part(part) if is_seen else part)
        else:
            literal += char.encode()
            position += 1
    if literal:
        parts.append(_constant(bytes(literal)))
    return lambda message: b"".join([part(message) for part in parts])


def _read_escape(text: str, position: int) -> tuple[bytes, int]:
    kind = text[position + 1 : position + 2]
    if kind == "x":
        digits = text[position + 2 : position + 4]
        try:
            return binascii.unhexlify(digits), position + 4
        except binascii.Error:
            raise UserError(f"template: \\x{digits} needs two hexadecimal digits") from None
    if kind not in _ESCAPES:
        raise UserError(f"template: unknown escape \\{kind}; use \\n \\t \\r \\0 \\\\ or \\xFF")
    return _ESCAPES[kind], position + 2


def _read_field(text: str, position: int) -> tuple[Part, int]:
    name = text[position + 1 : position + 2]
    position += 2
    form = ""
    if name in _BYTES and text[position : position + 1] == "{":
        close = text.find("}", position)
        if close < 0:
            raise UserError(f"template: %{name}{{ has no closing brace")
        form = text[position + 1 : close]
        position = close + 1
    if name in _BYTES:
        if form not in _FORMS:
            known = ", ".join(sorted(filter(None, _FORMS)))
            raise UserError(f"template: unknown form %{name}{{{form}}}; use one of {known}")
        return _bytes_part(_BYTES[name], _FORMS[form]), position
    if name == "h":
        return _headers, position
    if name not in _PLAIN:
        known = " ".join(f"%{key}" for key in "tpoTdkvhHKVS")
        raise UserError(f"template: unknown field %{name}; use one of {known} or %%")
    return _PLAIN[name], position


def _constant(value: bytes) -> Part:
    return lambda message: value


def _bytes_part(
    get: Callable[["FetchedRecord"], bytes | None], form: Callable[[bytes], bytes]
) -> Part:
    def part(message: "FetchedRecord") -> bytes:
        value = get(message)
        return b"" if value is None else form(value)

    return part


def _harmless_part(part: Part) -> Part:
    return lambda message: harmless(part(message))


def _headers(message: "FetchedRecord") -> bytes:
    """Renders headers as `name=value,name=value`, like kcat."""
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers)


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)


def show_time(timestamp_ms: int) -> str:
    """Formats a timestamp as ISO 8601 in UTC; empty for a record without one."""
    if timestamp_ms < 0:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_BYTES: dict[str, Callable[["FetchedRecord"], bytes | None]] = {
    "k": lambda message: message.key,
    "v": lambda message: message.value,
    "s": lambda message: message.value,
}
_FORMS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda value: value,
    "hex": binascii.hexlify,
    "base64": base64.b64encode,
    "json": lambda value: json.dumps(value.decode("utf-8", "replace")).encode(),
}
_PLAIN: dict[str, Part] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.partition,
    "o": lambda message: b"%d" % message.offset,
    "T": lambda message: b"%d" % message.timestamp,
    "d": lambda message: show_time(message.timestamp).encode(),
    "H": lambda message: b"%d" % len(message.headers),
    "K": lambda message: _length(message.key),
    "V": lambda message: _length(message.value),
    "S": lambda message: _length(message.value),
}


def as_json(message: "FetchedRecord", has_value: bool = True, *, is_seen: bool = False) -> bytes:
    """Renders a message as a line of JSON. Data that is not UTF-8 is in base64, with a mark."""
    return shown_json(_document(message, has_value), is_seen=is_seen).encode() + b"\n"


def as_yaml(message: "FetchedRecord", has_value: bool = True) -> bytes:
    """Renders a message as one document of a YAML stream."""
    from penstock.cli.terminal.yaml import dumped

    return b"---\n" + dumped(_document(message, has_value)).encode()


def _document(message: "FetchedRecord", has_value: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
    }
    shown = {"key": message.key, **({"value": message.value} if has_value else {})}
    if not has_value:
        row["value_bytes"] = None if message.value is None else len(message.value)
    for name, value in shown.items():
        text, is_base64 = _as_text(value)
        row[name + "_base64" if is_base64 else name] = text
    headers = []
    for name, value in message.headers:
        text, is_base64 = _as_text(value)
        headers.append({"name": name, "value_base64" if is_base64 else "value": text})
    row["headers"] = headers
    return row


def _as_text(value: bytes | None) -> tuple[str | None, bool]:
    if value is None:
        return None, False
    try:
        return value.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(value).decode(), True
