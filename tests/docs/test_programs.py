"""The programs of the comparison: short, typed, and doing what the page says, on one broker."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import SyncClient
from tests.brokers import PenstockProcess
from tests.conftest import QUICK_GROUPS
from tests.docs.pages import ROOT, Block, blocks

PAGE = "docs/compare.md"
OWN = "Penstock: "
LINES_MAX = 25
PATIENCE_S = 60.0
PROGRAMS = {block.title: block for block in blocks("python") if block.page == PAGE}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    """A broker of its own: the programs call their topics what they like."""
    process = PenstockProcess(tmp_path_factory.mktemp("programs") / "data", QUICK_GROUPS)
    yield process
    process.stop()


class Program:
    """One of the page's programs, running until it printed or wrote what was expected."""

    def __init__(self, title: str, folder: Path, broker: PenstockProcess, **changes: str) -> None:
        source = PROGRAMS[title].text.replace("localhost:9092", broker.bootstrap)
        for old, new in changes.items():
            assert old in source
            source = source.replace(old, new)
        (folder / "program.py").write_text(source)
        self._said = folder / "program.out"
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "program.py"], cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                env=os.environ | {"PENSTOCK_BROKERS": broker.bootstrap, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    def wait_said(self, *lines: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not set(lines) <= set((said := self._said.read_text()).splitlines()):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"expected {lines}, seen:\n{said}")
            time.sleep(0.1)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)


def test_the_page_has_three_programs_each_beside_another() -> None:
    own = [title for title in PROGRAMS if title.startswith(OWN)]
    assert len(own) == 3
    for title in own:
        file = title.removeprefix(OWN)
        assert [other for other in PROGRAMS if other != title and other.endswith(file)]


@pytest.mark.parametrize("title", [title for title in PROGRAMS if title.startswith(OWN)])
def test_program_has_at_most_25_lines(title: str) -> None:
    assert len(PROGRAMS[title].text.splitlines()) <= LINES_MAX


def test_programs_pass_strict_type_checks(tmp_path: Path) -> None:
    files = []
    for title, block in PROGRAMS.items():
        if title.startswith(OWN):
            files.append(tmp_path / title.removeprefix(OWN))
            files[-1].write_text(block.text)
    assert files
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent",
         "--cache-dir", str(tmp_path / "cache"), *map(str, files)],
        capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.clients
def test_work_queue_keeps_what_cannot_succeed(broker: PenstockProcess, tmp_path: Path) -> None:
    program = Program("Penstock: resize.py", tmp_path, broker)
    try:
        program.wait_said("resized cat")
        with SyncClient(broker.bootstrap) as client:
            (dead,) = client.poll("pictures.dlq", group="test", wait="60s")
            assert dead.json()["name"] == "dog"
            assert dict(dead.headers)["penstock-dlq-error-class"] == b"ValueError"
            dead.ack()
    finally:
        program.stop()


@pytest.mark.clients
@pytest.mark.parametrize("title", ["Penstock: euros.py", "aiokafka: euros.py"])
def test_copy_is_exact(title: str, broker: PenstockProcess, tmp_path: Path) -> None:
    """Each program with topics of its own, killed once on the way."""
    prefix = title.partition(":")[0].lower()
    # The key of the value, before a colon or a bracket, stays as it is.
    names = {'"cents",': f'"{prefix}.cents",', '"euros",': f'"{prefix}.euros",'}
    if title.startswith("aiokafka"):
        names['"euros")'] = f'"{prefix}.euros")'
    amounts = [{"cents": number} for number in range(200)]
    with SyncClient(broker.bootstrap) as client:
        client.create_topic(f"{prefix}.cents", partitions=1)
        client.create_topic(f"{prefix}.euros", partitions=1)
        client.publish_many(f"{prefix}.cents", amounts[:100])
        for half in range(2):
            program = Program(title, tmp_path, broker, **names)
            try:
                seen = _read(broker, f"{prefix}.euros", 100 * (half + 1))
            finally:
                program.stop()
            if half == 0:
                client.publish_many(f"{prefix}.cents", amounts[100:])
    assert seen == [number / 100 for number in range(200)]


def _read(broker: PenstockProcess, topic: str, count: int) -> list[float]:
    with SyncClient(broker.bootstrap) as client, client.consume(topic) as reader:
        found = [next(reader) for _ in range(count)]
        return [float(re.sub(r"[^0-9.e-]", "", record.text.partition(":")[2])) for record in found]


@pytest.mark.clients
def test_schedules_publish_with_priority_and_delay(broker: PenstockProcess, tmp_path: Path) -> None:
    program = Program(
        "Penstock: reports.py", tmp_path, broker,
        **{'every="30s"': 'every="1s"', 'delay="15m"': 'delay="1s"'},
    )  # fmt: skip
    try:
        program.wait_said("report for the boss", "report for the late shift")
    finally:
        program.stop()


def test_every_other_program_compiles() -> None:
    for block in PROGRAMS.values():
        assert isinstance(block, Block)
        compile(block.text, block.title, "exec")
