"""Receipts: what whoever received a message shows to say what became of it.

Opaque text for URLs and JSON, and everything that is needed to find the lease again: nothing is
kept for it here, and any node can settle it. A checksum that includes the cluster's id tells a
receipt from other text, and from those of another cluster. It is no secret: rights are checked when
it is used, and a lease that has ended is refused where it was given.
"""

import binascii
import struct
from base64 import urlsafe_b64encode
from typing import NamedTuple
from zlib import crc32

from penstock.base.errors import ErrorCode, Refused
from penstock.state.queues.state_shard import QueueKey

_HEAD = struct.Struct(">BI16siq12s")
VERSION = 1
MEMBER_BYTES = 8
CHARS_MAX = 2048


class Receipt(NamedTuple):
    """The lease of one record."""

    key: QueueKey
    member: str
    offset: int


class Receipts:
    """Writes and reads the receipts of one cluster."""

    def __init__(self, cluster_id: str) -> None:
        self._seed = crc32(cluster_id.encode())

    def write(self, key: QueueKey, member: str, offset: int) -> str:
        group = key.group.encode()
        body = _HEAD.pack(VERSION, 0, key.topic_id, key.partition, offset, member.encode()) + group
        check = crc32(body, self._seed)
        return urlsafe_b64encode(body[:1] + check.to_bytes(4, "big") + body[5:]).decode()

    def read(self, text: str) -> Receipt:
        """Refuses (INVALID_REQUEST) what is no receipt of this cluster."""
        try:
            if len(text) > CHARS_MAX:
                raise ValueError
            plain = text.replace("-", "+").replace("_", "/")
            data = binascii.a2b_base64(plain, strict_mode=True)
            version, check, topic_id, partition, offset, member = _HEAD.unpack_from(data)
            body = data[:1] + bytes(4) + data[5:]
            if version != VERSION or crc32(body, self._seed) != check:
                raise ValueError
            group = data[_HEAD.size :].decode()
            return Receipt(QueueKey(group, topic_id, partition), member.decode(), offset)
        except (ValueError, binascii.Error, struct.error):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{text[:40]!r} is no receipt of this cluster: use the one that came with the "
                "message, whole and unchanged",
            ) from None


def new_member(chance: bytes) -> str:
    """A name for one act of receiving, of `MEMBER_BYTES` of chance: twelve characters."""
    return urlsafe_b64encode(chance).decode()
