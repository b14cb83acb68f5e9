"""Authentication: SaslHandshake (17), SaslAuthenticate (36), and SCRAM credentials (50, 51).

SaslAuthenticate v1 bounds the session (KIP-368). Credentials are KIP-554.
"""

from collections.abc import Sequence

from penstock.wire.schema import array, bytes_, int8, int16, int32, int64, message, string, struct


@message(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeRequest:
    """Chooses a SASL mechanism."""

    mechanism: str = string()


@message(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeResponse:
    """Error if the mechanism is unsupported, and the list of mechanisms."""

    error_code: int = int16()
    mechanisms: Sequence[str] = array(string, default=())


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest:
    """One step of the SASL exchange, from the client."""

    auth_bytes: bytes = bytes_()


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    """One step of the SASL exchange, from the broker."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64(since=1, default=0)


@struct()
class UserName:
    """Requested user."""

    name: str = string()


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest:
    """Requests the SCRAM credentials of users; null means all."""

    users: Sequence[UserName] | None = array(UserName, nullable=True)


@struct()
class CredentialInfo:
    """Mechanism and iterations of a credential, never its secret."""

    mechanism: int = int8()
    iterations: int = int32()


@struct()
class DescribeUserScramCredentialsResult:
    """Credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    credential_infos: Sequence[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    """SCRAM credentials of users."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    results: Sequence[DescribeUserScramCredentialsResult] = array(
        DescribeUserScramCredentialsResult
    )


@struct()
class ScramCredentialDeletion:
    """Credential to delete."""

    name: str = string()
    mechanism: int = int8()


@struct()
class ScramCredentialUpsertion:
    """Credential to set; the password is sent salted and hashed."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest:
    """Sets and deletes SCRAM credentials."""

    deletions: Sequence[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: Sequence[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct()
class AlterUserScramCredentialsResult:
    """Result of changing one user's credentials."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    """Results of the changes."""

    throttle_time_ms: int = int32(default=0)
    results: Sequence[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
