"""Pytest plugin of the package: fixture `penstock`, a broker for each test.

Found through the entry point `pytest11`. Costs nothing until a test uses it: the broker's modules
are imported then.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker

BROKERS = "PENSTOCK_BROKERS"
GUARD = "PENSTOCK_TEST_GUARD"
"""As in `penstock.app.options`, which is not imported here."""
GUARD_OPTION = "penstock_guard"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        GUARD_OPTION,
        "refuse connections to localhost:9092, and ignore PENSTOCK_BROKERS from outside",
        type="bool",
        default=True,
    )


def pytest_configure(config: pytest.Config) -> None:
    """No test may reach a real broker by accident, through a default or the environment."""
    if config.getini(GUARD_OPTION):
        os.environ[GUARD] = "1"
        os.environ.pop(BROKERS, None)


@pytest.fixture(name="penstock")
def penstock_broker(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Broker]":
    """Real broker in this process, with a clock to advance; new for every test.

    Clients and workers that name no broker connect to it.
    """
    from penstock.testing.broker import Broker

    with Broker() as broker:
        monkeypatch.setenv(BROKERS, broker.bootstrap)
        yield broker
