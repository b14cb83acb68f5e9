"""How a connection says who it is: SaslHandshake chooses a mechanism, SaslAuthenticate uses it.

Pure but for what is looked up and hashed, which comes in as functions. A connection has one login;
it may be gone through again later, as the same user, before its session ends (KIP-368).
What went wrong is told to our log; the peer hears the same words whatever it was.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.security.scram import MESSAGE_BYTES_MAX, ScramFailed, ServerExchange

FAILED = "Authentication failed: wrong user, password or token."
"""All that a peer hears."""
TOKEN_BYTES_MAX = 64 * 1024


class LoginFailed(Exception):
    """Not who they say they are; the text is for our log."""


@dataclass(frozen=True, slots=True)
class AuthenticatedIdentity:
    """Who somebody has proved to be."""

    principal: str
    expires_ms: int | None = None
    """When the proof ends by itself, as a token does."""


@dataclass(frozen=True, slots=True)
class LoginStep:
    """An answer to one message; with an identity, the last one."""

    reply: bytes
    identity: AuthenticatedIdentity | None = None


class Exchange(Protocol):
    """One mechanism, once."""

    async def step(self, message: bytes, peer: str) -> LoginStep:
        """Raises LoginFailed or ScramFailed, or Refused when too many try; `peer` is from where
        the message comes."""
        ...


Verify = Callable[[str, str, str], Awaitable[bool]]
"""Whether a user has a password, asked from an address."""
VerifyToken = Callable[[str], Awaitable[AuthenticatedIdentity]]
"""Whom a token is about; raises LoginFailed."""


class PlainExchange:
    """PLAIN (RFC 4616): authorization id, name and password, with zeros between them."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    async def step(self, message: bytes, peer: str) -> LoginStep:
        if len(message) > MESSAGE_BYTES_MAX:
            raise LoginFailed(f"a message of {len(message)} bytes")
        try:
            authorization, name, password = message.decode().split("\0")
        except ValueError as error:
            raise LoginFailed("not a message of PLAIN") from error
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
    """OAUTHBEARER (RFC 7628): a token, and a last word if it is refused."""

    def __init__(self, verify: VerifyToken) -> None:
        self._verify = verify

    async def step(self, message: bytes, peer: str) -> LoginStep:
        if len(message) > TOKEN_BYTES_MAX:
            raise LoginFailed(f"a message of {len(message)} bytes")
        try:
            text = message.decode("ascii")
        except UnicodeDecodeError as error:
            raise LoginFailed("a message is not text") from error
        header, *fields = text.split("\x01")
        found = [field for field in fields if field.lower().startswith("auth=bearer ")]
        if not header.startswith(("n,", "y,")) or len(found) != 1:
            raise LoginFailed("not a message of OAUTHBEARER")
        return LoginStep(b"", await self._verify(found[0][len("auth=bearer ") :].strip()))


class Login:
    """One connection's way to a principal."""

    def __init__(
        self, mechanisms: Mapping[str, Callable[[], Exchange]], *, is_optional: bool = False
    ) -> None:
        """`is_optional`: the listener asks nobody; nodes say all the same that they are nodes."""
        self._mechanisms = mechanisms
        self.is_optional = is_optional
        self._exchange: Exchange | None = None
        self.identity: AuthenticatedIdentity | None = None
        self.ends_at = float("inf")
        """By the loop's clock: when it must have been gone through again."""

    @property
    def mechanisms(self) -> list[str]:
        return list(self._mechanisms)

    @property
    def is_done(self) -> bool:
        return self.identity is not None

    @property
    def is_awaited(self) -> bool:
        """Nothing else is answered before it is done."""
        return self.identity is None and not self.is_optional

    def choose(self, mechanism: str) -> None:
        make = self._mechanisms.get(mechanism)
        if make is None:
            raise Refused(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"{mechanism!r} is not enabled here; try {', '.join(self._mechanisms)}",
            )
        self._exchange = make()

    async def step(self, message: bytes, peer: str) -> LoginStep:
        """Goes one step further; raises LoginFailed, or Refused when nothing was chosen, or too
        many try."""
        if self._exchange is None:
            raise Refused(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
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
