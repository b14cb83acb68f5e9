"""Filter policies: which messages a subscription wants, by their attributes or their body.

    {"store": ["north", {"prefix": "s"}], "price": [{"numeric": [">=", 10, "<", 20]}]}

Every name of a policy must be satisfied, each by one of its conditions; `$or` holds several
policies of which one must be. Over the body (`FilterPolicyScope` MessageBody) a policy may be
nested like the body. A policy that is not understood is refused when it is set, never skipped.
Bounds: conditions, depth, length of the text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.http.sqs.digests import AttributeValue
from penstock.http.sqs.faults import Fault

TEXT_CHARS_MAX = 256 * 1024
CONDITIONS_MAX = 150
DEPTH_MAX = 5
OR = "$or"
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "=": lambda value, bound: value == bound,
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
}

Policy = Mapping[str, Any]


def read_policy(text: str) -> Policy:
    """Raises Fault for what is no filter policy."""
    if len(text) > TEXT_CHARS_MAX:
        raise _bad("it is too long")
    try:
        policy = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise _bad(f"it is no JSON object: {error}") from error
    if _check(policy, 1) > CONDITIONS_MAX:
        raise _bad(f"it has more than {CONDITIONS_MAX} conditions")
    return policy


def wants(policy: Policy, attributes: Mapping[str, AttributeValue]) -> bool:
    """Whether a message with these attributes is let through."""
    return _matches(policy, {name: _values(value) for name, value in attributes.items()})


def wants_body(policy: Policy, body: str) -> bool:
    """The same by the body, which must be a JSON object."""
    try:
        values = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return False
    return _matches(policy, values)


def _values(attribute: AttributeValue) -> Any:
    text = attribute.string_value
    if text is None:
        return ""
    try:
        if attribute.data_type.startswith("Number"):
            return float(text)
        if attribute.data_type == "String.Array":
            return msgspec.json.decode(text)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return text
    return text


# -- checking a policy ------------------------------------------------------------------------


def _bad(why: str) -> Fault:
    return Fault("InvalidParameter", f"Invalid parameter: FilterPolicy: {why}")


def _check(policy: Policy, depth: int) -> int:
    """How many conditions there are."""
    if depth > DEPTH_MAX:
        raise _bad(f"it is nested more than {DEPTH_MAX} deep")
    count = 0
    for name, rule in policy.items():
        if name == OR:
            if not (isinstance(rule, list) and len(rule) > 1):
                raise _bad("$or holds a list of at least two policies")
            count += sum(_check(_table(part), depth + 1) for part in rule)
        elif isinstance(rule, dict):
            count += _check(rule, depth + 1)
        elif isinstance(rule, list) and rule:
            for condition in rule:
                _check_condition(condition)
            count += len(rule)
        else:
            raise _bad(f"{name} must have a list of conditions")
    return count


def _table(part: object) -> Policy:
    if not isinstance(part, dict):
        raise _bad("a policy is a JSON object")
    return part


def _check_condition(condition: object) -> None:
    if condition is None or isinstance(condition, str | bool | int | float):
        return
    if not isinstance(condition, dict) or len(condition) != 1:
        raise _bad(f"{condition!r:.80} is no condition")
    kind, value = next(iter(condition.items()))
    match kind:
        case "prefix" | "suffix" | "equals-ignore-case":
            is_right = isinstance(value, str)
        case "exists":
            is_right = isinstance(value, bool)
        case "anything-but":
            if isinstance(value, dict):
                _check_condition(value)
            is_right = isinstance(value, str | int | float | list | dict)
        case "numeric":
            is_right = _is_range(value)
        case _:
            raise _bad(f"{kind} is not known; see the documentation for those that are")
    if not is_right:
        raise _bad(f"the value of {kind} is of the wrong kind")


def _is_range(value: object) -> bool:
    if not isinstance(value, list) or len(value) not in (2, 4):
        return False
    return all(
        (value[at] in COMPARISONS) and isinstance(value[at + 1], int | float)
        for at in range(0, len(value), 2)
    )


# -- matching ---------------------------------------------------------------------------------


def _matches(policy: Policy, values: Mapping[str, Any]) -> bool:
    for name, rule in policy.items():
        if name == OR:
            if not any(_matches(part, values) for part in rule):
                return False
        elif isinstance(rule, dict):
            inner = values.get(name)
            if not isinstance(inner, Mapping) or not _matches(rule, inner):
                return False
        elif not _satisfies(rule, name in values, values.get(name)):
            return False
    return True


def _satisfies(conditions: Sequence[Any], is_there: bool, value: Any) -> bool:
    candidates = value if isinstance(value, list) else [value]
    for condition in conditions:
        if isinstance(condition, dict) and "exists" in condition:
            if condition["exists"] == is_there:
                return True
        elif is_there and any(_meets(condition, one) for one in candidates):
            return True
    return False


def _meets(condition: Any, value: Any) -> bool:
    if not isinstance(condition, dict):
        # True is 1 to Python, and not to JSON.
        is_same_kind = isinstance(condition, bool) == isinstance(value, bool)
        return bool(is_same_kind and condition == value)
    kind, wanted = next(iter(condition.items()))
    match kind:
        case "prefix":
            return isinstance(value, str) and value.startswith(wanted)
        case "suffix":
            return isinstance(value, str) and value.endswith(wanted)
        case "equals-ignore-case":
            return isinstance(value, str) and value.lower() == wanted.lower()
        case "anything-but":
            unwanted = wanted if isinstance(wanted, list) else [wanted]
            return not any(_meets(one, value) for one in unwanted)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    bounds = zip(wanted[::2], wanted[1::2], strict=True)
    return all(COMPARISONS[sign](value, bound) for sign, bound in bounds)
