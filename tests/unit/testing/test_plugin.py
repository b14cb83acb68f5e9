"""Claims about the fixture that the package brings to pytest."""

import re
import subprocess
import sys
from pathlib import Path

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

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a project of somebody else would."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments], cwd=directory, capture_output=True, text=True, timeout=120
    )


def test_a_users_test_gets_a_broker_by_naming_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_jobs.py").write_text(USER_TEST)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_plugin_costs_those_nothing_who_do_not_use_it(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(
        "import sys\n\n\ndef test_light():\n"
        "    assert 'penstock.testing.plugin' in sys.modules\n"
        "    heavy = [name for name in sys.modules if name.startswith('penstock.')]\n"
        "    assert heavy == ['penstock.testing', 'penstock.testing.plugin'], heavy\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_of_the_page_pass(tmp_path: Path) -> None:
    examples = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
