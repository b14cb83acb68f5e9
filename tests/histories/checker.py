"""Has a history checked by Porcupine, which tries to find an order that a model allows.

The program is in tools/linearizability: it knows the models, cuts histories into parts that can be
checked by themselves, and shows the smallest part that is wrong.
"""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
OK, ILLEGAL, UNKNOWN = "ok", "illegal", "unknown"
VERDICTS = {0: OK, 1: ILLEGAL, 3: UNKNOWN}


class NoChecker(Exception):
    """It is not there and could not be built; the message says what to do."""


class Verdict(NamedTuple):
    word: str
    """`ok`, `illegal`, or `unknown` where there was not time enough."""
    text: str


@cache
def program() -> str:
    """The path of the checker, which is built if it is not there."""
    build = ["sh", str(ROOT / "tools" / "linearizability" / "build.sh")]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoChecker(done.stderr)
    return done.stdout.strip()


def require_checker() -> None:
    """In CI its absence is a failure, elsewhere a skip with a reason."""
    try:
        program()
    except NoChecker as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def check(model: str, history: Path, seconds: float = SECONDS) -> Verdict:
    command = [program(), "-model", model, "-seconds", str(seconds), str(history)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in VERDICTS, done.stderr
    return Verdict(VERDICTS[done.returncode], done.stdout.strip())
