"""Pytest plugin of the package: fixture `penstock`, a broker for each test.

Found through the entry point `pytest11`. Costs nothing until a test uses it: the broker's modules
are imported then.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker


@pytest.fixture(name="penstock")
def penstock_broker() -> "Iterator[Broker]":
    """Real broker in this process, with a clock to advance; new for every test."""
    from penstock.testing.broker import Broker

    with Broker() as broker:
        yield broker
