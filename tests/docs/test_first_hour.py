"""First steps of a user, with the programs of this environment; `make first-hour` installs one."""

import sys
from pathlib import Path

import pytest

from tests.docs.first_hour import Failed, Newcomer, Timings, block, walk

PROGRAMS = Path(sys.executable).parent


@pytest.mark.clients
def test_first_steps_of_the_pages_work(tmp_path: Path) -> None:
    timings = Timings()
    walk(PROGRAMS, tmp_path, timings)
    assert [name.partition(":")[0].partition(",")[0] for name in timings.seconds] == [
        "penstock up", "first message", "worker", "test fixture", "penstock demo", "stop",
    ]  # fmt: skip


def test_step_with_other_output_fails(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="expected 'hello'"):
        Newcomer(PROGRAMS, tmp_path).run("echo goodbye", "hello")
    with pytest.raises(Failed, match="has no sh block"):
        block("README.md", "sh", "no such command")
