"""Order of test files, and their distribution over workers: one worker of three computes, the rest
wait.

`make test` has one worker more than there are cores, and a file stays on one worker. A test of real
processes mostly waits, so two of them leave a core to tests that compute. But the processes it
waits for are slowed down by everything else, so while there are computing files no more workers
than that get waiting ones. The long files come first, and the many short ones fill up the end.

Files that share an expensive fixture stay together: most of Spark has one session, which takes long
to start and much memory, and some of chaos have one cluster.
"""

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
ALONE = "spark alone"
"""Spark tests that start their own processes: not beside the shared session."""
WAITING = ("spark", "chaos", "histories", ALONE, "console", "clients", "scenarios", "docs", "fuzz")
COMPUTING = ("sim", "property")
"""The other folders come after these, in the order of their collection."""
TOGETHER = {
    "tests/spark": re.compile(r"tests/spark/(?!test_(cluster|connect|driver_killed)\.py)"),
    "tests/chaos": re.compile(r"tests/chaos/test_(failover|nodes|transactions)\.py"),
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path, []).append(item)
    items[:] = chain.from_iterable(by_file[path] for path in in_order(by_file))


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Every path once; files of one folder keep their order."""
    ranks = {name: rank for rank, name in enumerate((*WAITING, *COMPUTING))}

    def rank(path: Path) -> int:
        folder = folder_of(path)
        if folder == "spark" and scope_of(f"tests/spark/{path.name}") != "tests/spark":
            folder = ALONE
        return ranks.get(folder, len(ranks))

    return sorted(paths, key=rank)


def scope_of(file: str) -> str:
    """Scope of a file: files of one scope stay on one worker."""
    return next((name for name, rule in TOGETHER.items() if rule.match(file)), file)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadfile`, except for shared scopes, and for the choice of the next unit."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.partition("::")[0])

    def _assign_work_unit(self, node: Any) -> None:
        """Assigns the next unit of the wanted kind, else the next one."""
        others = [units for other, units in self.assigned_work.items() if other is not node]
        computing = sum(not is_waiting(next(reversed(units))) for units in others if units)
        waits = computing >= max(1, len(self.nodes) // 3)
        for scope in self.workqueue:
            if is_waiting(scope) == waits:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def folder_of(path: Path) -> str:
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


def is_waiting(scope: str) -> bool:
    """True for a scope of tests that mostly wait."""
    return folder_of(TESTS.parent / scope) in WAITING
