"""In which order files are tested, and by whom: one worker of three computes, the others wait.

`make test` has one worker more than there are cores, and a file stays on one worker. A test of real
processes mostly waits, so two of them leave a core to those that compute. But what it waits for is
slowed down by whatever else runs just then, so there are never more of them at a time than that as
long as there is something to compute. The long ones come first, and the many short ones fill up
the end.

Files that share something dear stay together: most of Spark has one session, which takes long to
start and much memory, and some of chaos have one cluster.
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
"""Those of Spark that start processes of their own: not beside the session of the others."""
WAITING = ("spark", "chaos", "histories", ALONE, "console", "clients", "scenarios", "docs", "fuzz")
COMPUTING = ("sim", "property")
"""The other folders come after these, as they are collected."""
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
    """Every path once; those of one folder stay in their order."""
    ranks = {name: rank for rank, name in enumerate((*WAITING, *COMPUTING))}

    def rank(path: Path) -> int:
        folder = folder_of(path)
        if folder == "spark" and scope_of(f"tests/spark/{path.name}") != "tests/spark":
            folder = ALONE
        return ranks.get(folder, len(ranks))

    return sorted(paths, key=rank)


def scope_of(file: str) -> str:
    """Files of one scope stay on one worker."""
    return next((name for name, rule in TOGETHER.items() if rule.match(file)), file)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """As `--dist loadfile`, but for those, and for who gets which."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.partition("::")[0])

    def _assign_work_unit(self, node: Any) -> None:
        """The next unit of the kind that is wanted, else the next."""
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
    """Whether it is of tests that mostly wait."""
    return folder_of(TESTS.parent / scope) in WAITING
