"""Writes continue within ten seconds wherever a node reaches a majority, whatever else is cut.

All ways to cut the directions between three nodes, with every set of nodes that does not reach the
metadata store, and all shapes of five nodes likewise; see `simulation.network_cuts`. By default a
sample is run; `PENSTOCK_CUTS=all` runs everything (some ten minutes of CPU) and `-s` shows the
figures.
"""

import os
from collections import defaultdict
from collections.abc import Iterator

import pytest

from simulation.network_cuts import Cut, one_way_cuts, run_cut, shapes, subsets
from simulation.results import Violation

pytestmark = pytest.mark.usefixtures("quiet")

IS_ALL = os.environ.get("PENSTOCK_CUTS") == "all"
RUNS_PER_TEST = 40 if IS_ALL else 8

EVERY_3 = [Cut(3, links, some) for links in one_way_cuts(3) for some in subsets(range(1, 4))]
EVERY_5 = [Cut(5, links, some) for links in shapes(5) for some in subsets(range(1, 6))]

_gaps_s: dict[str, list[float]] = defaultdict(list)


@pytest.fixture(scope="module", autouse=True)
def _figures() -> Iterator[None]:
    yield
    for shape, gaps_s in sorted(_gaps_s.items()):
        middle_s = sorted(gaps_s)[len(gaps_s) // 2]
        print(f"\n{shape}: {len(gaps_s)} runs, median {middle_s:.1f} s, worst {max(gaps_s):.1f} s")


def _sample(every: list[Cut], stride: int, stride_of_hopeless: int) -> list[tuple[int, Cut]]:
    """Cuts with their seeds. Where no node could lead, the run only checks that nothing is lost."""
    rows = list(enumerate(every))
    if IS_ALL:
        return rows
    hopeful = [row for row in rows if row[1].possible_leaders]
    hopeless = [row for row in rows if not row[1].possible_leaders]
    return hopeful[::stride] + hopeless[::stride_of_hopeless]


def _chunks() -> list[list[tuple[int, Cut]]]:
    rows = _sample(EVERY_3, 2, 40) + _sample(EVERY_5, 29, 200)
    return [rows[at : at + RUNS_PER_TEST] for at in range(0, len(rows), RUNS_PER_TEST)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", _chunks(), ids=lambda c: f"{c[0][1].nodes}/{c[0][0]}")
def test_writes_continue_where_a_node_reaches_a_majority(chunk: list[tuple[int, Cut]]) -> None:
    for seed, cut in chunk:
        try:
            options = run_cut(cut, seed)
        except Violation as violation:
            violation.add_note(f"again: run_cut({cut!r}, {seed})")
            raise
        if cut.possible_leaders:
            _gaps_s[cut.shape].append(max(options.gaps_s.values()))


def test_every_cut_is_covered() -> None:
    assert len(EVERY_3) == 2**6 * 2**3
    assert len(EVERY_5) == 34 * 2**5, "there are 34 graphs of five nodes"
    assert sum(bool(cut.possible_leaders) for cut in EVERY_3) == 85
    whole = [cut for cut in EVERY_5 if not cut.links and not cut.without_store]
    assert [cut.possible_leaders for cut in whole] == [[1, 2, 3, 4, 5]]
