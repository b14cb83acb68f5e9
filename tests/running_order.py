"""In which order files are tested: those that wait for processes and those that compute, in turn.

`make test` has one worker for each core, and a file stays on one worker. A test of real processes
mostly waits, but what it waits for is slowed down by whatever else runs just then; two of them at
the same time, each with a cluster of its own, disturb each other. So files of both kinds are
handed out in turn, the long ones first, and the many short ones fill up the end.

Files that share something dear stay together: most of Spark has one session, which takes long to
start and much memory, and some of chaos have one cluster.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
WAITING = ("spark", "chaos", "console", "clients", "scenarios", "docs", "fuzz")
COMPUTING = ("sim", "property")
"""The other folders come after these, as they are collected."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path, []).append(item)
    items[:] = chain.from_iterable(by_file[path] for path in in_turn(by_file))


def in_turn(paths: Iterable[Path]) -> Iterator[Path]:
    """Every path once; those of one folder stay in their order."""
    ranks = {name: rank for rank, name in enumerate((*WAITING, *COMPUTING))}

    def rank(path: Path) -> int:
        return ranks.get(folder_of(path), len(ranks))

    ordered = sorted(paths, key=rank)
    waiting = [path for path in ordered if folder_of(path) in WAITING]
    computing = [path for path in ordered if folder_of(path) not in WAITING]
    for pair in zip_longest(waiting, computing):
        yield from (path for path in pair if path is not None)


TOGETHER = {
    "spark": re.compile(r"tests/spark/(?!test_(cluster|connect|driver_killed)\.py)"),
    "chaos of one cluster": re.compile(r"tests/chaos/test_(failover|nodes|transactions)\.py"),
}


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """As `--dist loadfile`, but for those."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((name for name, rule in TOGETHER.items() if rule.match(file)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def folder_of(path: Path) -> str:
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
