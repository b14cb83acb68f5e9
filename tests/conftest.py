"""Brokers for tests that need a real process: one shared for the session, or fresh ones.

`PENSTOCK_TEST_BOOTSTRAP=host:port` points the shared fixture at any running broker, so the same
tests can run against another implementation. A failing test shows the log of every broker it used.
"""

import itertools
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.brokers import QUICK, PenstockProcess
from tests.etcd import EtcdProcess

LOG_CHARACTERS_SHOWN = 8_000
QUICK_GROUPS = {
    **QUICK,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.share.min.record.lock.duration.ms": 1_000,
}
"""Shorter than for users, so that tests need not wait for a group's members."""


class Broker(Protocol):
    """The shared broker as tests see it."""

    bootstrap: str

    def log(self) -> str: ...


class ExternalBroker:
    """A broker that was started outside the tests, and is not stopped by them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def log(self) -> str:
        return ""


FreshBroker = Callable[..., PenstockProcess]

_used: dict[str, list[Broker]] = {}
_topic_numbers = itertools.count()


@pytest.fixture(scope="session")
def _shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    given = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
    if given:
        yield ExternalBroker(given)
        return
    process = PenstockProcess(tmp_path_factory.mktemp("broker") / "data", QUICK_GROUPS)
    yield process
    assert process.stop() == 0, process.log()


@pytest.fixture
def broker(_shared_broker: Broker, request: pytest.FixtureRequest) -> Broker:
    """The broker shared by all client tests; every test uses its own topics."""
    _used.setdefault(request.node.nodeid, []).append(_shared_broker)
    if isinstance(_shared_broker, PenstockProcess):
        assert _shared_broker.running, f"the broker died earlier:\n{_shared_broker.log()}"
    return _shared_broker


@pytest.fixture
def fresh_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FreshBroker]:
    """Starts brokers for one test: `fresh_broker(sets={"num.partitions": 3})`."""
    started: list[PenstockProcess] = []

    def start(
        data_dir: Path | None = None, sets: Mapping[str, object] | None = None, **options: Any
    ) -> PenstockProcess:
        directory = data_dir or tmp_path / f"broker-{len(started)}" / "data"
        process = PenstockProcess(directory, {**QUICK, **(sets or {})}, **options)
        started.append(process)
        _used.setdefault(request.node.nodeid, []).append(process)
        return process

    yield start
    for process in started:
        if process.running:
            process.stop()


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """The etcd shared by tests; every test uses its own prefix and leaves it running."""
    process = EtcdProcess(tmp_path_factory.mktemp("etcd") / "data")
    yield process
    process.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of this or an earlier run has used."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")
    return f"{words[:120]}-{os.getpid()}-{next(_topic_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attaches the logs of the brokers that a failing test used."""
    report = yield
    if report.failed:
        for broker in _used.get(item.nodeid, []):
            report.sections.append(("broker log", broker.log()[-LOG_CHARACTERS_SHOWN:]))
    return report
