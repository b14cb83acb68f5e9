"""Access keys of users (internal: for Penstock's tools).

CreateAccessKey (30040), DescribeAccessKeys (30041) and DeleteAccessKey (30042). AWS SDKs sign with
such a key; only the response that creates it contains the secret.

Nesting:

- DescribeAccessKeysResponse > AccessKeyInfo
"""

from collections.abc import Sequence

from penstock.wire.schema import array, int16, int64, message, string, struct


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
