"""The two protocols of AWS SDKs: parsing of requests and formatting of responses.

`JsonProtocol` (AWS JSON 1.0): the action is in `X-Amz-Target`, errors have a `__type`, and the
older code is in `x-amzn-query-error`. `QueryProtocol`: a form with `Action`, answered with XML; the
form's `Version` distinguishes SNS from SQS.

Requests of the query protocol: a flat form becomes the nested request of the JSON protocol.

    Attribute.1.Name=DelaySeconds&Attribute.1.Value=5   {"Attributes": {"DelaySeconds": "5"}}
    AttributeName.1=All                                 {"AttributeNames": ["All"]}
    MessageAttributes.entry.1.Name=...                  (SNS) a table
    Tags.member.1.Key=...                               (SNS) a list

Names with dots form a tree; if the names are numbers it is a list, in their order. SQS forms use
singular names where JSON uses plural ones (`PLURALS`), and tables come as pairs.
Bounds: number of fields, depth of the tree.

Responses of the query protocol: results and errors as XML. SQS repeats an element for each item
of a list and writes tables as pairs (`FLAT`); SNS wraps lists in `member` and tables in `entry`.
Result names are those of the JSON protocol, so handlers need not know the protocol.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec
from starlette.responses import Response

from penstock.gateway.http.request_io import utf8
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sqs.actions import SQS_ACTIONS
from penstock.gateway.sqs.call import Action, Answer
from penstock.gateway.sqs.errors import QUERY_MESSAGES, UNMODELLED, Fault

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
    inner = "".join(_form_fields(result, action, is_flat))
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


def _form_fields(values: Mapping[str, object], action: str, is_flat: bool) -> Iterator[str]:
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
            return "".join(_form_fields(value, action, is_flat))
    return _text(str(value))


def _text(text: str) -> str:
    return escape(text, _ESCAPES)


SNS_VERSION = "2010-03-31"
FIELDS_MAX = 2_000
DEPTH_MAX = 8

PLURALS = {
    "Attribute": "Attributes",
    "AttributeName": "AttributeNames",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "MessageAttribute": "MessageAttributes",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttribute": "MessageSystemAttributes",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "SendMessageBatchRequestEntry": "Entries",
    "Tag": "Tags",
    "TagKey": "TagKeys",
}
TABLES = frozenset({"Attributes", "MessageAttributes", "MessageSystemAttributes", "Tags"})
NAMES = ("Name", "Key", "key")
VALUES = ("Value", "value")


def read_form(body: bytes) -> dict[str, object]:
    """Parses a form of SQS or SNS; raises Fault."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError as error:
        raise Fault("MalformedQueryString", f"The form cannot be read: {error}.") from error
    tree: dict[str, object] = {}
    for name, value in pairs:
        _insert(tree, name, value)
    return _fields(tree, {} if tree.get("Version") == SNS_VERSION else PLURALS)


def _insert(tree: dict[str, object], name: str, value: str) -> None:
    *path, leaf = name.split(".")
    if len(path) >= DEPTH_MAX:
        raise Fault("MalformedQueryString", "The form is nested too deeply.")
    node = tree
    for part in path:
        inner = node.setdefault(part, {})
        if not isinstance(inner, dict):
            raise Fault("MalformedQueryString", f"{name} is both a value and a structure.")
        node = inner
    if leaf in node:
        raise Fault("MalformedQueryString", f"{name} is given twice.")
    node[leaf] = value


def _shape(node: object, plurals: Mapping[str, str]) -> object:
    if not isinstance(node, Mapping):
        return node
    if node and all(_is_number(name) for name in node):
        numbered = sorted(((int(name), value) for name, value in node.items()), key=_number)
        return [_shape(value, plurals) for _, value in numbered]
    if len(node) == 1:
        (name, inner) = next(iter(node.items()))
        if name in ("member", "entry") and isinstance(inner, Mapping):
            return _shape(inner, plurals)
    return _fields(node, plurals)


def _fields(node: Mapping[str, object], plurals: Mapping[str, str]) -> dict[str, object]:
    shaped: dict[str, object] = {}
    for name, value in node.items():
        plural = plurals.get(name, name)
        items = _shape(value, plurals)
        if items == "" and name in plurals.values():
            items = []  # SDKs write an empty list like this.
        if name in plurals and not isinstance(items, list):
            # Some clients omit the number of a single item; an empty value means no item.
            items = [] if items == "" else [items]
        shaped[plural] = _table(items) if plural in TABLES else items
    return shaped


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= 6


def _number(item: tuple[int, object]) -> int:
    return item[0]


def _table(items: object) -> object:
    """Converts pairs to a table."""
    if not isinstance(items, list):
        return items
    table: dict[str, object] = {}
    for item in items:
        name = _member(item, NAMES)
        if not isinstance(name, str):
            raise Fault("MalformedQueryString", "An entry of a table has no name.")
        value = _member(item, VALUES)
        table[name] = "" if value is None else value
    return table


