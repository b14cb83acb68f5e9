"""Who asks over HTTP: a user with a password (Basic) or a token (Bearer), the same as Kafka's.

Nobody has to say who they are: who does not is `User:ANONYMOUS`, and the rights decide. What
somebody does say has to be true. A password takes milliseconds to check, on purpose, so that it
was right is remembered for `REMEMBERED_SECONDS`, as long as no user changes.

Signatures of AWS SDKs are not looked at here (`sqs.entry`). Bounds: `REMEMBERED_MAX` answers.
"""

import asyncio
import base64
import hashlib
from collections.abc import Callable
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.api.context import Context
from penstock.base.errors import ErrorCode, Refused
from penstock.http.exchange import peer_of
from penstock.http.problems import PRINCIPAL, problem
from penstock.security.login import FAILED, Identity, LoginFailed

REMEMBERED_SECONDS = 60.0
REMEMBERED_MAX = 1_000
HEADER_BYTES_MAX = 16 * 1024


class Users(Protocol):
    """Those who may come in."""

    async def verify(self, name: str, password: str) -> bool: ...

    async def verify_token(self, token: str) -> Identity:
        """Raises LoginFailed."""
        ...


class Authentication:
    """Wraps an application."""

    def __init__(
        self,
        app: ASGIApp,
        users: Users,
        generation: Callable[[], object],
        pepper: bytes,
        ctx: Context,
        tell_stranger: Callable[[str], None] | None = None,
    ) -> None:
        """`generation` answers with another object when a user has changed; `pepper` is random.
        `tell_stranger` is told from where somebody came whose word was not true."""
        self._ctx = ctx
        self._tell_stranger = tell_stranger
        self._app = app
        self._users = users
        self._generation = generation
        self._pepper = pepper
        self._known: dict[bytes, tuple[str, float]] = {}
        self._known_at: object = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = Headers(scope=scope).get("authorization", "") if scope["type"] == "http" else ""
        scheme, _, rest = header.partition(" ")
        if scheme.lower() in ("basic", "bearer"):
            try:
                scope[PRINCIPAL] = await self._principal(scheme.lower(), rest.strip())
            except LoginFailed as failed:
                if self._tell_stranger is not None:
                    self._tell_stranger(peer_of(scope))
                await note_failure(self._ctx, scope, failed)
                refused = Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED)
                await problem(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _principal(self, scheme: str, given: str) -> str:
        if len(given) > HEADER_BYTES_MAX:
            raise LoginFailed("too long")
        if scheme == "bearer":
            return (await self._users.verify_token(given)).principal
        now = asyncio.get_running_loop().time()
        if self._known_at is not self._generation():
            self._known_at = self._generation()
            self._known.clear()
        key = hashlib.blake2b(given.encode(), key=self._pepper, digest_size=32).digest()
        principal, until = self._known.get(key, ("", 0.0))
        if now < until:
            return principal
        name, password = _parts(given)
        if not await self._users.verify(name, password):
            raise LoginFailed(f"wrong user or password for {name!r}")
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        principal = f"User:{name}"
        self._known[key] = principal, now + REMEMBERED_SECONDS
        return principal


async def note_failure(ctx: Context, scope: Scope, why: object) -> None:
    """A login that failed is told to our log, and answered a little later."""
    ctx.failed_logins.note(peer_of(scope), why)
    await asyncio.sleep(ctx.configs.integer("connection.failed.authentication.delay.ms") / 1000)


def _parts(given: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError as error:
        raise LoginFailed("not Basic") from error
    if not name or not colon:
        raise LoginFailed("not Basic")
    return name, password
