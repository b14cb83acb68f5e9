"""Comparison of arrays: the schema of all items, those of a tuple, and of additional items."""

from collections.abc import Iterator

from penstock.state.registry.jsonschema.keywords import limit_differences
from penstock.state.registry.jsonschema.model import ArrayRules, NodeKind, SchemaNode
from penstock.state.registry.jsonschema.objects import (
    Comparing,
    covering_unevaluated,
    is_unbounded,
    other_differences,
    unevaluated_differences,
)


def array_differences(ctx: Comparing, old: SchemaNode, new: SchemaNode, path: str) -> Iterator[str]:
    before, after = old.array, new.array
    assert before is not None
    assert after is not None
    yield from ctx.compare(before.every, after.every, f"{path}/items")
    yield from _first(ctx, before, after, f"{path}/items")
    yield from other_differences(ctx, before, after, f"{path}/additionalItems")
    yield from unevaluated_differences(
        ctx, before.unevaluated, after.unevaluated, f"{path}/unevaluatedItems"
    )
    yield from limit_differences(
        old, new, path, "maxItems", "minItems", "maxContains", "minContains"
    )
    if after.is_unique and not before.is_unique:
        yield f"{path}/uniqueItems: the constraint was added"


def _first(ctx: Comparing, before: ArrayRules, after: ArrayRules, path: str) -> Iterator[str]:
    shared = min(len(before.first), len(after.first))
    for at in range(shared):
        yield from ctx.compare(before.first[at], after.first[at], f"{path}/{at}")
    for at, old in enumerate(before.first[shared:], shared):
        yield from _removed(ctx, old, after, f"{path}/{at}")
    for at, new in enumerate(after.first[shared:], shared):
        yield from _added(ctx, new, before, f"{path}/{at}")


def _removed(ctx: Comparing, old: SchemaNode, after: ArrayRules, path: str) -> Iterator[str]:
    if _is_open(after):
        return
    covering = _covering(after)
    if covering is not None:
        if not ctx.accepts(old, covering, path):
            yield f"{path}: removed, and the schema of additional items does not accept it"
    elif old.resolved.kind is not NodeKind.FALSE:
        yield f"{path}: removed from an array that allows no additional items"


def _added(ctx: Comparing, new: SchemaNode, before: ArrayRules, path: str) -> Iterator[str]:
    if _is_open(before):
        if new.resolved.kind is not NodeKind.EMPTY:
            yield f"{path}: added to an array that allowed any additional item"
        return
    covering = _covering(before)
    if covering is not None and not ctx.accepts(covering, new, path):
        yield f"{path}: added, and does not accept all items that were allowed there"


def _is_open(rules: ArrayRules) -> bool:
    return rules.permits_others and rules.others is None and is_unbounded(rules.unevaluated)


def _covering(rules: ArrayRules) -> SchemaNode | None:
    if rules.others is not None:
        return rules.others
    return covering_unevaluated(rules.unevaluated) if rules.permits_others else None
