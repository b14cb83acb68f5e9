"""Matching of messages against filter policies, by attributes or by body.

Every name of a policy must match, each by one of its conditions. `$or` lists several policies of
which one must match. For the body (`FilterPolicyScope` MessageBody) a policy is nested like the
body; if the body has a list, one of its items must match the whole policy at that place. A name
with dots is the same as nested names. `filter_policies` validates policies when they are set.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import msgspec

from penstock.gateway.sns.filter_policies import COMPARISONS, Policy, is_alternatives, network
from penstock.gateway.sqs.digests import AttributeValue

DECIMALS = 5
"""Decimal places of numbers that are compared."""


def matches_attributes(policy: Policy, attributes: Mapping[str, AttributeValue]) -> bool:
    """True if these attributes match the policy; binary attributes are ignored."""
    values = {
        name: _values(value)
        for name, value in attributes.items()
        if value.string_value is not None and not value.data_type.startswith("Binary")
    }
    return _matches(policy, values)


def matches_body(policy: Policy, body: str) -> bool:
    """True if the body matches the policy; the body must be a JSON object."""
    try:
        values = msgspec.json.decode(body, type=dict[str, Any])
        return _matches(policy, values)
    except (msgspec.DecodeError, RecursionError):
        return False


def _values(attribute: AttributeValue) -> Any:
    text = attribute.string_value or ""
    try:
        if attribute.data_type.startswith("Number"):
            return float(text)
        if attribute.data_type == "String.Array":
            return msgspec.json.decode(text)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return text
    return text


# -- names ------------------------------------------------------------------------------------


def _matches(policy: Policy, node: object) -> bool:
    if isinstance(node, list) and node:
        return any(_matches(policy, item) for item in node)
    values = node if isinstance(node, Mapping) else {}
    return all(_holds(name, rule, values) for name, rule in policy.items())


def _holds(name: str, rule: Any, values: Mapping[str, Any]) -> bool:
    if is_alternatives(name, rule):
        return any(_matches(part, values) for part in rule)
    found = list(_under(values, name))
    if isinstance(rule, Mapping):
        # The policy may require a nested name to be absent.
        return any(_matches(rule, inner) for inner in found or [{}])
    return _satisfies(rule, [leaf for value in found for leaf in _leaves(value)])


def _under(values: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yields values of a name; its dots may be part of a key or separate nested keys."""
    if name in values:
        yield values[name]
    at = name.find(".")
    while at >= 0:
        inner = values.get(name[:at])
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, Mapping):
                yield from _under(item, name[at + 1 :])
        at = name.find(".", at + 1)
    if name not in values:
        start = name + "."
        rest = {key[len(start) :]: value for key, value in values.items() if key.startswith(start)}
        if rest:
            yield rest


def _leaves(value: object) -> Iterator[object]:
    """Yields the scalar values of a name; objects and empty lists have none."""
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, Mapping):
        yield value


# -- conditions -------------------------------------------------------------------------------


def _satisfies(conditions: Sequence[Any], leaves: Sequence[object]) -> bool:
    for condition in conditions:
        if isinstance(condition, Mapping) and "exists" in condition:
            if condition["exists"] == bool(leaves):
                return True
        elif any(_meets(condition, leaf) for leaf in leaves):
            return True
    return False


def _meets(condition: Any, value: object) -> bool:
    if not isinstance(condition, Mapping):
        # True equals 1 in Python, but not in JSON.
        is_same_kind = isinstance(condition, bool) == isinstance(value, bool)
        return is_same_kind and _rounded(condition) == _rounded(value)
    kind, wanted = next(iter(condition.items()))
    if kind == "anything-but":
        return not any(_meets(one, value) for one in _unwanted(wanted))
    if kind == "numeric":
        return _is_in_range(wanted, value)
    return isinstance(value, str) and _meets_text(kind, wanted, value)


def _unwanted(said: Any) -> Iterator[Any]:
    if not isinstance(said, Mapping):
        yield from said if isinstance(said, list) else [said]
        return
    for kind, inner in said.items():
        for one in inner if isinstance(inner, list) else [inner]:
            yield {kind: one}


def _meets_text(kind: str, wanted: str, value: str) -> bool:
    match kind:
        case "prefix":
            return value.startswith(wanted)
        case "suffix":
            return value.endswith(wanted)
        case "equals-ignore-case":
            return value.lower() == wanted.lower()
        case "wildcard":
            return is_like(wanted, value)
        case "cidr":
            return _is_within(wanted, value)
    return False


def is_like(pattern: str, value: str) -> bool:
    """True if a text matches a pattern in which * stands for any text; in one pass."""
    first, *others = _pieces(pattern)
    if not others:
        return value == first
    *middle, last = others
    if not value.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        found = value.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(value) - at >= len(last) and value.endswith(last)


def _pieces(pattern: str) -> list[str]:
    """Splits a pattern at its stars; a backslash escapes the next character."""
    pieces, piece, is_escaped = [], "", False
    for character in pattern:
        if not is_escaped and character in "\\*":
            is_escaped = character == "\\"
            if character == "*":
                pieces.append(piece)
                piece = ""
            continue
        piece, is_escaped = piece + character, False
    return [*pieces, piece]


def _is_within(wanted: str, value: str) -> bool:
    within = network(wanted)
    try:
        return within is not None and ip_address(value) in within
    except ValueError:
        return False


def _is_in_range(wanted: Sequence[Any], value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    bounds = zip(wanted[::2], wanted[1::2], strict=True)
    return all(COMPARISONS[sign](_rounded(value), _rounded(bound)) for sign, bound in bounds)


def _rounded(value: Any) -> Any:
    """Rounds floats to the compared decimal places."""
    return round(value, DECIMALS) if isinstance(value, float) else value
