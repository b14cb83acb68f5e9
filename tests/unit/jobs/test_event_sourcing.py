"""Folding events into states, key by key."""

import json

import pytest

from penstock.jobs.event_sourcing import _folded, merge_fields


def folded(*rows: tuple[str, object, int]) -> dict[str, tuple[object, int, int]]:
    given = ((key, None if value is None else json.dumps(value), at) for key, value, at in rows)
    return {
        key: (json.loads(state), events, last)
        for key, state, events, last in _folded(merge_fields, given)
    }


def test_later_fields_win_and_null_removes() -> None:
    found = folded(("a", {"x": 1, "y": 1}, 5), ("a", {"x": 2, "y": None}, 9), ("b", {"x": 3}, 7))
    assert found == {"a": ({"x": 2}, 2, 9), "b": ({"x": 3}, 1, 7)}


def test_a_tombstone_ends_a_key_which_may_begin_anew() -> None:
    assert folded(("a", {"x": 1}, 1), ("a", None, 2)) == {}
    assert folded(("a", {"x": 1}, 1), ("a", None, 2), ("a", {"y": 1}, 3)) == {"a": ({"y": 1}, 3, 3)}


def test_what_is_no_json_is_told() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        list(_folded(merge_fields, iter([("a", "{", 1)])))
