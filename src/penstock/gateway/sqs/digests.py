"""MD5 digests of messages, which SDKs recompute to detect changes in transit.

The digest of attributes covers, in order of names, for each: name, type, one byte for the kind of
value (1: text, 2: bytes), and value. A length of four bytes precedes name, type and value.
"""

from collections.abc import Mapping
from hashlib import md5

import msgspec

TEXT = b"\x01"
BINARY = b"\x02"


class AttributeValue(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """Message attribute; `data_type` is String, Number or Binary, optionally with `.anything`."""

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None

    @property
    def content(self) -> bytes:
        if self.string_value is not None:
            return self.string_value.encode()
        return self.binary_value or b""


def digest_body(body: str) -> str:
    return md5(body.encode(), usedforsecurity=False).hexdigest()


def digest_attributes(attributes: Mapping[str, AttributeValue]) -> str:
    digest = md5(usedforsecurity=False)
    for name, value in sorted(attributes.items()):
        digest.update(_sized(name.encode()))
        digest.update(_sized(value.data_type.encode()))
        digest.update(TEXT if value.string_value is not None else BINARY)
        digest.update(_sized(value.content))
    return digest.hexdigest()


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content
