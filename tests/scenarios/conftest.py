"""Scenarios play against real processes, so each may have a second chance (`second_chance`)."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("processes")
