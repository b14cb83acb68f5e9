"""How every check runs, whichever folder it lives in.

Owns the hypothesis profiles, the rule that CI skips nothing, and that a test which starts programs
may interrupt them. The order is in `tests/running_order.py`, who gets a second chance in
`tests/second_chance.py`, fixtures are in `tests/conftest.py`.
"""

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

# A deadline would measure the neighbours' load. CI asks the same questions every time, people's
# own runs and `make fuzz` (the long profile) ask new ones.
IN_CI = bool(os.environ.get("CI"))
settings.register_profile("default", deadline=None, print_blob=True, derandomize=IN_CI)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

pytest_plugins = ["tests.running_order", "tests.second_chance"]

# A shell has what it runs in the background ignore SIGINT, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is imported by now stays: no garbage collection need look through all of it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one: what is not checked must be seen."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _refuse_skipping(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips all it has."""
    report = yield
    _refuse_skipping(report)
    return report


def _refuse_skipping(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and IN_CI:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI skips nothing: {reason}"
