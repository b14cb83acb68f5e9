"""Fixtures that every test of `penstock.log` may ask for."""

from tests.unit.log.building import in_both_modes

__all__ = ["in_both_modes"]
