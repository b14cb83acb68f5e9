"""Receipts: tokens with which a receiver settles a message.

A receipt is opaque text for URLs and JSON. It holds everything needed to find the lease, so this
node keeps no state for it, and any node can settle it. A checksum that includes the cluster's id
tells a receipt from other text, and from receipts of other clusters. A receipt is not a secret:
permissions are checked when it is used, and the leader refuses a lease that has ended.
"""

import binascii
import struct
from base64 import urlsafe_b64encode
from typing import NamedTuple
from zlib import crc32

from penstock.base.errors import ErrorCode, Refused
from penstock.state.queues.state_shard import QueueKey

_HEAD = struct.Struct(">BI16siq12s")
RECEIPT_VERSION = 1
MEMBER_BYTES = 8
RECEIPT_CHARS_MAX = 2048


class Receipt(NamedTuple):
    """Lease of one record."""

    key: QueueKey
    member: str
    offset: int


class Receipts:
    """Writes and reads the receipts of one cluster."""

    def __init__(self, cluster_id: str) -> None:
        self._seed = crc32(cluster_id.encode())

    def write(self, key: QueueKey, member: str, offset: int) -> str:
        group = key.group.encode()
        body = (
            _HEAD.pack(RECEIPT_VERSION, 0, key.topic_id, key.partition, offset, member.encode())
            + group
        )
        check = crc32(body, self._seed)
        return urlsafe_b64encode(body[:1] + check.to_bytes(4, "big") + body[5:]).decode()

    def read(self, text: str) -> Receipt:
        """Decodes a receipt; raises Refused (INVALID_REQUEST) if it is not one of this cluster."""
        try:
            if len(text) > RECEIPT_CHARS_MAX:
                raise ValueError
            plain = text.replace("-", "+").replace("_", "/")
            data = binascii.a2b_base64(plain, strict_mode=True)
            version, check, topic_id, partition, offset, member = _HEAD.unpack_from(data)
            body = data[:1] + bytes(4) + data[5:]
            if version != RECEIPT_VERSION or crc32(body, self._seed) != check:
                raise ValueError
            group = data[_HEAD.size :].decode()
            return Receipt(QueueKey(group, topic_id, partition), member.decode(), offset)
        except (ValueError, binascii.Error, struct.error):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{text[:40]!r} is not a receipt of this cluster: send the message's receipt "
                "unchanged",
            ) from None


def new_member(random_bytes: bytes) -> str:
    """Member id for one receive call, from `MEMBER_BYTES` random bytes: 12 characters."""
    return urlsafe_b64encode(random_bytes).decode()
