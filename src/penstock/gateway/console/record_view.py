"""Record formatted for the console: decoded by its schema, as JSON or text, else as hex.

Values are only ever text; pages never interpret them as markup. Lists truncate long values; the
page of a single message shows up to `WHOLE_BYTES_MAX`, and the bytes as base64.
"""

from base64 import b64encode

from msgspec import Struct

from penstock.client.consumer.fetched import FetchedRecord
from penstock.gateway.console.payload_decoding import Decoded, Decoder
from penstock.gateway.rest.message_json import is_valid_json

PREVIEW_CHARS = 600
KEY_CHARS = 200
HEADERS_SHOWN = 32
WHOLE_BYTES_MAX = 1 << 20
HEX_BYTES = 64
NULL, JSON, TEXT, BINARY = "null", "json", "text", "binary"


class Shown(Struct, omit_defaults=True):
    """Formatted bytes."""

    form: str
    """`null`, `json`, `text`, `binary`, or the name of a schema format."""
    text: str
    size: int
    is_cut: bool = False
    schema_id: int | None = None
    trouble: str = ""
    """Reason why decoding by the schema failed."""
    base64: str | None = None
    """Raw bytes, on the page of a single message."""


class ShownHeader(Struct):
    name: str
    value: Shown


class ShownMessage(Struct):
    partition: int
    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: Shown
    value: Shown
    headers: list[ShownHeader]
    size: int


async def show_message(
    message: FetchedRecord, decoder: Decoder, *, whole: bool = False
) -> ShownMessage:
    key = await _show(message.key, decoder, KEY_CHARS, whole)
    value = await _show(message.value, decoder, PREVIEW_CHARS, whole)
    headers = message.headers if whole else message.headers[:HEADERS_SHOWN]
    shown = [ShownHeader(name, plain(data, KEY_CHARS, whole)) for name, data in headers]
    size = key.size + value.size + sum(len(one.name) + one.value.size for one in shown)
    return ShownMessage(
        message.partition,
        message.offset,
        message.timestamp,
        message.is_append_time,
        key,
        value,
        shown,
        size,
    )


async def _show(data: bytes | None, decoder: Decoder, chars: int, whole: bool) -> Shown:
    if data is None:
        return Shown(NULL, "", 0)
    decoded = await decoder.decode(data)
    if decoded is None:
        return plain(data, chars, whole)
    shown = _by_schema(decoded, data, chars, whole)
    if whole:
        shown.base64 = _coded(data)
    return shown


def _by_schema(decoded: Decoded, data: bytes, chars: int, whole: bool) -> Shown:
    if decoded.trouble:
        shown = plain(data, chars, whole)
        shown.schema_id, shown.trouble = decoded.schema_id, decoded.trouble
        return shown
    text, is_cut = _cut(decoded.text, WHOLE_BYTES_MAX if whole else chars)
    return Shown(decoded.form, text, len(data), is_cut, decoded.schema_id)


def plain(data: bytes | None, chars: int, whole: bool = False) -> Shown:
    """Formats bytes without a schema."""
    if data is None:
        return Shown(NULL, "", 0)
    limit = WHOLE_BYTES_MAX if whole else chars
    text = _text_of(data, limit)
    if text is None or "\0" in text:
        shown = Shown(BINARY, data[:HEX_BYTES].hex(" "), len(data), len(data) > HEX_BYTES)
    else:
        form = JSON if data[:1] in (b"{", b"[") and is_valid_json(data) else TEXT
        cut, is_cut = _cut(text, limit)
        shown = Shown(form, cut, len(data), is_cut or len(data) > len(text.encode()))
    if whole:
        shown.base64 = _coded(data)
    return shown


def _text_of(data: bytes, chars: int) -> str | None:
    """Returns the shown part as text; None if it is not text."""
    part = data[: chars * 4]
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        # The last character may be incomplete.
        if len(part) < len(data) and error.start >= len(part) - 3:
            return part[: error.start].decode()
        return None


def _cut(text: str, chars: int) -> tuple[str, bool]:
    return (text, False) if len(text) <= chars else (text[:chars], True)


def _coded(data: bytes) -> str | None:
    return b64encode(data).decode() if len(data) <= WHOLE_BYTES_MAX else None
