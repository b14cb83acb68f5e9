"""`penstock worker`: finding what to run, and saying what is wrong."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.app.worker import Worker
from penstock.cli.main import run
from penstock.cli.tools.worker import load

SOURCE = """
from penstock import Worker

worker = Worker("127.0.0.1:1", group="workers")
other = 7

@worker.task("jobs")
async def handle(message):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "shop_jobs.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield "shop_jobs"
    sys.path[:] = before
    for name in ("shop_jobs", "broken_jobs"):
        sys.modules.pop(name, None)


def test_worker_is_found_in_the_current_directory(module: str) -> None:
    found = load(f"{module}:worker")
    assert isinstance(found, Worker)
    assert [task.topics for task in found.tasks] == [("jobs",)]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop_jobs", "is not MODULE:WORKER"),
        (":worker", "is not MODULE:WORKER"),
        ("no_jobs:worker", "no module 'no_jobs'"),
        ("shop_jobs:boss", "has no 'boss'"),
        ("shop_jobs:other", "is a int, not a penstock.Worker"),
    ],
)
def test_invalid_worker_target_is_refused(
    module: str, target: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["worker", target]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        (
            "import no_such_module_anywhere\n",
            "import no_such_module_anywhere",
            "ModuleNotFoundError: No module named 'no_such_module_anywhere'",
        ),
        ("def f():\n    1 / 0\n\nf()\n", "1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(\n", "def f(", "SyntaxError: '(' was never closed (broken_jobs.py, line 1)"),
    ],
)
def test_module_that_fails_to_load_shows_only_its_own_lines(
    module: str,
    tmp_path: Path,
    source: str,
    line: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_jobs.py").write_text(source)
    assert run(["worker", "broken_jobs:worker"]) == 1
    shown = capsys.readouterr().err
    assert line in shown
    assert shown.endswith(f"penstock: module 'broken_jobs' does not load: {said}\n")
    files = [part.split('"')[1] for part in shown.splitlines() if part.startswith("  File ")]
    assert set(files) == {str(tmp_path / "broken_jobs.py")}, "none of ours"


def test_absent_broker_is_reported(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", f"{module}:worker", "--brokers", "127.0.0.1:1"]) == 1
    assert "cannot reach 127.0.0.1:1" in capsys.readouterr().err
