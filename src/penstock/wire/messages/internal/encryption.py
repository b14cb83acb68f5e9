"""Encryption at rest (internal: for Penstock's tools).

DescribeKeys (30030) and RotateKeys (30031) go to every node: each has its own disk, with
its own keys. ApiVersions does not list them: a broker that is not Penstock does not have them.

Nesting:

- DescribeKeysRequest
- DescribeKeysResponse > KekUse
- RotateKeysRequest
- RotateKeysResponse
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int16, int32, message, string, struct


@message(key=30030, versions=(0, 0), flexible=0)
class DescribeKeysRequest:
    """Requests the key-encryption keys of a node, with their numbers of logs."""


@struct()
class KekUse:
    """Id of a key-encryption key, never the key itself, and the number of logs that use it."""

    id: str = string()
    is_current: bool = boolean()
    logs: int = int32()


@message(key=30030, versions=(0, 0), flexible=0)
class DescribeKeysResponse:
    """Key-encryption keys, the current one first; without any this node cannot encrypt."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    keys: Sequence[KekUse] = array(KekUse, default=())
    plain_logs: int = int32(default=0)


@message(key=30031, versions=(0, 0), flexible=0)
class RotateKeysRequest:
    """Rewraps up to a number of logs with the current key; on request reloads the keys first."""

    reload: bool = boolean(default=False)
    logs_max: int = int32(default=100)


@message(key=30031, versions=(0, 0), flexible=0)
class RotateKeysResponse:
    """Numbers of logs that were rewrapped, and that remain."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    key_id: str = string(default="")
    rewrapped: int = int32(default=0)
    remaining: int = int32(default=0)
