"""How every check runs, whichever folder it lives in.

Owns the hypothesis profiles and the rule that CI skips nothing.
Fixtures live in `tests/conftest.py`.
"""

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

# A deadline would measure the neighbours' load. CI asks the same questions every time, people's
# own runs and `make fuzz` (the long profile) ask new ones.
IN_CI = bool(os.environ.get("CI"))
settings.register_profile("default", deadline=None, print_blob=True, derandomize=IN_CI)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one: what is not checked must be seen."""
    report = yield
    if report.skipped and IN_CI and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI skips nothing: {reason}"
    return report
