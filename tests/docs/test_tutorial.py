"""The README, the tutorial and the Python of all how-tos, one after the other on one broker.

Shell blocks are typed, Python blocks are run, or saved where they have a title, and a worker is
left running as in a third terminal. A text block is what the block before it prints, or, titled
"worker", what the worker has printed by then; `...` in it stands for anything.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.brokers import PenstockProcess
from tests.conftest import QUICK_GROUPS
from tests.docs.pages import ROOT, Block, blocks

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```', re.M | re.S
)
STARTED_BY_THE_TEST = ("make up", "penstock ready", "pip install")
WORKER = "worker"
PATIENCE_S = 30.0
ADDRESSES = re.compile(r"localhost:(9092|8080)")
# Spark snippets run in tests/spark, on the shared session, the comparison's in test_programs, and
# the tour's in test_tour.
SNIPPETS = [
    block
    for block in blocks("python")
    if ADDRESSES.search(block.text)
    and "pyspark" not in block.text
    and block.page not in ("docs/compare.md", "docs/tour.md", "docs/tutorial.md")
]


class Step(NamedTuple):
    """A block of the tutorial, and what it prints where the tutorial says so."""

    language: str
    title: str
    text: str
    shown: str | None


def steps(page: Path = PAGE) -> list[Step]:
    blocks = [
        (found["language"], found["title"] or "", found["text"])
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if not found["text"].startswith(STARTED_BY_THE_TEST)
    ]
    found: list[Step] = []
    for language, title, text in blocks:
        if language == "text" and not title:
            found[-1] = found[-1]._replace(shown=text)
        else:
            found.append(Step(language, title, text, None))
    return found


class Reader:
    """A user with a shell, and a worker in another."""

    def __init__(self, folder: Path, broker: PenstockProcess) -> None:
        self._folder = folder
        self._broker = broker
        self._worker: subprocess.Popen[bytes] | None = None
        self._worker_said = folder / "worker.out"
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PENSTOCK_BROKERS": broker.bootstrap,
            "PYTHONUNBUFFERED": "1",
        }

    def follow(self, step: Step) -> None:
        if step.title == WORKER:
            _await(self._worker_said.read_text, step.text)
        elif step.title:
            (self._folder / step.title).write_text(step.text)
        elif step.text.startswith("penstock worker "):
            self._leave_running(step.text)
        elif step.shown is None:
            self._run(step)
        else:
            # A reader of other pages sees more rows than this page shows.
            lines = set(_lines(step.shown))
            _await(lambda: "\n".join(_rows(self._run(step), lines)), step.shown)

    def stop(self) -> None:
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.terminate()
            assert worker.wait(PATIENCE_S) == 0

    def _run(self, step: Step) -> str:
        words = {"sh": ["sh", "-ec"], "python": [sys.executable, "-c"]}[step.language]
        source = step.text.replace("localhost:9092", self._broker.bootstrap)
        source = source.replace("localhost:8080", self._broker.http.removeprefix("http://"))
        done = subprocess.run(
            [*words, source], cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{step.text}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), step.text
        return done.stdout

    def _leave_running(self, text: str) -> None:
        self.stop()
        with self._worker_said.open("wb") as out, (self._folder / "worker.log").open("wb") as log:
            self._worker = subprocess.Popen(
                text.split(), cwd=self._folder, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=log,
            )  # fmt: skip


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def _rows(seen: str, expected: set[str]) -> list[str]:
    """The lines that begin with the first word of an expected one."""
    first = {line.split(" ")[0] for line in expected if line}
    return [line for line in _lines(seen) if line.split(" ")[0] in first]


def _await(look: Callable[[], str], expected: str) -> None:
    """Looks until it is as expected, because the worker may still be at it."""
    words = [re.escape(word) if word != "..." else ".+" for word in expected.split()]
    pattern = re.compile(" ".join(words))
    deadline = time.monotonic() + PATIENCE_S
    while not pattern.fullmatch(" ".join((seen := look()).split())):
        if time.monotonic() >= deadline:
            raise TimeoutError(f"expected:\n{expected}\nseen:\n{seen}")
        time.sleep(0.2)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    """One for all pages of this file, so each of them needs names of its own."""
    process = PenstockProcess(tmp_path_factory.mktemp("pages") / "data", QUICK_GROUPS)
    yield process
    process.stop()


@pytest.mark.clients
@pytest.mark.parametrize("page", [README, PAGE], ids=lambda page: page.stem)
def test_page_works_from_top_to_bottom(page: Path, broker: PenstockProcess, tmp_path: Path) -> None:
    reader = Reader(tmp_path, broker)
    try:
        for step in steps(page):
            reader.follow(step)
    finally:
        reader.stop()


@pytest.mark.clients
@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: block.page)
def test_documented_snippet_runs(block: Block, broker: PenstockProcess) -> None:
    source = block.text.replace("localhost:9092", broker.bootstrap)
    source = source.replace("http://localhost:8080", broker.http)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_tutorial_block_is_parsed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("\n```") == 2 * len(list(BLOCK.finditer(page)))
    assert {step.language for step in steps()} == {"sh", "python", "text"}
