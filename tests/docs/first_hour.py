"""Times what a new user does first: `make first-hour`, or `python -m tests.docs.first_hour`.

Builds the wheel, installs it into an environment of its own, and follows the README and the page on
tests with nothing but that environment: start a broker, the first message, a worker, a test with
the fixture, the demo, and the stop. The programs and commands are those of the pages. A step whose
output lacks what the page promises ends the script.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import ROOT, blocks

READY = re.compile(r"^penstock ready kafka=(\S+) http=(\S+)", re.MULTILINE)
INSTALL_S = 600.0
PATIENCE_S = 90.0
WORKER_FILE = "newsletter.py"
FIXTURE_TEST = "def test_reminder_arrives_after_fifteen_minutes"


class Failed(Exception):
    """A step did not do what its page says."""


class Timings:
    """Durations of the steps, in order; each is printed when it ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        print(f"{name:<50}{self.seconds[name]:8.1f} s", flush=True)


class Newcomer:
    """A user with a shell, whose PATH begins with the environment's programs."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        # Nothing else of the surrounding environment may help: pip's settings are for the way to
        # the packages.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in ("HOME", "LANG", "TMPDIR")
            or name.startswith("PIP_")
            or name.lower().endswith("_proxy")
        }
        self._environment = kept | {
            "PATH": f"{programs}:{os.defpath}",
            "PYTHONUNBUFFERED": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        self._left: list[subprocess.Popen[bytes]] = []

    def save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def set(self, values: Mapping[str, str]) -> None:
        self._environment |= values

    def run(self, command: str, expect: str = "", timeout_s: float = PATIENCE_S) -> None:
        done = subprocess.run(
            ["sh", "-ec", command], cwd=self._folder, env=self._environment, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip
        if done.returncode or expect not in done.stdout:
            raise Failed(f"{command}: expected {expect!r}\n{done.stdout}\n{done.stderr}")

    def leave(self, command: str, until: Callable[[str], bool]) -> str:
        """Leaves a command running, and returns its output once `until` holds for it."""
        words = command.split()
        out = self._folder / f"{len(self._left)}.out"
        with out.open("wb") as file:
            process = subprocess.Popen(
                [str(self._programs / words[0]), *words[1:]], cwd=self._folder,
                env=self._environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        self._left.append(process)
        deadline = time.monotonic() + PATIENCE_S
        while not until(out.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{command}:\n{out.read_text()}")
            time.sleep(0.02)
        return out.read_text()

    def stop(self) -> None:
        """Stops the command that was left last."""
        process = self._left.pop()
        process.terminate()
        if process.wait(PATIENCE_S) != 0:
            raise Failed(f"{process.args!r} ended with {process.returncode}")

    def close(self) -> None:
        for process in self._left:
            process.kill()
            process.wait()


def block(page: str, language: str, holds: str) -> str:
    """The block of a page that holds a text."""
    for one in blocks(language):
        if one.page == page and (holds in one.text or holds == one.title):
            return one.text
    raise Failed(f"{page} has no {language} block with {holds!r}")


def walk(programs: Path, folder: Path, timings: Timings) -> None:
    """Follows the pages with the programs of one environment."""
    user = Newcomer(programs, folder)
    try:
        with timings.step("penstock up, until it is ready"):
            said = user.leave(
                "penstock up --kafka-port 0 --http-port 0", lambda out: bool(READY.search(out))
            )
        ready = READY.search(said)
        assert ready is not None
        user.set({"PENSTOCK_BROKERS": ready[1]})
        with timings.step("first message: create, produce, consume"):
            user.run(block("README.md", "sh", "penstock topic create"), "hello world")
        user.save(WORKER_FILE, block("README.md", "python", WORKER_FILE))
        with timings.step("worker: publish, start, handled"):
            user.run(block("README.md", "sh", "penstock produce subscribers"))
            user.leave(
                block("README.md", "sh", "penstock worker").strip(),
                lambda out: "welcome ann" in out,
            )
        user.stop()
        user.save("test_reminders.py", block("docs/how-to/testing.md", "python", FIXTURE_TEST))
        with timings.step("test fixture: two tests with pytest"):
            user.run("python -m pytest -q test_reminders.py", "2 passed")
        with timings.step("penstock demo, until it has data of every kind"):
            user.run("penstock demo --once --any-port")
        with timings.step("stop"):
            user.stop()
    finally:
        user.close()


def copy_source(into: Path) -> None:
    """Copies the files that git knows, so that a build leaves nothing in the clone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src", "bin", "*.toml", "setup.py", "README.md", "LICENSE"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)


def install(folder: Path, python: str, timings: Timings) -> Path:
    """Builds the wheel and installs it with pytest; returns the environment's programs."""
    user = Newcomer(Path(python).parent, folder)
    copy_source(folder / "source")
    wheels, environment = folder / "wheels", folder / "environment"
    with timings.step("build the wheel"):
        user.run(f"{python} -m pip wheel -q --no-deps -w {wheels} ./source", timeout_s=INSTALL_S)
    (wheel,) = wheels.glob("*.whl")
    with timings.step("python -m venv"):
        user.run(f"{python} -m venv {environment}", timeout_s=INSTALL_S)
    programs = environment / "bin"
    with timings.step("pip install the wheel, and pytest"):
        user.run(f"{programs}/python -m pip install -q {wheel} pytest", timeout_s=INSTALL_S)
    return programs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="interpreter to install for")
    options = parser.parse_args()
    timings = Timings()
    with tempfile.TemporaryDirectory(prefix="penstock-first-hour-") as name:
        folder = Path(name)
        try:
            programs = install(folder, options.python, timings)
            (folder / "home").mkdir()
            walk(programs, folder / "home", timings)
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
    print(f"{'all':<50}{sum(timings.seconds.values()):8.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
