"""SASL authentication of a client: SaslHandshake and SaslAuthenticate, called by `connect`.

PLAIN sends the password itself and needs TLS. SCRAM proves that both sides know the password.
OAUTHBEARER sends a token that an identity provider issued.
"""

import base64
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random
from penstock.client.connection import Authenticate, Connection
from penstock.security.scram import MECHANISMS, ClientExchange, ScramFailed
from penstock.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

NONCE_BYTES = 24
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a client: a token for OAUTHBEARER, otherwise a user and a password."""

    mechanism: str
    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.user!r}, ...)"


def authenticator(credentials: Credentials, random: Random) -> Authenticate:
    """Returns the function that `connect` calls on a new connection. Raises Refused."""
    if credentials.mechanism not in (PLAIN, OAUTHBEARER, *MECHANISMS):
        known = ", ".join((PLAIN, *MECHANISMS, OAUTHBEARER))
        raise Refused(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"unknown SASL mechanism {credentials.mechanism!r}: use one of {known}",
        )

    async def authenticate(connection: Connection) -> None:
        await _select_mechanism(connection, credentials.mechanism)
        if credentials.mechanism == PLAIN:
            await _authenticate_with(
                connection, f"\0{credentials.user}\0{credentials.password}".encode()
            )
        elif credentials.mechanism == OAUTHBEARER:
            text = f"n,,\x01auth=Bearer {credentials.token}\x01\x01"
            await _authenticate_with(connection, text.encode())
        else:
            await _authenticate_scram(connection, credentials, random)

    return authenticate


async def _select_mechanism(connection: Connection, mechanism: str) -> None:
    request = SaslHandshakeRequest(mechanism=mechanism)
    answer = await connection.call(request, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise Refused(
            ErrorCode.ILLEGAL_SASL_STATE,
            f"{connection.address} does not use SASL: remove the user, or use the address of "
            "its SASL listener",
        )
    if answer.error_code:
        raise Refused(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"{connection.address} does not accept {mechanism}: use one of "
            f"{', '.join(answer.mechanisms) or 'none'}",
        )


async def _authenticate_with(connection: Connection, message: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=message)
    answer = await connection.call(request, SaslAuthenticateResponse)
    if answer.error_code:
        raise Refused(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"{connection.address} refused the credentials: {answer.error_message}",
        )
    connection.session_lifetime_ms = answer.session_lifetime_ms
    return bytes(answer.auth_bytes)


async def _authenticate_scram(
    connection: Connection, credentials: Credentials, random: Random
) -> None:
    nonce = base64.b64encode(random.random_bytes(NONCE_BYTES)).decode()
    exchange = ClientExchange(credentials.mechanism, credentials.user, credentials.password, nonce)
    try:
        challenge = await _authenticate_with(connection, exchange.first())
        exchange.verify(await _authenticate_with(connection, exchange.final(challenge)))
    except ScramFailed as failed:
        raise Refused(
            ErrorCode.SASL_AUTHENTICATION_FAILED, f"{connection.address}: {failed}"
        ) from failed
