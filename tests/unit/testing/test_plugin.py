"""Claims about the fixture that the package brings to pytest."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

USER_TEST = """
import asyncio


def test_plain(penstock):
    penstock.publish("jobs", "x", delay="15m")
    penstock.clock.advance("15m")
    assert len(penstock.messages("jobs")) == 1


def test_asyncio(penstock):
    async def main():
        penstock.publish("jobs", "y")
        await penstock.clock.advance_async(1)

    asyncio.run(main())
    assert len(penstock.messages("jobs")) == 1, "every test has a broker of its own"
"""

WORKER = """
from penstock import Message, Worker

worker = Worker(group="workers")


@worker.task("numbers", retries=0)
async def double(message: Message) -> None:
    await worker.client.publish("doubled", 2 * message.json())
"""
WORKER_TEST = """
import pytest
from penstock import Refused, SyncClient, Worker

from jobs import worker


def test_worker_runs_against_the_fixture(penstock):
    penstock.publish("numbers", 21)
    with penstock.run_worker(worker):
        (found,) = penstock.wait_for(lambda: penstock.messages("doubled"))
        assert found.value == b"42"
    assert worker.brokers is None
    penstock.publish("numbers", "poison")
    with penstock.run_worker(worker):
        penstock.wait_for(lambda: penstock.dead_letters("numbers"))


def test_clients_that_name_no_broker_use_the_fixture(penstock):
    with SyncClient() as client:
        client.publish("jobs", "x")
    assert len(penstock.messages("jobs")) == 1


def test_what_ends_a_worker_is_raised(penstock):
    broken = Worker(group="workers")

    @broken.task("jobs", retries=99)
    def handle(message): ...

    with pytest.raises(Refused, match="retries=99"), penstock.run_worker(broken):
        raise AssertionError


@pytest.mark.parametrize("brokers", [None, "localhost:9092", "127.0.0.1"])
def test_no_test_reaches_the_default_broker(brokers):
    with pytest.raises(Refused, match="a test would connect to"), SyncClient(brokers):
        raise AssertionError
"""

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest as another project would, with no configuration of a parent directory."""
    configuration = directory / "pytest.ini"
    if not configuration.exists():
        configuration.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments], cwd=directory, capture_output=True, text=True, timeout=120
    )


def test_users_test_gets_a_broker_by_naming_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_jobs.py").write_text(USER_TEST)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_plugin_is_not_loaded_by_other_tests(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(
        "import sys\n\n\ndef test_light():\n"
        "    assert 'penstock.testing.plugin' in sys.modules\n"
        "    heavy = [name for name in sys.modules if name.startswith('penstock.')]\n"
        "    assert heavy == ['penstock.testing', 'penstock.testing.plugin'], heavy\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_worker_runs_against_the_fixture_and_never_against_a_default(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(WORKER)
    (tmp_path / "test_worker.py").write_text(WORKER_TEST)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


@pytest.mark.parametrize(("guard", "told"), [("true", "Refused"), ("false", "Unreachable")])
def test_guard_can_be_turned_off(
    guard: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_TEST_GUARD", raising=False)
    monkeypatch.setenv("PENSTOCK_BROKERS", "127.0.0.1:1")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npenstock_guard = {guard}\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\nimport penstock\n\n\ndef test_it():\n"
        f"    with pytest.raises(penstock.{told}), penstock.SyncClient():\n        pass\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_of_the_page_pass(tmp_path: Path) -> None:
    examples = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
