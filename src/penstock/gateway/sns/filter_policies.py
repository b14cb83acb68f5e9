"""Filter policies: parsing and validation, with Amazon's error messages.

    {"store": ["north", {"prefix": "s"}], "price": [{"numeric": [">=", 10, "<", 20]}]}

An invalid policy is refused when it is set, never ignored later. A stored policy is not validated
again: it was valid when it was set, perhaps by an earlier version with other limits.
Bounds: Amazon's limits of five top-level names, 150 combinations of conditions and 256 KiB, and
`DEPTH_MAX`.

Matching of messages against filter policies, by attributes or by body. Every name of a policy
must match, each by one of its conditions. `$or` lists several policies of which one must match.
For the body (`FilterPolicyScope` MessageBody) a policy is nested like the body; if the body has a
list, one of its items must match the whole policy at that place. A name with dots is the same as
nested names. `filter_policies` validates policies when they are set.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

import msgspec

from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.message_attributes import AttributeValue

TEXT_BYTES_MAX = 256 * 1024
KEYS_MAX = 5
COMBINATIONS_MAX = 150
DEPTH_MAX = 10
NUMBER_MAX = 10**9
OR = "$or"
MATCHES = frozenset(
    {
        "anything-but",
        "cidr",
        "equals-ignore-case",
        "exists",
        "numeric",
        "prefix",
        "suffix",
        "wildcard",
    }
)
UNWANTED = ("equals-ignore-case", "prefix", "suffix", "wildcard")
"""Operators allowed inside anything-but, besides values."""
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "=": lambda value, bound: value == bound,
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
}

Policy = Mapping[str, Any]


def is_alternatives(name: str, rule: object) -> bool:
    """True if this is the operator $or; otherwise it is an ordinary name."""
    return (
        name == OR
        and isinstance(rule, list)
        and len(rule) > 1
        and all(
            isinstance(part, dict) and bool(part) and not MATCHES.intersection(part)
            for part in rule
        )
    )


def read_policy(text: str) -> Policy:
    """Parses a policy; raises Fault if it is not a JSON object."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise _bad(f"FilterPolicy: failed to parse JSON: {error}") from error


def check_policy(text: str, *, is_of_body: bool) -> None:
    """Raises Fault if the text is not a valid filter policy of this scope."""
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise _bad("FilterPolicy: Filter policy is too long")
    policy = read_policy(text)
    if not is_of_body and any(_is_nested(name, rule) for name, rule in policy.items()):
        raise _bad("Filter policy scope MessageAttributes does not support nested filter policy")
    if _combinations(policy, 1) > COMBINATIONS_MAX:
        raise _complex()
    if len(policy) > KEYS_MAX:
        raise _bad(f"FilterPolicy: Filter policy can not have more than {KEYS_MAX} keys")


def _is_nested(name: str, rule: object) -> bool:
    if is_alternatives(name, rule):
        assert isinstance(rule, list)
        return any(_is_nested(inner, part[inner]) for part in rule for inner in part)
    return isinstance(rule, dict) and not MATCHES.intersection(rule)


def _bad(why: str) -> Fault:
    return Fault("InvalidParameter", f"Invalid parameter: {why}")


def _complex() -> Fault:
    return _bad("FilterPolicy: Filter policy is too complex")


def _combinations(policy: Policy, depth: int) -> int:
    """Counts combinations of conditions; a nested condition counts times its depth."""
    if depth > DEPTH_MAX:
        raise _bad(f"FilterPolicy: Filter policy is nested more than {DEPTH_MAX} deep")
    count = 1
    for name, rule in policy.items():
        if is_alternatives(name, rule):
            count *= sum(_combinations(part, depth) for part in rule)
        elif isinstance(rule, dict):
            count *= _combinations(rule, depth + 1)
        elif isinstance(rule, list):
            if not rule:
                raise _bad("FilterPolicy: Empty arrays are not allowed")
            for condition in rule:
                _check_condition(condition)
            count *= len(rule) * depth
        else:
            raise _bad(f'FilterPolicy: "{name[:100]}" must be an object or an array')
        if count > COMBINATIONS_MAX:
            raise _complex()
    return count


# -- conditions -------------------------------------------------------------------------------


