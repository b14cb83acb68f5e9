"""JSON Schema compatibility: checks that a new schema accepts every document an old one accepts.

Confluent's rules, in their strict form. A constraint may be loosened or removed, not tightened or
added. A property must not be added to an open object, since documents may have it with any value.
Alternatives may be added, and each old one must match a distinct new one. Recursive schemas: see
`recursive_comparison`.

Conditionals, `contains`, `propertyNames` and `format` are not compared.

Comparison of objects: properties, required ones, and additional ones. An object is open if it may
have any additional property, closed if none, and partly open if additional properties have a
schema, by pattern or for all.

Comparison of arrays: the schema of all items, those of a tuple, and of additional items.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Protocol

from penstock.state.registry.jsonschema.model import (
    MISSING,
    ArrayRules,
    Criterion,
    NodeKind,
    ObjectRules,
    SchemaNode,
)
from penstock.state.registry.limits import StepBudget
from penstock.state.registry.recursive_comparison import (
    Differences,
    RecursiveComparison,
    compare_until_consistent,
)


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


def matching_size(edges: list[list[int]], budget: StepBudget) -> int:
    """Size of a maximum matching in a bipartite graph, by augmenting paths, without recursion.

    A schema may have many alternatives: each visit of an edge counts against the step budget.
    `edges`: for each left node, the right nodes it may pair with.
    """
    paired_with: dict[int, int] = {}
    return sum(_augment(left, edges, paired_with, budget) for left in range(len(edges)))


def _augment(
    start: int, edges: list[list[int]], paired_with: dict[int, int], budget: StepBudget
) -> bool:
    """Pairs `start`, re-pairing other nodes if necessary; True if it succeeded."""
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        left = waiting.pop()
        budget.spend(1 + len(edges[left]) // 16)
        for right in edges[left]:
            if right in came_from:
                continue
            came_from[right] = left
            if right not in paired_with:
                _flip(right, start, came_from, paired_with)
                return True
            waiting.append(paired_with[right])
    return False


def _flip(end: int, start: int, came_from: dict[int, int], paired_with: dict[int, int]) -> None:
    partners = {left: right for right, left in paired_with.items()}
    right = end
    while True:
        left = came_from[right]
        freed = partners.get(left)
        paired_with[right] = left
        if left == start or freed is None:
            return
        right = freed


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


def unaccepted(old: SchemaNode, new: SchemaNode, budget: StepBudget) -> list[str]:
    """Reasons why `new` is narrower than `old`; empty: it is not."""

    def one_pass(known_bad: Differences) -> tuple[list[str], Comparison]:
        comparison = Comparison(budget, known_bad)
        return comparison.compare(old, new, "#"), comparison

    return compare_until_consistent(one_pass)


class Comparison(RecursiveComparison):
    """One pass over two schemas. The old one is always the first argument."""

    def compare(self, old: SchemaNode | None, new: SchemaNode | None, path: str) -> list[str]:
        if new is None:
            return []
        if old is None:
            return [f"{path}: a schema was added"]
        before, after = old.resolved, new.resolved
        pair = (id(before), id(after))
        return self.compare_once(pair, lambda: self._differences(before, after, path))

    def accepts(self, old: SchemaNode, new: SchemaNode, path: str) -> bool:
        return not self.compare(old, new, path)

    def _differences(self, old: SchemaNode, new: SchemaNode, path: str) -> list[str]:
        if self._fits_a_part(old, new, path):
            return []
        if old.kind is not new.kind:
            are_bytes = old.connect_type == new.connect_type == "bytes"
            if old.kind is NodeKind.FALSE or new.kind is NodeKind.EMPTY or are_bytes:
                return []
            was, now = old.kind.name.lower(), new.kind.name.lower()
            return [f"{path}: the type changed from {was} to {now}"]
        return list(self._of_kind(old, new, path))

    def _fits_a_part(self, old: SchemaNode, new: SchemaNode, path: str) -> bool:
        """True if only one side is combined and one of its parts suffices."""
        if new.kind is NodeKind.COMBINED and old.kind is not NodeKind.COMBINED:
            is_one_enough = len(new.parts) == 1 or new.criterion is not Criterion.ALL
            return is_one_enough and any(self.accepts(old, part, path) for part in new.parts)
        if old.kind is NodeKind.COMBINED and new.kind is not NodeKind.COMBINED:
            is_one_enough = len(old.parts) == 1 or old.criterion is Criterion.ALL
            return is_one_enough and any(self.accepts(part, new, path) for part in old.parts)
        return False

    def _of_kind(self, old: SchemaNode, new: SchemaNode, path: str) -> Iterator[str]:
        kind = old.kind
        if kind is NodeKind.STRING:
            yield from string_differences(old, new, path)
        elif kind is NodeKind.NUMBER:
            yield from number_differences(old, new, path)
        elif kind is NodeKind.OBJECT:
            yield from object_differences(self, old, new, path)
        elif kind is NodeKind.ARRAY:
            yield from array_differences(self, old, new, path)
        elif kind is NodeKind.ENUM:
            if not old.values <= new.values:
                yield f"{path}/enum: values were removed"
        elif kind is NodeKind.CONST:
            if old.values != new.values:
                yield f"{path}/const: the value changed"
        elif kind is NodeKind.NOT:
            if not self.accepts(new.parts[0], old.parts[0], f"{path}/not"):
                yield f"{path}/not: more is excluded"
        elif kind is NodeKind.COMBINED:
            yield from self._combined(old, new, path)

    def _combined(self, old: SchemaNode, new: SchemaNode, path: str) -> Iterator[str]:
        if not _criterion_fits(old, new):
            yield f"{path}: {old.criterion.value} became {new.criterion.value}"
            return
        before = _distinct(old.parts)
        after = _distinct(new.parts)
        if len(before) < len(after) and new.criterion is Criterion.ALL:
            yield f"{path}/{new.criterion.value}: conditions were added"
        if len(before) > len(after) and old.criterion is not Criterion.ALL:
            yield f"{path}/{old.criterion.value}: alternatives were removed"
        edges = [
            [
                to
                for to, part in enumerate(after)
                if self.accepts(one, part, f"{path}/{old.criterion.value}/{at}")
            ]
            for at, one in enumerate(before)
        ]
        if matching_size(edges, self.budget) < min(len(before), len(after)):
            yield f"{path}/{old.criterion.value}: parts changed"


def _criterion_fits(old: SchemaNode, new: SchemaNode) -> bool:
    if old.criterion is new.criterion or new.criterion is Criterion.ANY:
        return True
    was_single, is_single = len(old.parts) == 1, len(new.parts) == 1
    return (
        (was_single and is_single)
        or (was_single and new.criterion is Criterion.ONE)
        or (is_single and old.criterion is Criterion.ALL)
    )


def _distinct(parts: list[SchemaNode]) -> list[SchemaNode]:
    """Parts without duplicates, in order."""
    return list({part.resolved.saying(): part for part in parts}.values())


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
        yield from _removed_items(ctx, old, after, f"{path}/{at}")
    for at, new in enumerate(after.first[shared:], shared):
        yield from _added_items(ctx, new, before, f"{path}/{at}")


def _removed_items(ctx: Comparing, old: SchemaNode, after: ArrayRules, path: str) -> Iterator[str]:
    if _is_open_array(after):
        return
    covering = _covering_items(after)
    if covering is not None:
        if not ctx.accepts(old, covering, path):
            yield f"{path}: removed, and the schema of additional items does not accept it"
    elif old.resolved.kind is not NodeKind.FALSE:
        yield f"{path}: removed from an array that allows no additional items"


def _added_items(ctx: Comparing, new: SchemaNode, before: ArrayRules, path: str) -> Iterator[str]:
    if _is_open_array(before):
        if new.resolved.kind is not NodeKind.EMPTY:
            yield f"{path}: added to an array that allowed any additional item"
        return
    covering = _covering_items(before)
    if covering is not None and not ctx.accepts(covering, new, path):
        yield f"{path}: added, and does not accept all items that were allowed there"


def _is_open_array(rules: ArrayRules) -> bool:
    return rules.permits_others and rules.others is None and is_unbounded(rules.unevaluated)


def _covering_items(rules: ArrayRules) -> SchemaNode | None:
    if rules.others is not None:
        return rules.others
    return covering_unevaluated(rules.unevaluated) if rules.permits_others else None
