"""The real broker inside a test, with a clock that the test moves on. See `broker.Broker`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.broker import Broker
    from penstock.testing.clock import VirtualClock

__all__ = ["Broker", "VirtualClock"]


def __getattr__(name: str) -> object:
    """Imports on first use: every run of pytest that finds the plugin imports this module."""
    if name == "Broker":
        from penstock.testing.broker import Broker

        return Broker
    if name == "VirtualClock":
        from penstock.testing.clock import VirtualClock

        return VirtualClock
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
