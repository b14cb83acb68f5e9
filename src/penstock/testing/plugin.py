"""The pytest plugin that comes with the package: fixture `penstock`, a broker for each test.

Found by itself through the entry point `pytest11`. Costs nothing until a test asks for it: what a
broker needs is imported then.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import Broker


@pytest.fixture(name="penstock")
def penstock_broker() -> "Iterator[Broker]":
    """A real broker in this process, with a clock to move on; new for every test."""
    from penstock.testing.broker import Broker

    with Broker() as broker:
        yield broker
