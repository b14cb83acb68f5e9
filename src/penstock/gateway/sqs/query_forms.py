"""Requests of the query protocol: a flat form becomes the nested request of the JSON protocol.

    Attribute.1.Name=DelaySeconds&Attribute.1.Value=5   {"Attributes": {"DelaySeconds": "5"}}
    AttributeName.1=All                                 {"AttributeNames": ["All"]}
    MessageAttributes.entry.1.Name=...                  (SNS) a table
    Tags.member.1.Key=...                               (SNS) a list

Names with dots form a tree; if the names are numbers it is a list, in their order. SQS forms use
singular names where JSON uses plural ones (`PLURALS`), and tables come as pairs.
Bounds: number of fields, depth of the tree.
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from penstock.gateway.sqs.errors import Fault

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
