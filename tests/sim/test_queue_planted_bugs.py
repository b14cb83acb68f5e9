"""The queue runs can fail: each planted bug is found within 200 seeds."""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.queue_run import run_queue
from simulation.results import Violation
from tests.sim.queue_bugs import BUGS, QueueBug
from tests.sim.seeds import STALE, tell_if_stale

SEEDS_MAX = 200
TABLE = Path(__file__).parents[2] / "docs/internals/simulation.md"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.filterwarnings(STALE)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: QueueBug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in dict.fromkeys((bug.seed, *range(SEEDS_MAX))):
        found = _find(seed)
        gc.collect()  # Here, so that no other test is blamed for what it left.
        if found is not None:
            print(f"seed {seed}: {found}")
            tell_if_stale(bug.plant.__name__, bug.seed, seed)
            return
    pytest.fail(f"not found in {SEEDS_MAX} seeds")


def _find(seed: int) -> str | None:
    try:
        run_queue(seed)
    except Violation as found:
        return str(found).partition(":")[0]
    return None


def test_table_in_the_docs_equals_this_list() -> None:
    text = TABLE.read_text()
    names = [bug.plant.__name__.replace("_", " ") for bug in BUGS]
    rows = [
        f"| {name} | {bug.checker} | {bug.seed} |" for name, bug in zip(names, BUGS, strict=True)
    ]
    assert [row for row in rows if row not in text] == []
