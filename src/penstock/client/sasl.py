"""Saying who we are: SaslHandshake and SaslAuthenticate, as a function that `connect` calls.

PLAIN sends the password as it is, so it belongs on TLS; SCRAM proves that both sides know it;
OAUTHBEARER sends a token that somebody else vouches for.
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
    """Who we are; a token for OAUTHBEARER, else a user and a password."""

    mechanism: str
    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.user!r}, ...)"


def authenticator(credentials: Credentials, random: Random) -> Authenticate:
    """What `connect` calls on a new connection; it raises Refused, saying what to do."""
    if credentials.mechanism not in (PLAIN, OAUTHBEARER, *MECHANISMS):
        known = ", ".join((PLAIN, *MECHANISMS, OAUTHBEARER))
        raise Refused(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"there is no SASL mechanism {credentials.mechanism!r}; take one of {known}",
        )

    async def authenticate(connection: Connection) -> None:
        await _choose(connection, credentials.mechanism)
        if credentials.mechanism == PLAIN:
            await _say(connection, f"\0{credentials.user}\0{credentials.password}".encode())
        elif credentials.mechanism == OAUTHBEARER:
            text = f"n,,\x01auth=Bearer {credentials.token}\x01\x01"
            await _say(connection, text.encode())
        else:
            await _prove(connection, credentials, random)

    return authenticate


async def _choose(connection: Connection, mechanism: str) -> None:
    request = SaslHandshakeRequest(mechanism=mechanism)
    answer = await connection.call(request, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise Refused(
            ErrorCode.ILLEGAL_SASL_STATE,
            f"{connection.address} does not ask who we are: leave the user out, or take the "
            "address of its SASL listener",
        )
    if answer.error_code:
        raise Refused(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"{connection.address} does not take {mechanism}; "
            f"it takes {', '.join(answer.mechanisms) or 'none'}",
        )


async def _say(connection: Connection, message: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=message)
    answer = await connection.call(request, SaslAuthenticateResponse)
    if answer.error_code:
        raise Refused(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"{connection.address} does not let us in: {answer.error_message}",
        )
    connection.session_lifetime_ms = answer.session_lifetime_ms
    return bytes(answer.auth_bytes)


async def _prove(connection: Connection, credentials: Credentials, random: Random) -> None:
    nonce = base64.b64encode(random.random_bytes(NONCE_BYTES)).decode()
    exchange = ClientExchange(credentials.mechanism, credentials.user, credentials.password, nonce)
    try:
        challenge = await _say(connection, exchange.first())
        exchange.verify(await _say(connection, exchange.final(challenge)))
    except ScramFailed as failed:
        raise Refused(
            ErrorCode.SASL_AUTHENTICATION_FAILED, f"{connection.address}: {failed}"
        ) from failed
