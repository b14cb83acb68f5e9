"""Check that an in-process request can be encoded in Kafka's protocol.

HTTP requests reach Kafka's handlers in process, so they were never decoded from bytes. A name of
40,000 characters or an offset of 2^64 would be accepted and stored, and then fit no response to any
client. So they are encoded and decoded once, as a client and a broker would do it.
"""

import struct
from typing import Any, Final

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.wire.codec import reader, writer

INT64_MAX: Final = 2**63 - 1
STRING_BYTES_MAX: Final = 32767
WHY: Final = (
    "a value in this request is too large for Kafka's protocol: names and other texts have at "
    f"most {STRING_BYTES_MAX} bytes, partitions are below 2^31, offsets and times below 2^63"
)


def check_speakable(message: Any, version: int) -> None:
    """Raises Refused (INVALID_REQUEST) for a message that no client could have sent."""
    declared, parts = type(message), list[Any]()
    try:
        writer(declared, version)(message, parts)
        raw = memoryview(b"".join(parts))
        reader(declared, version)(raw, 0, len(raw))
    except (PeerError, struct.error, OverflowError, AssertionError):
        raise Refused(ErrorCode.INVALID_REQUEST, WHY) from None
