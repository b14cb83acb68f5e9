"""One broker and one browser, shared by the tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import PenstockProcess
from tests.console.browser import Browser
from tests.console.scene import Scene

QUICK = {"group.initial.rebalance.delay.ms": 0, "num.partitions": 3}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    process = PenstockProcess(tmp_path_factory.mktemp("console") / "data", QUICK)
    yield Scene(process)
    assert process.stop() == 0, process.log()


@pytest.fixture(scope="module")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(Path(tmp_path_factory.mktemp("chromium")) / "profile")
    yield browser
    browser.close()


@pytest.fixture
def browser(_browser: Browser) -> Iterator[Browser]:
    """The shared browser; a test fails if a page logged an unexpected error."""
    _browser.errors.clear()
    yield _browser
    assert not _browser.errors, _browser.errors
