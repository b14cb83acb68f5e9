"""The checker of copies: a good copy passes, and every kind of bad one is called by its name."""

from collections.abc import Callable

import pytest

from tests.chaos.anomalies import anomalies
from tests.chaos.copier import Copy, target_of

COUNTS = [8, 8]
TARGETS = 4
FATES = {"early": "committed", "late": "begun", "undone": "aborted"}
Spoils = Callable[[list[list[Copy]]], object]


def copied_well() -> list[list[Copy]]:
    """Two input partitions of eight records, in a transaction of four and one of twelve."""
    rows: list[list[Copy]] = [[] for _ in range(TARGETS)]
    for number in range(8):
        for source in range(2):
            name, size = ("early", 4) if number < 2 else ("late", 12)
            rows[target_of(source, number, TARGETS)].append(Copy(source, number, name, size))
    return rows


def test_correct_copy_has_no_anomalies() -> None:
    assert anomalies(COUNTS, copied_well(), FATES) == []


SPOILED: dict[str, Spoils] = {
    "lost: 1": lambda rows: rows[0].pop(),
    "torn: 1": lambda rows: rows[0].pop(),
    "duplicate: 1": lambda rows: rows[0].append(rows[0][-1]._replace(transaction="x", size=1)),
    "out of order: 1": lambda rows: rows[0].append(rows[0].pop(1)),
    "in the wrong partition: 1": lambda rows: rows[1].append(rows[0].pop()),
    "copied from an aborted transaction: 1": lambda rows: rows[0].append(Copy(1, -1, "x", 1)),
    "aborted but visible: 1": lambda rows: rows[0].append(Copy(1, 3, "undone", 1)),
    "committed but not visible: 1": lambda rows: [rows.pop() for _ in COUNTS * 2],
}


@pytest.mark.parametrize("expected", list(SPOILED))
def test_faulty_copy_is_named(expected: str) -> None:
    rows = copied_well()
    SPOILED[expected](rows)
    found = anomalies(COUNTS, rows, FATES)
    assert [line for line in found if line.startswith(expected)], found
