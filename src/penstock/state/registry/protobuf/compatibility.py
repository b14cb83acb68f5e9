"""Protobuf compatibility: checks that a new schema reads data of an old one, by Confluent's rules.

Fields are identified by number. They may be added, removed and renamed, unless they are required;
their types may change within the same wire encoding. A message must not be removed, and the
package must not change. A oneof keeps its members, and fields that could be set together must not
become one.
"""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from penstock.state.registry.limits import StepBudget
from penstock.state.registry.protobuf.linker import Linked, NamedType

FIELD: Final = pb.FieldDescriptorProto
WIRE_KINDS: Final = {
    **dict.fromkeys(("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"), "number"),
    **dict.fromkeys(("SINT32", "SINT64"), "zigzag number"),
    **dict.fromkeys(("STRING", "BYTES"), "string or bytes"),
    **dict.fromkeys(("FIXED32", "SFIXED32"), "fixed32"),
    **dict.fromkeys(("FIXED64", "SFIXED64"), "fixed64"),
    "FLOAT": "float",
    "DOUBLE": "double",
}
KINDS: Final = {getattr(FIELD, f"TYPE_{name}"): kind for name, kind in WIRE_KINDS.items()}
"""Types of the same kind are interchangeable."""


def unreadable(old: Linked, new: Linked, budget: StepBudget) -> list[str]:
    """Reasons why `new` cannot read data of `old`."""
    return list(_Comparison(old, new, budget).files())


class _Comparison:
    def __init__(self, old: Linked, new: Linked, budget: StepBudget) -> None:
        self._old = old
        self._new = new
        self._budget = budget
        self._seen: dict[tuple[str, str], bool] = {}

    def files(self) -> Iterator[str]:
        old, new = self._old.file, self._new.file
        if old.package != new.package:
            yield f"#/: the package changed from {old.package or '(none)'} to {new.package}"
        yield from self._messages(old.message_type, new.message_type, "#")

    def _messages(self, old: Any, new: Any, path: str) -> Iterator[str]:
        """Compares sibling messages; enums may be added, removed and changed."""
        after = {message.name: message for message in new}
        for message in old:
            there = after.get(message.name)
            if there is not None:
                yield from self._message(message, there, f"{path}/{message.name}")
            elif not message.options.map_entry:
                yield f"{path}/{message.name}: the message was removed"

    def _message(self, old: Any, new: Any, path: str) -> Iterator[str]:
        self._budget.spend(1 + len(old.field) + len(new.field))
        yield from _oneofs(old, new, path)
        after = {field.number: field for field in new.field}
        before = {field.number: field for field in old.field}
        for field in old.field:
            there = after.get(field.number)
            where = f"{path}/{field.number}"
            if there is not None:
                yield from self._field(field, there, where)
            elif field.label == FIELD.LABEL_REQUIRED:
                yield f"{where}: a required field was removed"
        for field in new.field:
            if field.number not in before and field.label == FIELD.LABEL_REQUIRED:
                yield f"{path}/{field.number}: a required field was added"
        yield from self._messages(old.nested_type, new.nested_type, path)

    def _field(self, old: Any, new: Any, path: str) -> Iterator[str]:
        was, now = self._map_entry(self._old, old), self._map_entry(self._new, new)
        if was is not None and now is not None:
            for before, after in zip(was.field, now.field, strict=False):
                yield from self._types(before, after, path)
        elif was is not None or now is not None:
            yield f"{path}: a map field changed to another type, or another type to a map"
        else:
            yield from self._types(old, new, path)
            yield from self._labels(old, new, path)

    def _types(self, old: Any, new: Any, path: str) -> Iterator[str]:
        was, now = KINDS.get(old.type), KINDS.get(new.type)
        if was is None and now is None:
            yield from self._named(old, new, path)
        elif was != now:
            yield f"{path}: the type changed from {was or 'message'} to {now or 'message'}"

    def _labels(self, old: Any, new: Any, path: str) -> Iterator[str]:
        """Compares labels of numbers, which are packed when repeated; strings are not."""
        kind = KINDS.get(old.type)
        if kind is None or kind == "string or bytes" or kind != KINDS.get(new.type):
            return
        was, now = _label(self._old, old), _label(self._new, new)
        if was is not None and now is not None and was != now:
            yield f"{path}: the label of a number changed"

    def _named(self, old: Any, new: Any, path: str) -> Iterator[str]:
        was = self._old.types[old.type_name.removeprefix(".")]
        now = self._new.types[new.type_name.removeprefix(".")]
        if was.local_name != now.local_name:
            yield f"{path}: the type changed from {was.name} to {now.name}"
        elif not (was.is_local and now.is_local) and not self._are_alike(was, now):
            yield f"{path}: the type {now.name} changed"

    def _are_alike(self, was: NamedType, now: NamedType) -> bool:
        """Compares messages of other files, at their use."""
        pair = (was.name, now.name)
        if pair not in self._seen:
            self._seen[pair] = True
            self._seen[pair] = not any(self._message(was.message, now.message, f"#/{now.name}"))
        return self._seen[pair]

    def _map_entry(self, linked: Linked, field: Any) -> Any | None:
        if field.type != FIELD.TYPE_MESSAGE or field.label != FIELD.LABEL_REPEATED:
            return None
        message = linked.types[field.type_name.removeprefix(".")].message
        return message if message.options.map_entry else None


def _label(linked: Linked, field: Any) -> int | None:
    """Label of a field; None if the text has none: proto3's plain fields, members of a oneof."""
    if field.HasField("oneof_index") and not field.proto3_optional:
        return None
    is_plain = field.label == FIELD.LABEL_OPTIONAL and not field.proto3_optional
    if is_plain and linked.file.syntax in ("proto3", "editions"):
        return None
    return int(field.label)


def _oneofs(old: Any, new: Any, path: str) -> Iterator[str]:
    before, after = _memberships(old), _memberships(new)
    old_numbers = {field.number for field in old.field}
    new_numbers = {field.number for field in new.field}
    for name, members in _by_oneof(after).items():
        moved = [number for number in members if number in old_numbers]
        alone = [number for number in moved if number not in before]
        origins = len(alone) + len({before[number] for number in moved if number in before})
        if origins > 1:
            yield f"{path}/{name}: fields that could be set together are now in one oneof"
    kept = set(after.values())
    for name, members in _by_oneof(before).items():
        # A oneof removed with all of its fields does not affect other fields.
        if name not in kept and new_numbers.isdisjoint(members):
            continue
        for number in members:
            if number not in new_numbers:
                yield f"{path}/{name}/{number}: a field of a oneof was removed"


def _memberships(message: Any) -> dict[int, str]:
    """Oneof names, by the numbers of their fields."""
    return {
        field.number: message.oneof_decl[field.oneof_index].name
        for field in message.field
        if field.HasField("oneof_index") and not field.proto3_optional
    }


def _by_oneof(memberships: dict[int, str]) -> dict[str, list[int]]:
    """Field numbers of each oneof."""
    members: dict[str, list[int]] = {}
    for number, name in memberships.items():
        members.setdefault(name, []).append(number)
    return members
