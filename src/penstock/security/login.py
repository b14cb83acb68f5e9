"""SASL authentication: SaslHandshake selects a mechanism, SaslAuthenticate executes it.

Pure except for lookups and hashing, which are parameters. A connection has one login; it may
authenticate again, as the same user, before its session ends (KIP-368).

The reason of a failure goes to our log only; the client always gets the same text.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.security.scram import MESSAGE_BYTES_MAX, ScramFailed, ServerExchange

FAILED = "Authentication failed: wrong user, password or token."
"""Text that every client gets, whatever failed."""
TOKEN_BYTES_MAX = 64 * 1024


class LoginFailed(Exception):
    """Failed authentication; the text is for our log."""


@dataclass(frozen=True, slots=True)
class AuthenticatedIdentity:
    """An authenticated principal."""

    principal: str
    expires_ms: int | None = None
    """Time at which the authentication expires, as a token does."""


@dataclass(frozen=True, slots=True)
class LoginStep:
    """Reply to one message; with an identity, the last one."""

    reply: bytes
    identity: AuthenticatedIdentity | None = None


class Exchange(Protocol):
    """One execution of a mechanism."""

    async def step(self, message: bytes, peer: str) -> LoginStep:
        """Handles a message; raises LoginFailed or ScramFailed, or Refused if too many clients
        authenticate. `peer` is the client's address."""
        ...


Verify = Callable[[str, str, str], Awaitable[bool]]
"""Checks a user's password for a client at an address."""
VerifyToken = Callable[[str], Awaitable[AuthenticatedIdentity]]
"""Returns the identity of a token's user; raises LoginFailed."""


class PlainExchange:
    """PLAIN (RFC 4616): authorization id, name and password, separated by NUL bytes."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    async def step(self, message: bytes, peer: str) -> LoginStep:
        if len(message) > MESSAGE_BYTES_MAX:
            raise LoginFailed(f"message of {len(message)} bytes: at most {MESSAGE_BYTES_MAX}")
        try:
            authorization, name, password = message.decode().split("\0")
        except ValueError as error:
            raise LoginFailed(
                "malformed PLAIN message: must be [authzid] NUL user NUL password"
            ) from error
        if authorization not in ("", name):
            raise LoginFailed(f"{name!r} may not act for {authorization!r}")
        if not name or not password or not await self._verify(name, password, peer):
            raise LoginFailed(f"wrong user or password for {name!r}")
        return LoginStep(b"", AuthenticatedIdentity(f"User:{name}"))


class ScramExchange:
    """SCRAM: two messages from the client."""

    def __init__(self, exchange: ServerExchange) -> None:
        self._exchange = exchange
        self._is_begun = False

    async def step(self, message: bytes, peer: str) -> LoginStep:
        if not self._is_begun:
            self._is_begun = True
            return LoginStep(self._exchange.first(message))
        reply = self._exchange.final(message)
        return LoginStep(reply, AuthenticatedIdentity(f"User:{self._exchange.name}"))


class BearerExchange:
    """OAUTHBEARER (RFC 7628): a token, and a final message if it is refused."""

    def __init__(self, verify: VerifyToken) -> None:
        self._verify = verify

    async def step(self, message: bytes, peer: str) -> LoginStep:
        if len(message) > TOKEN_BYTES_MAX:
            raise LoginFailed(f"message of {len(message)} bytes: at most {TOKEN_BYTES_MAX}")
        try:
            text = message.decode("ascii")
        except UnicodeDecodeError as error:
            raise LoginFailed("an OAUTHBEARER message is not ASCII") from error
        header, *fields = text.split("\x01")
        found = [field for field in fields if field.lower().startswith("auth=bearer ")]
        if not header.startswith(("n,", "y,")) or len(found) != 1:
            raise LoginFailed("malformed OAUTHBEARER message (RFC 7628)")
        return LoginStep(b"", await self._verify(found[0][len("auth=bearer ") :].strip()))


class Login:
    """Authentication state of one connection."""

    def __init__(
        self, mechanisms: Mapping[str, Callable[[], Exchange]], *, is_optional: bool = False
    ) -> None:
        """`is_optional`: the listener requires no login, though nodes do log in as nodes."""
        self._mechanisms = mechanisms
        self.is_optional = is_optional
        self._exchange: Exchange | None = None
        self.identity: AuthenticatedIdentity | None = None
        self.ends_at = float("inf")
        """Deadline of the next authentication, by the loop's clock."""

    @property
    def mechanisms(self) -> list[str]:
        return list(self._mechanisms)

    @property
    def is_done(self) -> bool:
        return self.identity is not None

    @property
    def is_awaited(self) -> bool:
        """True while the connection must log in before any other request is answered."""
        return self.identity is None and not self.is_optional

    def choose(self, mechanism: str) -> None:
        make = self._mechanisms.get(mechanism)
        if make is None:
            raise Refused(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"SASL mechanism {mechanism!r} is not enabled: use {', '.join(self._mechanisms)}",
            )
        self._exchange = make()

    async def step(self, message: bytes, peer: str) -> LoginStep:
        """Handles one message; raises LoginFailed, or Refused if no mechanism was chosen or
        too many clients authenticate."""
        if self._exchange is None:
            raise Refused(
                ErrorCode.ILLEGAL_SASL_STATE,
                "SaslAuthenticate without SaslHandshake: send SaslHandshake first",
            )
        try:
            step = await self._exchange.step(message, peer)
        except ScramFailed as failed:
            raise LoginFailed(str(failed)) from failed
        if step.identity is not None:
            self._exchange = None
            before = self.identity
            if before is not None and before.principal != step.identity.principal:
                raise LoginFailed(f"{before.principal} may not become {step.identity.principal}")
            self.identity = step.identity
        return step
