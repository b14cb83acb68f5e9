"""Every pair of the three tables under all seven levels, as a registration would be judged."""

import itertools
from typing import Any

import pytest

from penstock.state.registry.compatibility_check import CheckPlan, Level, judge
from penstock.state.registry.json_text import write_json
from penstock.state.registry.parsed_schemas import AVRO, JSON, PROTOBUF, SchemaSource
from tests.unit.state.registry import pairs_avro, pairs_json, pairs_protobuf

Told = tuple[str, str, str, str, bool, bool]


def told(kind: str, rows: list[tuple[str, Any, Any, bool, bool]]) -> list[Told]:
    """With the schemas as texts."""
    return [
        (kind, what, _text(kind, old), _text(kind, new), back, forth)
        for what, old, new, back, forth in rows
    ]


def _text(kind: str, schema: Any) -> str:
    return str(schema) if kind == PROTOBUF else write_json(schema)


ROWS = [
    *told(AVRO, pairs_avro.PAIRS),
    *told(JSON, pairs_json.PAIRS),
    *told(PROTOBUF, pairs_protobuf.PAIRS),
]


def fits(level: Level, kind: str, new: str, *before: str) -> bool:
    """`before`: the versions there are, oldest first."""
    rows = [(at, SchemaSource(kind, text)) for at, text in enumerate(before, 1)][::-1]
    if not level.is_transitive:
        rows = rows[:1]
    if level is Level.NONE:
        rows = []
    plan = CheckPlan(
        0, SchemaSource(kind, new), (None, None), False, level, tuple(rows), frozenset()
    )
    return not judge(plan).messages


def test_table_has_enough_unique_rows() -> None:
    assert len(ROWS) >= 150
    assert len({(kind, what) for kind, what, *_ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("kind", "what", "old", "new", "backward", "forward"),
    ROWS,
    ids=[f"{row[0]}: {row[1]}" for row in ROWS],
)
def test_pair_fits_as_the_table_says(
    kind: str, what: str, old: str, new: str, backward: bool, forward: bool
) -> None:
    wanted = {
        Level.NONE: True,
        Level.BACKWARD: backward,
        Level.BACKWARD_TRANSITIVE: backward,
        Level.FORWARD: forward,
        Level.FORWARD_TRANSITIVE: forward,
        Level.FULL: backward and forward,
        Level.FULL_TRANSITIVE: backward and forward,
    }
    assert {level: fits(level, kind, new, old) for level in Level} == wanted


def _avro(*fields: dict[str, Any]) -> str:
    return write_json(pairs_avro.record(*fields))


ONE = _avro(pairs_avro.A)
WITH_DEFAULT = _avro(pairs_avro.A, pairs_avro.B)
WITHOUT_DEFAULT = _avro(pairs_avro.A, pairs_avro.C)
CHAINS: list[tuple[str, str, tuple[str, ...], str, set[Level]]] = [
    (
        "a default comes and goes: the first version cannot be read any more",
        AVRO,
        (ONE, WITH_DEFAULT),
        WITHOUT_DEFAULT,
        {Level.BACKWARD, Level.FORWARD, Level.FORWARD_TRANSITIVE, Level.FULL, Level.NONE},
    ),
    (
        "a default comes before the field goes: the first version cannot read any more",
        AVRO,
        (WITHOUT_DEFAULT, WITH_DEFAULT),
        ONE,
        {Level.BACKWARD, Level.BACKWARD_TRANSITIVE, Level.FORWARD, Level.FULL, Level.NONE},
    ),
    ("fields with defaults all the way", AVRO, (ONE, WITH_DEFAULT), ONE, set(Level)),
    (
        "a property goes from a closed object by way of an open one",
        JSON,
        (
            write_json(pairs_json.closed(a=pairs_json.S)),
            write_json(pairs_json.open_object(a=pairs_json.S)),
        ),
        write_json(pairs_json.open_object()),
        {Level.BACKWARD, Level.BACKWARD_TRANSITIVE, Level.NONE},
    ),
    (
        "a number comes back with another type",
        PROTOBUF,
        (
            pairs_protobuf.message("string a = 1;"),
            pairs_protobuf.message(""),
        ),
        pairs_protobuf.message("int32 a = 1;"),
        {Level.BACKWARD, Level.FORWARD, Level.FULL, Level.NONE},
    ),
]


@pytest.mark.parametrize(
    ("kind", "before", "new", "wanted"),
    [row[1:] for row in CHAINS],
    ids=[row[0] for row in CHAINS],
)
def test_transitive_levels_look_at_every_version(
    kind: str, before: tuple[str, ...], new: str, wanted: set[Level]
) -> None:
    assert {level for level in Level if fits(level, kind, new, *before)} == wanted


@pytest.mark.parametrize("level", [level for level in Level if level is not Level.NONE])
def test_another_format_never_fits(level: Level) -> None:
    texts = {
        AVRO: ONE,
        JSON: write_json(pairs_json.S),
        PROTOBUF: pairs_protobuf.message("string a = 1;"),
    }
    for old, new in itertools.permutations(texts, 2):
        plan = CheckPlan(
            0,
            SchemaSource(new, texts[new]),
            (None, None),
            False,
            level,
            ((1, SchemaSource(old, texts[old])),),
            frozenset(),
        )
        assert judge(plan).messages
