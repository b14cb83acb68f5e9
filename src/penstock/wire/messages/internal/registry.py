"""What Penstock's nodes ask each other about schemas; clients are not told of this.

AskRegistry (30010) goes to the node that leads the registry's topic, with a call that it alone can
answer. What calls there are is `penstock.state.registry.requests`' business.
"""

from penstock.wire.schema import bytes_, int16, int32, message, string


@message(key=30010, versions=(0, 0), flexible=0)
class AskRegistryRequest:
    """One call."""

    call: bytes = bytes_()


@message(key=30010, versions=(0, 0), flexible=0)
class AskRegistryResponse:
    """What was answered, as JSON; or why nothing was, with the registry's number if it has one."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    number: int = int32(default=0)
    answer: bytes = bytes_(default=b"")
