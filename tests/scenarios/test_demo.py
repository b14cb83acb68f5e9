"""`make demo`, until there is something of everything to see."""

import subprocess
import sys

from tests.docs.pages import ROOT


def test_demo_shows_every_feature() -> None:
    words = ["--once", "--any-port", "--rate", "60", "--failures", "0.5", "--seconds", "120"]
    done = subprocess.run(
        [sys.executable, "-m", "demo", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the console" in done.stdout
    assert "dead letters" in done.stdout.splitlines()[-1]
    assert "Traceback" not in done.stderr
