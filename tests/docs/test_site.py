"""The site builds without a warning, and its reference tables keep names whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.docs.pages import ROOT

BROKEN = """[...document.querySelectorAll('article table td:first-child code')]
  .filter((e) => e.getClientRects().length > 1).map((e) => e.textContent)"""
NAMES = "document.querySelectorAll('article table td:first-child code').length"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env=environment, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_site_builds_without_a_warning(site: Path) -> None:
    assert (site / "how-to" / "tracing" / "index.html").exists()


def test_names_in_reference_tables_stay_on_one_line(site: Path, tmp_path: Path) -> None:
    browser = Browser(tmp_path / "profile")
    try:
        with browser.screen(1280, 900):
            for page in ("configs", "metrics", "cli"):
                browser.go((site / "reference" / page / "index.html").as_uri())
                assert browser.run(NAMES) > 50
                assert browser.run(BROKEN) == []
    finally:
        browser.close()
