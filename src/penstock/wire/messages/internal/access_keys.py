"""Access keys of users: Penstock's own, for its tools.

CreateAccessKey (30040), DescribeAccessKeys (30041) and DeleteAccessKey (30042). SDKs of Amazon sign
with such a key; the secret is told once, in the answer that makes it.

What holds what:

- DescribeAccessKeysResponse > AccessKeyInfo
"""

from collections.abc import Sequence

from penstock.wire.schema import array, int16, int64, message, string, struct


@message(key=30040, versions=(0, 0), flexible=0)
class CreateAccessKeyRequest:
    """Makes a key for a user."""

    user: str = string()


@message(key=30040, versions=(0, 0), flexible=0)
class CreateAccessKeyResponse:
    """The new key, with its secret."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    access_key: str = string(default="")
    secret: str = string(default="")


@message(key=30041, versions=(0, 0), flexible=0)
class DescribeAccessKeysRequest:
    """Asks for the keys of a user, or of all."""

    user: str | None = string(nullable=True, default=None)


@struct()
class AccessKeyInfo:
    """A key; never its secret."""

    user: str = string()
    access_key: str = string()
    created_ms: int = int64()


@message(key=30041, versions=(0, 0), flexible=0)
class DescribeAccessKeysResponse:
    """Whose keys there are."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    keys: Sequence[AccessKeyInfo] = array(AccessKeyInfo, default=())


@message(key=30042, versions=(0, 0), flexible=0)
class DeleteAccessKeyRequest:
    """Ends a key."""

    access_key: str = string()


@message(key=30042, versions=(0, 0), flexible=0)
class DeleteAccessKeyResponse:
    """Whether it was there."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
