"""Changes of Delta and Iceberg tables, planned in memory, compared with a model."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipelines import DeltaTable, IcebergTable, PipelineError
from penstock.pipelines.lakehouse import Row, plan_changes

ONE = DeltaTable("/t", keys=("id",), sequence_by="at", scd=1)
TWO = DeltaTable("/t", keys=("id",), sequence_by="at", scd=2)


def row(key: Any, at: int, name: str, *, deletes: bool = False) -> Row:
    return {"id": key, "at": at, "name": name, "_penstock_deletes": deletes}


def applied(target: DeltaTable, table: list[Row], batch: list[Row]) -> list[Row]:
    """Table after a batch, as both formats write it."""
    keys = {one["id"] for one in batch}
    open_rows = [r for r in table if r["id"] in keys and r.get("is_current", True)]
    plan = plan_changes(target, open_rows, batch)
    removed = {key for (key,) in plan.removed}
    kept = [r for r in table if r["id"] not in removed or not r.get("is_current", True)]
    return [*kept, *plan.added]


EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=20
)


@given(events=EVENTS, cuts=st.sets(st.integers(1, 19)))
def test_upserts_in_any_batches_leave_the_last_row_of_each_key(
    events: list[tuple[int, str, bool]], cuts: set[int]
) -> None:
    rows = [row(key, at, name, deletes=gone) for at, (key, name, gone) in enumerate(events)]
    table: list[Row] = []
    for batch in batches(rows, cuts):
        table = applied(ONE, table, batch[::-1])
    last = {one["id"]: one for one in rows}
    expected = {k: (r["at"], r["name"]) for k, r in last.items() if not r["_penstock_deletes"]}
    assert {r["id"]: (r["at"], r["name"]) for r in table} == expected
    assert len(table) == len(expected)


@given(events=EVENTS, cuts=st.sets(st.integers(1, 19)))
def test_history_in_any_batches_has_every_version(
    events: list[tuple[int, str, bool]], cuts: set[int]
) -> None:
    rows = [row(key, at, name, deletes=gone) for at, (key, name, gone) in enumerate(events)]
    table: list[Row] = []
    for batch in batches(rows, cuts):
        table = applied(TWO, table, batch)
    assert all((r["valid_to"] is None) == r["is_current"] for r in table)
    # At every moment at most one version of a key is valid: the model's.
    for moment in range(len(rows)):
        state: dict[int, str] = {}
        for one in rows[: moment + 1]:
            state[one["id"]] = one["name"]
            if one["_penstock_deletes"]:
                del state[one["id"]]
        valid = [
            (r["id"], r["name"])
            for r in table
            if r["valid_from"] <= moment and (r["valid_to"] is None or moment < r["valid_to"])
        ]
        assert sorted(valid) == sorted(state.items())


def batches(rows: list[Row], cuts: set[int]) -> list[list[Row]]:
    marks = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    return [rows[a:b] for a, b in pairwise(marks)]


def test_late_row_replaces_nothing() -> None:
    table = applied(ONE, [], [row(1, 5, "new")])
    assert plan_changes(ONE, table, [row(1, 4, "late")]) == ([], [])
    assert plan_changes(TWO, applied(TWO, [], [row(1, 5, "new")]), [row(1, 4, "late")]) == ([], [])


def test_unchanged_row_adds_no_version() -> None:
    table = applied(TWO, [], [row(1, 5, "same")])
    assert plan_changes(TWO, table, [row(1, 6, "same")]) == ([], [])


def test_null_in_key_or_sequence_is_refused() -> None:
    with pytest.raises(PipelineError, match="null in its key id"):
        plan_changes(ONE, [], [row(None, 1, "a")])
    with pytest.raises(PipelineError, match="null in 'at'"):
        plan_changes(ONE, [], [{**row(1, 1, "a"), "at": None}])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"scd": 2, "keys": ("a",)}, "scd=2 needs sequence_by"),
        ({"sequence_by": "at"}, "need keys"),
        ({"keys": "a"}, "tuples of column names"),
        ({"keys": ("a",), "scd": 3}, "scd must be 1 or 2"),
    ],
)
def test_invalid_table_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        DeltaTable("/t", **options)
    with pytest.raises(PipelineError, match=why):
        IcebergTable("db.t", **options)
    with pytest.raises(PipelineError, match=r"namespace\.table"):
        IcebergTable("t")
