"""Encryption at rest: Penstock's own, for its tools.

DescribeKeys (30030) and RotateKeys (30031) go to every node: each has its own disk, and its own
keys for it. ApiVersions does not name them: a broker that is not Penstock would not know them.

What holds what:

- DescribeKeysRequest
- DescribeKeysResponse > KekUse
- RotateKeysRequest
- RotateKeysResponse
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int16, int32, message, string, struct


@message(key=30030, versions=(0, 0), flexible=0)
class DescribeKeysRequest:
    """Asks a node which key-encryption keys it has, and what lies under them."""


@struct()
class KekUse:
    """A key-encryption key by its id, never by itself: how many logs lie under it."""

    id: str = string()
    is_current: bool = boolean()
    logs: int = int32()


@message(key=30030, versions=(0, 0), flexible=0)
class DescribeKeysResponse:
    """The keys, the one in use first. No key at all: this node cannot encrypt."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    keys: Sequence[KekUse] = array(KekUse, default=())
    plain_logs: int = int32(default=0)


@message(key=30031, versions=(0, 0), flexible=0)
class RotateKeysRequest:
    """Puts logs under the key in use, at most so many; first reads the keys anew, if told to."""

    reload: bool = boolean(default=False)
    logs_max: int = int32(default=100)


@message(key=30031, versions=(0, 0), flexible=0)
class RotateKeysResponse:
    """How many were put under it, and how many are left."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    key_id: str = string(default="")
    rewrapped: int = int32(default=0)
    remaining: int = int32(default=0)
