"""Comparison of objects: properties, required ones, and additional ones.

An object is open if it may have any additional property, closed if none, and partly open if
additional properties have a schema, by pattern or for all.
"""

from collections.abc import Iterator
from typing import Protocol

from penstock.state.registry.jsonschema.keywords import limit_differences
from penstock.state.registry.jsonschema.model import MISSING, NodeKind, ObjectRules, SchemaNode
from penstock.state.registry.limits import StepBudget


class Comparing(Protocol):
    """Interface of the enclosing comparison."""

    budget: StepBudget

    def compare(self, old: SchemaNode | None, new: SchemaNode | None, path: str) -> list[str]: ...

    def accepts(self, old: SchemaNode, new: SchemaNode, path: str) -> bool: ...


def object_differences(
    ctx: Comparing, old: SchemaNode, new: SchemaNode, path: str
) -> Iterator[str]:
    before, after = old.object, new.object
    assert before is not None
    assert after is not None
    yield from _required(before, after, path)
    yield from _properties(ctx, before, after, f"{path}/properties")
    yield from _dependencies(ctx, before, after, f"{path}/dependencies")
    yield from other_differences(ctx, before, after, f"{path}/additionalProperties")
    yield from unevaluated_differences(
        ctx, before.unevaluated, after.unevaluated, f"{path}/unevaluatedProperties"
    )
    yield from limit_differences(old, new, path, "maxProperties", "minProperties")


def _required(before: ObjectRules, after: ObjectRules, path: str) -> Iterator[str]:
    for name in before.properties:
        if name not in after.properties or name in before.required or name not in after.required:
            continue
        if after.properties[name].default is MISSING:
            yield f"{path}/required/{name}: became required without a default"


def _properties(
    ctx: Comparing, before: ObjectRules, after: ObjectRules, path: str
) -> Iterator[str]:
    ctx.budget.spend((len(before.properties) + len(after.properties)) // 4)
    for name in {**before.properties, **after.properties}:
        where = f"{path}/{name}"
        old, new = before.properties.get(name), after.properties.get(name)
        if old is not None and new is not None:
            yield from ctx.compare(old, new, where)
        elif old is not None:
            yield from _removed(ctx, old, after, name, where)
        elif new is not None:
            yield from _added(ctx, new, before, name in after.required, name, where)


def _removed(
    ctx: Comparing, old: SchemaNode, after: ObjectRules, name: str, path: str
) -> Iterator[str]:
    if _is_open(after):
        return
    ctx.budget.spend(len(after.patterns))
    covering = _covering(after, name)
    if covering is not None:
        if not ctx.accepts(old, covering, path):
            yield f"{path}: removed, and the schema of additional properties does not accept it"
    elif old.resolved.kind is not NodeKind.FALSE:
        yield f"{path}: removed from an object that allows no additional properties"


def _added(
    ctx: Comparing, new: SchemaNode, before: ObjectRules, is_required: bool, name: str, path: str
) -> Iterator[str]:
    lacks_default = new.default is MISSING
    if _is_open(before):
        if new.resolved.kind is not NodeKind.EMPTY:
            yield f"{path}: added to an object that allowed any additional property"
        return
    ctx.budget.spend(len(before.patterns))
    covering = _covering(before, name)
    if covering is not None and not ctx.accepts(covering, new, path):
        yield f"{path}: added, and does not accept all values that were allowed there"
    if is_required and lacks_default:
        yield f"{path}: added as required without a default"


def _dependencies(
    ctx: Comparing, before: ObjectRules, after: ObjectRules, path: str
) -> Iterator[str]:
    for name, needed in after.needed_with.items():
        if name not in before.needed_with or not needed <= before.needed_with[name]:
            yield f"{path}/{name}: requires more properties beside it"
    for name, schema in after.schemas_with.items():
        if name not in before.schemas_with:
            yield f"{path}/{name}: a schema was added"
        else:
            yield from ctx.compare(before.schemas_with[name], schema, f"{path}/{name}")


class Others(Protocol):
    """Rules for additional properties or items."""

    permits_others: bool
    others: SchemaNode | None


def other_differences(ctx: Comparing, before: Others, after: Others, path: str) -> Iterator[str]:
    if before.permits_others != after.permits_others:
        if not after.permits_others:
            yield f"{path}: no longer allowed"
    elif before.others is None and after.others is not None:
        yield f"{path}: narrowed"
    elif after.others is not None:
        yield from ctx.compare(before.others, after.others, path)


def unevaluated_differences(
    ctx: Comparing, old: SchemaNode | None, new: SchemaNode | None, path: str
) -> Iterator[str]:
    if new is None:
        return
    was = old.resolved.kind if old is not None else None
    now = new.resolved.kind
    if was is None or (now is NodeKind.FALSE and was is not NodeKind.FALSE):
        yield f"{path}: narrowed"
    elif was is NodeKind.FALSE or now is NodeKind.EMPTY:
        return
    elif was is NodeKind.EMPTY:
        yield f"{path}: narrowed"
    else:
        yield from ctx.compare(old, new, path)


def covering_unevaluated(unevaluated: SchemaNode | None) -> SchemaNode | None:
    """Schema of `unevaluated...`; None if it allows everything or nothing."""
    if unevaluated is None or unevaluated.resolved.kind in (NodeKind.FALSE, NodeKind.EMPTY):
        return None
    return unevaluated


def is_unbounded(unevaluated: SchemaNode | None) -> bool:
    return unevaluated is None or unevaluated.resolved.kind is NodeKind.EMPTY


def _is_open(rules: ObjectRules) -> bool:
    has_rules = rules.others is not None or bool(rules.patterns)
    return rules.permits_others and not has_rules and is_unbounded(rules.unevaluated)


def _covering(rules: ObjectRules, name: str) -> SchemaNode | None:
    """Schema of a property that has none of its own."""
    for pattern, node in rules.patterns:
        if pattern.search(name):
            return node
    if rules.others is not None:
        return rules.others
    return covering_unevaluated(rules.unevaluated) if rules.permits_others else None
