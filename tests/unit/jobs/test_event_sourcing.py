"""Folding of events to states, key by key."""

import json

import pytest

from penstock.jobs.event_sourcing import _fold_sorted, merge_fields


def folded(*rows: tuple[str, object, int]) -> dict[str, tuple[object, int, int]]:
    given = ((key, None if value is None else json.dumps(value), at) for key, value, at in rows)
    return {
        key: (json.loads(state), events, last)
        for key, state, events, last in _fold_sorted(merge_fields, given)
    }


def test_later_fields_win_and_null_removes() -> None:
    found = folded(("a", {"x": 1, "y": 1}, 5), ("a", {"x": 2, "y": None}, 9), ("b", {"x": 3}, 7))
    assert found == {"a": ({"x": 2}, 2, 9), "b": ({"x": 3}, 1, 7)}


def test_tombstone_deletes_a_key_until_its_next_event() -> None:
    assert folded(("a", {"x": 1}, 1), ("a", None, 2)) == {}
    assert folded(("a", {"x": 1}, 1), ("a", None, 2), ("a", {"y": 1}, 3)) == {"a": ({"y": 1}, 3, 3)}


def test_invalid_json_event_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        list(_fold_sorted(merge_fields, iter([("a", "{", 1)])))
