"""Declarations become slotted classes with honest constructors."""

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.wire.schema import (
    REQUIRED,
    array,
    bytes_,
    int16,
    int32,
    message,
    nested,
    records,
    string,
    struct,
    uuid,
    wire_of,
)


@struct(kw_only=False)
class Row:
    """A row."""

    index: int = int32()
    note: str | None = string(since=2, nullable=True, default=None)


@message(key=99, versions=(1, 4), flexible=3)
class ThingRequest:
    """A thing."""

    name: str = string()
    old: int = int16(until=2, default=-1)
    rows: Sequence[Row] = array(Row)
    maybe: bytes | None = bytes_(since=2, nullable=4, default=b"")
    data: memoryview | None = records(since=2, default=None)
    ident: bytes = uuid(since=3, tag=0)
    row: Row | None = nested(Row, since=3, tag=1)


def thing(**given: Any) -> ThingRequest:
    return ThingRequest(**{"name": "n", "rows": (), **given})


def test_wire_describes_the_class() -> None:
    wire = wire_of(ThingRequest)
    assert (wire.name, wire.key, wire.versions, wire.flexible) == ("ThingRequest", 99, (1, 4), 3)
    assert [field.name for field in wire.fields][:3] == ["name", "old", "rows"]
    assert not wire.is_flexible(2)
    assert wire.is_flexible(3)


def test_field_without_a_default_is_required() -> None:
    with pytest.raises(TypeError, match="rows"):
        ThingRequest(name="n")  # type: ignore[call-arg]


def test_struct_arguments_are_keyword_only_by_default() -> None:
    with pytest.raises(TypeError, match="positional"):
        ThingRequest("n", [])  # type: ignore[call-arg, arg-type]
    assert Row(1, "x") == Row(index=1, note="x")


def test_defaults_are_those_declared() -> None:
    made = thing()
    assert (made.old, made.maybe, made.data, made.ident, made.row) == (
        -1,
        b"",
        None,
        bytes(16),
        None,
    )


def test_instances_have_slots_only() -> None:
    with pytest.raises(AttributeError):
        thing().nmae = "typo"  # type: ignore[attr-defined]
    assert not hasattr(thing(), "__dict__")


def test_equality_is_by_content_and_arrays_may_be_lists_or_tuples() -> None:
    assert thing(rows=[Row(1)]) == thing(rows=(Row(1),))
    assert thing(rows=[Row(1)]) != thing(rows=[Row(2)])
    assert thing(name="a") != thing(name="b")
    other: object = Row(1)
    assert thing() != other


def test_message_is_not_hashable_because_it_is_not_frozen() -> None:
    with pytest.raises(TypeError):
        hash(thing())


def test_representation_names_every_field() -> None:
    assert repr(Row(3)) == "Row(index=3, note=None)"


def test_nullable_true_means_as_long_as_the_field_exists() -> None:
    fields = {field.name: field for field in wire_of(Row).fields}
    assert fields["note"].is_nullable(2)
    maybe = {field.name: field for field in wire_of(ThingRequest).fields}["maybe"]
    assert not maybe.is_nullable(3)
    assert maybe.is_nullable(4)


def test_field_a_version_lacks_reads_as_its_default_or_zero() -> None:
    fields = {field.name: field for field in wire_of(ThingRequest).fields}
    assert fields["old"].absent() == -1
    assert fields["name"].absent() == ""
    assert fields["rows"].absent() == ()
    assert string(nullable=True).absent() is None


def test_tagged_field_always_has_a_default() -> None:
    assert int32(tag=0).default == 0
    assert int32().default is REQUIRED


def test_method_or_docstring_survives_the_decorator() -> None:
    assert ThingRequest.__doc__ == "A thing."
    assert ThingRequest.__module__ == __name__