def _check_condition(condition: object) -> None:
    if isinstance(condition, int | float) and not isinstance(condition, bool):
        _check_number(condition)
    if condition is None or isinstance(condition, str | bool | int | float):
        return
    if not isinstance(condition, dict):
        raise _bad("FilterPolicy: Match value must be String, number, true, false, or null")
    if len(condition) != 1:
        raise _bad("FilterPolicy: Only one key allowed in match expression")
    kind, value = next(iter(condition.items()))
    match kind:
        case "prefix" | "suffix" | "equals-ignore-case":
            _require_text(kind, value)
        case "wildcard":
            _check_wildcard(value)
        case "cidr":
            _check_network(value)
        case "exists":
            if not isinstance(value, bool):
                raise _bad("FilterPolicy: exists match pattern must be either true or false.")
        case "anything-but":
            _check_unwanted(value)
        case "numeric":
            _check_range(value)
        case _:
            raise _bad(f"FilterPolicy: Unrecognized match type {kind[:100]}")


def _require_text(kind: str, value: object) -> None:
    if not isinstance(value, str):
        raise _bad(f"FilterPolicy: {kind} match pattern must be a string")


def _check_wildcard(value: object) -> None:
    _require_text("wildcard", value)
    assert isinstance(value, str)
    if "**" in value.replace("\\\\", "").replace("\\*", ""):
        raise _bad("FilterPolicy: Consecutive wildcard characters are not allowed")


def _check_unwanted(value: object) -> None:
    if isinstance(value, dict):
        if len(value) != 1:
            raise _bad("FilterPolicy: Only one key allowed in match expression")
        kind, inner = next(iter(value.items()))
        if kind not in UNWANTED:
            raise _bad(f"FilterPolicy: Unsupported anything-but pattern: {kind[:100]}")
        for one in inner if isinstance(inner, list) and inner else [inner]:
            _check_condition({kind: one})
        return
    values = value if isinstance(value, list) else [value]
    if not values or not all(
        isinstance(one, str | int | float) and not isinstance(one, bool) for one in values
    ):
        raise _bad(
            "FilterPolicy: Value of anything-but must be an array or single string/number value."
        )


def _check_network(value: object) -> None:
    # Amazon's message says prefix here.
    _require_text("prefix", value)
    assert isinstance(value, str)
    address, slash, bits = value.partition("/")
    if not slash or "/" in bits:
        raise _bad("FilterPolicy: Malformed CIDR, one '/' required")
    if not (bits.isascii() and bits.isdigit()):
        raise _bad("FilterPolicy: Malformed CIDR, mask bits must be an integer")
    try:
        ip_address(address)
    except ValueError:
        raise _bad(f"FilterPolicy: Nonstandard IP address: {address[:100]}") from None
    if network(value) is None:
        raise _bad("FilterPolicy: Malformed CIDR, there are too many mask bits")


def network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _check_range(value: object) -> None:
    if not isinstance(value, list):
        raise _bad("FilterPolicy: Value of numeric must be an array.")
    sign = value[0] if value else "]"
    if not isinstance(sign, str) or not value:
        raise _bad(f"FilterPolicy: Invalid member in numeric match: {sign}")
    if sign not in COMPARISONS:
        raise _bad(f"FilterPolicy: Unrecognized numeric range operator: {sign[:100]}")
    _require_number("equals" if sign == "=" else sign, value[1:2])
    if len(value) == 2:
        return
    if sign not in (">", ">="):
        raise _bad("FilterPolicy: Too many elements in numeric expression")
    upper = value[2]
    if not isinstance(upper, str):
        raise _bad(f"FilterPolicy: Bad value in numeric range: {upper!s:.100}")
    if upper not in ("<", "<="):
        raise _bad(f"FilterPolicy: Bad numeric range operator: {upper[:100]}")
    _require_number(upper, value[3:4])
    if len(value) > 4:
        raise _bad("FilterPolicy: Too many terms in numeric range expression")
    if value[1] >= value[3]:
        raise _bad("FilterPolicy: Bottom must be less than top")


def _require_number(name: str, values: Sequence[object]) -> None:
    value = values[0] if values else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(f"FilterPolicy: Value of {name} must be numeric")
    _check_number(value)


def _check_number(value: float) -> None:
    if abs(value) > NUMBER_MAX:
        raise _bad(f"FilterPolicy: Value must be between -{NUMBER_MAX} and {NUMBER_MAX}")


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
