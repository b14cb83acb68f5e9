"""Responses of the query protocol: results and errors as XML.

SQS repeats an element for each item of a list and writes tables as pairs (`FLAT`); SNS wraps
lists in `member` and tables in `entry`. Result names are those of the JSON protocol, so handlers
need not know the protocol.
"""

import base64
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape

SQS_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
SNS_NAMESPACE = "http://sns.amazonaws.com/doc/2010-03-31/"

FLAT = {
    "Attributes": "Attribute",
    "Failed": "BatchResultErrorEntry",
    "MessageAttributes": "MessageAttribute",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
    "Tags": "Tag",
    "queueUrls": "QueueUrl",
}
TABLE = "Attributes"
"""Table that SNS writes as entries."""
PAIRS = {"Tags": ("Key", "Value")}
_ESCAPES = {"\r": "&#13;", '"': "&quot;"}


def write_result(
    action: str, result: Mapping[str, object], request_id: str, *, namespace: str
) -> bytes:
    is_flat = namespace == SQS_NAMESPACE
    inner = "".join(_fields(result, action, is_flat))
    return (
        f'<?xml version="1.0"?><{action}Response xmlns="{namespace}">'
        f"<{action}Result>{inner}</{action}Result>"
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    ).encode()


def write_error(
    code: str, message: str, request_id: str, *, is_sender: bool, namespace: str
) -> bytes:
    kind = "Sender" if is_sender else "Receiver"
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{namespace}"><Error><Type>{kind}</Type>'
        f"<Code>{_text(code)}</Code><Message>{_text(message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def _fields(values: Mapping[str, object], action: str, is_flat: bool) -> Iterator[str]:
    for name, value in values.items():
        if is_flat and isinstance(value, list | Mapping) and _is_plural(name):
            tag = f"{action}ResultEntry" if name == "Successful" else FLAT[name]
            yield from _flat(tag, name, value, action)
        elif name == TABLE and isinstance(value, Mapping):
            yield f"<{name}>{''.join(_entries(value))}</{name}>"
        else:
            yield f"<{name}>{_value(value, action, is_flat)}</{name}>"


def _entries(table: Mapping[str, object]) -> Iterator[str]:
    for key, value in table.items():
        yield f"<entry><key>{_text(key)}</key><value>{_text(str(value))}</value></entry>"


def _is_plural(name: str) -> bool:
    return name == "Successful" or name in FLAT


def _flat(
    tag: str, name: str, values: list[object] | Mapping[str, object], action: str
) -> Iterator[str]:
    if isinstance(values, list):
        for value in values:
            yield f"<{tag}>{_value(value, action, True)}</{tag}>"
        return
    first, second = PAIRS.get(name, ("Name", "Value"))
    for key, value in values.items():
        shown = _value(value, action, True)
        yield f"<{tag}><{first}>{_text(key)}</{first}><{second}>{shown}</{second}></{tag}>"


def _value(value: object, action: str, is_flat: bool) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            items = (_value(item, action, is_flat) for item in value)
            return "".join(f"<member>{item}</member>" for item in items)
        case Mapping():
            return "".join(_fields(value, action, is_flat))
    return _text(str(value))


def _text(text: str) -> str:
    return escape(text, _ESCAPES)
