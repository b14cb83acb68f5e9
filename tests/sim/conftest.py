"""Fixtures of simulated runs."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Turns logging off: nodes that are killed and cut off log far too much."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
