"""Comparison of numeric and text keywords."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from penstock.state.registry.jsonschema.model import SchemaNode


def limit_differences(old: SchemaNode, new: SchemaNode, path: str, *keys: str) -> Iterator[str]:
    """Compares limits: `max...` may grow or be removed, `min...` may shrink or be removed."""
    for key in keys:
        before, after = old.limits.get(key), new.limits.get(key)
        if after is None or before == after:
            continue
        if before is None:
            yield f"{path}/{key}: the limit was added"
        elif (after < before) == ("max" in key.lower()):
            yield f"{path}/{key}: the limit was tightened"


def string_differences(old: SchemaNode, new: SchemaNode, path: str) -> Iterator[str]:
    yield from limit_differences(old, new, path, "maxLength", "minLength")
    if new.pattern is not None and old.pattern != new.pattern:
        yield f"{path}/pattern: the pattern was added or changed"


def number_differences(old: SchemaNode, new: SchemaNode, path: str) -> Iterator[str]:
    keys = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
    yield from limit_differences(old, new, path, *keys)
    before, after = old.limits.get("multipleOf"), new.limits.get("multipleOf")
    if after is not None and not (before is not None and _divides(after, before)):
        yield f"{path}/multipleOf: fewer numbers are allowed"
    if new.is_integer and not old.is_integer:
        yield f"{path}: the type changed from number to integer"


def _divides(divisor: Any, number: Any) -> bool:
    exact = Decimal(str(divisor))
    try:
        return Decimal(str(number)) % exact == 0
    except ArithmeticError:
        return False
