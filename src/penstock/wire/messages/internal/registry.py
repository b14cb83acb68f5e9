"""Schema registry calls between Penstock's nodes; not listed for clients.

AskRegistry (30010) goes to the leader of the registry's topic, with a call that only the leader can
answer. `penstock.state.registry.requests` defines the calls.
"""

from penstock.wire.schema import bytes_, int16, int32, message, string


@message(key=30010, versions=(0, 0), flexible=0)
class AskRegistryRequest:
    """Forwards one call."""

    call: bytes = bytes_()


@message(key=30010, versions=(0, 0), flexible=0)
class AskRegistryResponse:
    """Result as JSON; or an error, with the registry's error code if it has one."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    number: int = int32(default=0)
    answer: bytes = bytes_(default=b"")