def _member(item: object, names: tuple[str, ...]) -> object:
    if not isinstance(item, Mapping):
        return None
    return next((item[name] for name in names if name in item), None)


SQS_TARGET = "AmazonSQS."
ERROR_NAMESPACE = "com.amazonaws.sqs#"
COMMON_NAMESPACE = "com.amazon.coral.service#"
"""Namespace of errors outside of SQS's own model."""
JSON_TYPE = "application/x-amz-json-1.0"
XML_TYPE = "text/xml"
REQUEST_ID = "x-amzn-requestid"
SNS_NAMES = {
    "AccessDenied": "AuthorizationError",
    "InvalidAttributeValue": "InvalidParameter",
    "InvalidMessageContents": "InvalidParameter",
    "InvalidParameterValue": "InvalidParameter",
    "MissingParameter": "InvalidParameter",
    "QueueDoesNotExist": "NotFound",
}
"""SNS's names of errors that SQS has, too."""


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """Parsed request."""

    name: str
    action: Action
    values: dict[str, object]


class AwsProtocol(Protocol):
    """Protocol of one request."""

    def read(self, body: bytes) -> ParsedAction:
        """Parses a request; raises Fault if it is malformed or its action unknown."""
        ...

    def result(self, parsed: ParsedAction, answer: Answer) -> Response: ...

    def error(self, fault: Fault) -> Response: ...


def find(actions: Mapping[str, Action], name: str) -> Action:
    action = actions.get(name)
    if action is None:
        raise Fault("InvalidAction", f"The action {name[:100]} is not valid for this endpoint.")
    return action


class JsonProtocol:
    def __init__(self, target: str, request_id: str) -> None:
        self._target = target
        self._request_id = request_id

    def read(self, body: bytes) -> ParsedAction:
        name = self._target.removeprefix(SQS_TARGET)
        action = find(SQS_ACTIONS if name != self._target else {}, name)
        try:
            values = msgspec.json.decode(utf8(body or b"{}"), type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Fault(
                "SerializationException", f"The body is not a valid JSON object: {error}"
            ) from error
        if "tags" in values:
            # Only CreateQueue has this field in lower case.
            values["Tags"] = values.pop("tags")
        return ParsedAction(name, action, values)

    def result(self, parsed: ParsedAction, answer: Answer) -> Response:
        return self._respond(msgspec.json.encode(answer), 200, {})

    def error(self, fault: Fault) -> Response:
        common = UNMODELLED.get(fault.name)
        kind_of = ERROR_NAMESPACE + fault.name if common is None else COMMON_NAMESPACE + common
        body = {"__type": kind_of, "message": fault.message}
        kind = "Sender" if fault.is_sender else "Receiver"
        code = {"x-amzn-query-error": f"{fault.old_code};{kind}"}
        return self._respond(msgspec.json.encode(body), fault.status, code | fault.headers)

    def _respond(self, body: bytes, status: int, headers: dict[str, str]) -> Response:
        all_headers = {"content-type": JSON_TYPE, REQUEST_ID: self._request_id, **headers}
        return Response(body, status, headers=all_headers)


class QueryProtocol:
    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._namespace = SQS_NAMESPACE

    def read(self, body: bytes) -> ParsedAction:
        values = read_form(body)
        name = values.pop("Action", None)
        if not isinstance(name, str):
            raise Fault("MissingAction", "The request must contain the parameter Action.")
        if values.get("Version") == SNS_VERSION:
            self._namespace = SNS_NAMESPACE
            return ParsedAction(name, find(SNS_ACTIONS, name), values)
        return ParsedAction(name, find(SQS_ACTIONS, name), values)

    def result(self, parsed: ParsedAction, answer: Answer) -> Response:
        plain = msgspec.to_builtins(answer, builtin_types=(bytes,))
        body = write_result(parsed.name, plain, self._request_id, namespace=self._namespace)
        return self._respond(body, 200, {})

    def error(self, fault: Fault) -> Response:
        is_sns = self._namespace == SNS_NAMESPACE
        body = write_error(
            SNS_NAMES.get(fault.name, fault.name) if is_sns else fault.old_code,
            fault.message if is_sns else QUERY_MESSAGES.get(fault.name, fault.message),
            self._request_id,
            is_sender=fault.is_sender,
            namespace=self._namespace,
        )
        return self._respond(body, fault.status, fault.headers)

    def _respond(self, body: bytes, status: int, headers: dict[str, str]) -> Response:
        all_headers = {"content-type": XML_TYPE, REQUEST_ID: self._request_id, **headers}
        return Response(body, status, headers=all_headers)
