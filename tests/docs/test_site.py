"""The site builds without a warning: no page left out, no link or heading that leads nowhere."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env=environment, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "how-to" / "tracing" / "index.html").exists()
