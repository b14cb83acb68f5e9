"""`penstock demo`, until there is something of everything to see."""

import os
import subprocess
from pathlib import Path

from tests.brokers import COMMAND


def test_demo_shows_every_feature(tmp_path: Path) -> None:
    words = ["--once", "--any-port", "--rate", "60", "--failures", "0.5", "--seconds", "120"]
    done = subprocess.run(
        [COMMAND, "demo", *words],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the console" in done.stdout
    assert "dead letters" in done.stdout.splitlines()[-1]
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "nothing of it stays"
