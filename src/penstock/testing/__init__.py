"""The real broker inside a test with a clock that the test advances; and messages without one.

See `broker.Broker`, the fixture `penstock` in `plugin`, and `messages.build_message`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.broker import Broker
    from penstock.testing.clock import VirtualClock
    from penstock.testing.messages import BuiltMessage, build_message

__all__ = ["Broker", "BuiltMessage", "VirtualClock", "build_message"]

_HOMES = {
    "Broker": "broker",
    "BuiltMessage": "messages",
    "VirtualClock": "clock",
    "build_message": "messages",
}


def __getattr__(name: str) -> object:
    """Imports a name when it is asked for: every run of pytest imports this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"penstock.testing.{_HOMES[name]}"), name)
