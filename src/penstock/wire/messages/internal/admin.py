"""Administrative calls between Penstock's nodes and tools; ApiVersions does not list them.

A broker that is not Penstock does not have them.

- AskRegistry (30010) goes to the leader of the schema registry's topic, with a call that only the
  leader can answer. `penstock.state.registry.requests` defines the calls.
- AppendAudit (30032) goes to the leader of the topic `__audit`.
- DescribeKeys (30030) and RotateKeys (30031), encryption at rest, go to every node: each has its
  own disk, with its own keys. DescribeKeysResponse > KekUse.
- CreateAccessKey (30040), DescribeAccessKeys (30041) and DeleteAccessKey (30042): AWS SDKs sign
  with such a key; only the response that creates it contains the secret.
  DescribeAccessKeysResponse > AccessKeyInfo.
"""

from collections.abc import Sequence

from penstock.wire.schema import (
    array,
    boolean,
    bytes_,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@message(key=30040, versions=(0, 0), flexible=0)
class CreateAccessKeyRequest:
    """Creates an access key for a user."""

    user: str = string()


@message(key=30040, versions=(0, 0), flexible=0)
class CreateAccessKeyResponse:
    """New key with its secret."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    access_key: str = string(default="")
    secret: str = string(default="")


@message(key=30041, versions=(0, 0), flexible=0)
class DescribeAccessKeysRequest:
    """Requests the keys of one user, or of all users."""

    user: str | None = string(nullable=True, default=None)


@struct()
class AccessKeyInfo:
    """Key without its secret."""

    user: str = string()
    access_key: str = string()
    created_ms: int = int64()


@message(key=30041, versions=(0, 0), flexible=0)
class DescribeAccessKeysResponse:
    """Access keys and their users."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    keys: Sequence[AccessKeyInfo] = array(AccessKeyInfo, default=())


@message(key=30042, versions=(0, 0), flexible=0)
class DeleteAccessKeyRequest:
    """Deletes a key."""

    access_key: str = string()


@message(key=30042, versions=(0, 0), flexible=0)
class DeleteAccessKeyResponse:
    """Result of the deletion; an error if the key does not exist."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


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


@message(key=30032, versions=(0, 0), flexible=0)
class AppendAuditRequest:
    """Appends one batch of audit entries."""

    batch: bytes = bytes_()


@message(key=30032, versions=(0, 0), flexible=0)
class AppendAuditResponse:
    """Result, sent once the batch is committed."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)


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
