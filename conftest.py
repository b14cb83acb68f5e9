"""pytest configuration of all tests.

Owns the hypothesis profiles, the rule that CI skips no test, and SIGINT for tests that start
programs. The order of tests is in `tests/running_order.py`, retries are in
`tests/second_chance.py`, fixtures are in `tests/conftest.py`.
"""

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

# A deadline would measure other load. CI uses the same examples every time, local
# runs and `make fuzz` (the long profile) use new ones.
IN_CI = bool(os.environ.get("CI"))
settings.register_profile("default", deadline=None, print_blob=True, derandomize=IN_CI)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

pytest_plugins = ["tests.running_order", "tests.second_chance"]

# A shell ignores SIGINT in background jobs, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exempts imported modules from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails skipped tests in CI, so that an unchecked behavior is visible."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _refuse_skipping(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fails modules that skip all their tests in CI."""
    report = yield
    _refuse_skipping(report)
    return report


def _refuse_skipping(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and IN_CI:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI must skip no test: {reason}"
