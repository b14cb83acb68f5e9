"""JSON Schema compatibility: checks that a new schema accepts every document an old one accepts.

Confluent's rules, in their strict form. A constraint may be loosened or removed, not tightened or
added. A property must not be added to an open object, since documents may have it with any value.
Alternatives may be added, and each old one must match a distinct new one. Recursive schemas are
assumed compatible; if the assumption turns out wrong, the comparison is repeated with that
knowledge.

Conditionals, `contains`, `propertyNames` and `format` are not compared.
"""

from collections.abc import Iterator

from penstock.state.registry.jsonschema.arrays import array_differences
from penstock.state.registry.jsonschema.bipartite_matching import matching_size
from penstock.state.registry.jsonschema.keywords import number_differences, string_differences
from penstock.state.registry.jsonschema.model import Criterion, NodeKind, SchemaNode
from penstock.state.registry.jsonschema.objects import object_differences
from penstock.state.registry.limits import StepBudget


def unaccepted(old: SchemaNode, new: SchemaNode, budget: StepBudget) -> list[str]:
    """Reasons why `new` is narrower than `old`; empty: it is not."""
    known_bad: dict[tuple[int, int], list[str]] = {}
    while True:
        comparison = Comparison(budget, known_bad)
        found = comparison.compare(old, new, "#")
        wrongly = comparison.wrongly_assumed()
        if not wrongly:
            return found
        known_bad |= wrongly


class Comparison:
    """One pass over two schemas. The old one is always the first argument."""

    def __init__(self, budget: StepBudget, known_bad: dict[tuple[int, int], list[str]]) -> None:
        self.budget = budget
        self._known_bad = known_bad
        self._found = dict(known_bad)
        self._assumed: list[tuple[int, int]] = []
        self._is_open: set[tuple[int, int]] = set()

    def wrongly_assumed(self) -> dict[tuple[int, int], list[str]]:
        """Pairs assumed compatible during their own comparison that turned out not to be."""
        return {
            pair: self._found[pair]
            for pair in self._assumed
            if self._found[pair] and pair not in self._known_bad
        }

    def compare(self, old: SchemaNode | None, new: SchemaNode | None, path: str) -> list[str]:
        if new is None:
            return []
        if old is None:
            return [f"{path}: a schema was added"]
        old, new = old.resolved, new.resolved
        pair = (id(old), id(new))
        if pair in self._is_open:
            self._assumed.append(pair)
            return []
        found = self._found.get(pair)
        if found is None:
            self.budget.spend()
            self._is_open.add(pair)
            found = self._found[pair] = self._differences(old, new, path)
            self._is_open.discard(pair)
        return found

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
