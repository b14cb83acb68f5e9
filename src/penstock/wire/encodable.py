"""Check that a message that did not come over the wire could have come that way.

Requests over HTTP reach Kafka's handlers in process, so they have not been read as bytes: a name of
40,000 characters or an offset of 2^64 would be taken, kept, and then be in no answer to any client.
So they are written and read again once, as a client and a broker would.
"""

import struct
from typing import Any, Final

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.wire.codec import reader, writer

INT64_MAX: Final = 2**63 - 1
STRING_BYTES_MAX: Final = 32767
WHY: Final = (
    "something in this request is larger than Kafka's protocol can carry: names and other texts "
    f"have at most {STRING_BYTES_MAX} bytes, partitions are below 2^31, offsets and times below "
    "2^63"
)


def check_speakable(message: Any, version: int) -> None:
    """Raises Refused (INVALID_REQUEST) for what no client could have sent."""
    declared, parts = type(message), list[Any]()
    try:
        writer(declared, version)(message, parts)
        raw = memoryview(b"".join(parts))
        reader(declared, version)(raw, 0, len(raw))
    except (PeerError, struct.error, OverflowError, AssertionError):
        raise Refused(ErrorCode.INVALID_REQUEST, WHY) from None
