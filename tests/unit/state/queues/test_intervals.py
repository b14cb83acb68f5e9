"""Interval set: equal to a plain set after any operations."""

import random
from itertools import pairwise

from penstock.state.queues.intervals import IntervalSet


def filled(*runs: tuple[int, int]) -> IntervalSet:
    made = IntervalSet()
    for first, last in runs:
        made.add(first, last)
    return made


def offsets(runs: IntervalSet) -> set[int]:
    return {offset for first, last in runs for offset in range(first, last + 1)}


def test_neighbours_become_one_run() -> None:
    runs = filled((0, 4), (10, 14))
    assert (runs.runs, len(runs)) == (2, 10)
    runs.add(5, 9)
    assert list(runs) == [(0, 14)]
    assert len(runs) == 15


def test_overlapping_range_is_counted_once() -> None:
    runs = filled((0, 9))
    runs.add(5, 12)
    assert (list(runs), len(runs)) == ([(0, 12)], 13)


def test_removal_splits_a_range_and_returns_its_count() -> None:
    runs = filled((0, 9))
    assert runs.remove(3, 5) == 3
    assert runs.remove(3, 5) == 0
    assert list(runs) == [(0, 2), (6, 9)]


def test_taking_gives_the_lowest_run_up_to_a_count() -> None:
    runs = filled((2, 5), (9, 9))
    assert runs.take(3) == (2, 4)
    assert runs.take(3) == (5, 5)
    assert runs.take(0) is None
    assert runs.take(3) == (9, 9)
    assert runs.take(3) is None
    assert not runs


def test_missing_and_within_divide_a_stretch() -> None:
    runs = filled((2, 3), (6, 8))
    assert list(runs.missing(0, 9)) == [(0, 1), (4, 5), (9, 9)]
    assert list(runs.within(3, 7)) == [(3, 3), (6, 7)]
    assert list(runs.missing(6, 8)) == []


def test_run_is_found_by_any_of_its_offsets() -> None:
    runs = filled((2, 3), (6, 8))
    assert runs.run_at(7) == (6, 8)
    assert runs.run_at(5) is None
    assert runs.run_at(1) is None
    assert (runs.first, runs.last) == (2, 8)
    assert 8 in runs
    assert 9 not in runs


def test_packing_loses_nothing() -> None:
    for runs in (filled(), filled((0, 0)), filled((2, 3), (6, 8), (2**60, 2**61))):
        again = IntervalSet.unpacked(runs.packed())
        assert again == runs
        assert len(again) == len(runs)
        assert len(runs.packed()) == 16 * runs.runs


def test_interval_set_equals_a_set() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        runs, plain = IntervalSet(), set[int]()
        for _ in range(120):
            first = rng.randrange(60)
            last = first + rng.randrange(8)
            span = set(range(first, last + 1))
            if rng.random() < 0.6:
                runs.add(first, last)
                plain |= span
            else:
                assert runs.remove(first, last) == len(span & plain)
                plain -= span
            assert offsets(runs) == plain
            assert len(runs) == len(plain)
            pairs = list(runs)
            assert all(a[1] + 1 < b[0] for a, b in pairwise(pairs))
