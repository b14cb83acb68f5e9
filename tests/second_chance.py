"""Reruns tests of real processes that failed with a timeout; never other failures.

A machine that is busy for a minute makes such a test fail, which says nothing about Penstock. So a
test with one of `MARKS` is run once more if the only failure was a timeout: a time limit ran out, a
connection was refused or reset. A failed assertion, e.g. about the contents of a topic, is a
failure at once, and so is a second run that times out. Each rerun is named at the end of the run,
with its reason.

pytest-rerunfailures would do, except for the time limit of each test: pytest-timeout sets it once
for all runs of a test, so that a second run which hangs would never end. Here it is set anew.
"""

import subprocess
from collections.abc import Generator, Iterator

import pytest
from _pytest.runner import runtestprotocol

MARKS = ("clients", "java", "chaos", "spark", "processes")
KINDS = (TimeoutError, ConnectionError, subprocess.TimeoutExpired)
NAMES = frozenset(
    {
        # aiokafka and kafka-python
        "KafkaTimeoutError",
        "KafkaConnectionError",
        "NoBrokersAvailable",
        "RequestTimedOutError",
        # botocore
        "ConnectionClosedError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "ReadTimeoutError",
    }
)
"""Names of classes that exist only once their library is imported."""
RDKAFKA_NAMES = frozenset({"_TIMED_OUT", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"})
LIMIT = "Timeout (>"
"""Start of pytest-timeout's message."""
SLOW_WORKER = "Python worker failed to connect back"
"""Message of Spark when one of its processes took longer than ten seconds to start."""

_timers = pytest.StashKey[object]()
_failures = pytest.StashKey[list[BaseException]]()


def is_impatience(error: BaseException) -> bool:
    """True if the error only says that something did not happen in time."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_impatience, error.exceptions))
    if isinstance(error, KINDS) or {cls.__name__ for cls in type(error).__mro__} & NAMES:
        return True
    if isinstance(error, pytest.fail.Exception):
        return str(error).startswith(LIMIT)
    if SLOW_WORKER in str(error):
        return True
    reason = getattr(error, "reason", None)  # urllib's URLError
    if isinstance(reason, BaseException):
        return is_impatience(reason)
    given = error.args[0] if error.args else None
    name = getattr(given, "name", None)  # confluent-kafka's KafkaException of a KafkaError
    return callable(name) and name() in RDKAFKA_NAMES


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    """Stores the time limit of a test, and leaves it to pytest-timeout to set it."""
    item.stash[_timers] = settings


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        item.stash.setdefault(_failures, []).append(call.excinfo.value)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test with one of the marks; all others run as usual."""
    if not any(item.get_closest_marker(mark) for mark in MARKS):
        return None
    hook, nodeid, location = item.ihook, item.nodeid, item.location
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failures = item.stash.get(_failures, [])
    if failures and all(map(is_impatience, failures)):
        for report in reports:
            if report.failed:
                report.outcome = "rerun"  # type: ignore[assignment]
                hook.pytest_runtest_logreport(report=report)
        _start_afresh(item)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
    return True


def _start_afresh(item: pytest.Item) -> None:
    """Retries fixtures that failed, and restarts the time limit."""
    assert isinstance(item, pytest.Function)
    item._initrequest()
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            if definition.cached_result is not None and definition.cached_result[2] is not None:
                definition.finish(item._request)  # type: ignore[arg-type]
    settings = item.stash.get(_timers, None)
    if settings is not None and not getattr(settings, "func_only", False):
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    if report.outcome == "rerun":  # type: ignore[comparison-overlap]
        return "second chance", "R", "SECOND CHANCE"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names every rerun, with the last line of its failure."""
    given = terminalreporter.stats.get("second chance", [])
    if not given:
        return
    terminalreporter.section("waited too long, and run a second time", yellow=True, bold=True)
    for line in _lines(given):
        terminalreporter.write_line(line, yellow=True)


def _lines(reports: list[pytest.TestReport]) -> Iterator[str]:
    for report in reports:
        text = getattr(report.longrepr, "reprcrash", None)
        reason = str(text.message if text else report.longrepr).strip().splitlines() or [""]
        yield f"SECOND CHANCE {report.nodeid} ({report.when}): {reason[0][:300]}"
