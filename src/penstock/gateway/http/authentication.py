"""HTTP authentication by password (Basic) or token (Bearer), of the same users as Kafka's.

Credentials are optional: a client without any is `User:ANONYMOUS`, and permissions decide. Wrong
credentials are always refused. `Users` caches verified passwords, since every request brings one;
if too many clients wait for a password check, some are told to retry.

`sqs.endpoint` checks the signatures of AWS SDKs.
"""

import asyncio
import base64
from collections.abc import Callable
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import Context
from penstock.gateway.http.problems import PRINCIPAL, problem
from penstock.gateway.http.request_io import peer_of
from penstock.security.login import FAILED, AuthenticatedIdentity, LoginFailed

HEADER_BYTES_MAX = 16 * 1024


class Users(Protocol):
    """Verifies credentials."""

    async def verify(self, name: str, password: str, peer: str) -> bool:
        """True if the password is right; raises Refused if too many checks wait. `peer`: the
        client's address."""
        ...

    async def verify_token(self, token: str) -> AuthenticatedIdentity:
        """Returns the token's identity; raises LoginFailed."""
        ...


class Authentication:
    """Middleware that sets a request's principal."""

    def __init__(
        self,
        app: ASGIApp,
        users: Users,
        ctx: Context,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """`on_failure` gets the client's address after a failed login."""
        self._ctx = ctx
        self._on_failure = on_failure
        self._app = app
        self._users = users

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = Headers(scope=scope).get("authorization", "") if scope["type"] == "http" else ""
        scheme, _, rest = header.partition(" ")
        if scheme.lower() in ("basic", "bearer"):
            try:
                scope[PRINCIPAL] = await self._principal(
                    scheme.lower(), rest.strip(), peer_of(scope)
                )
            except LoginFailed as failed:
                if self._on_failure is not None:
                    self._on_failure(peer_of(scope))
                await note_failure(self._ctx, scope, failed)
                refused = Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED)
                await problem(refused)(scope, receive, send)
                return
            except Refused as refused:
                await problem(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _principal(self, scheme: str, given: str, peer: str) -> str:
        if len(given) > HEADER_BYTES_MAX:
            raise LoginFailed("too long")
        if scheme == "bearer":
            return (await self._users.verify_token(given)).principal
        name, password = _parts(given)
        if not await self._users.verify(name, password, peer):
            raise LoginFailed(f"wrong user or password for {name!r}")
        return f"User:{name}"


async def note_failure(ctx: Context, scope: Scope, why: object) -> None:
    """Logs a failed login, and delays its response."""
    ctx.security.failed_logins.note(peer_of(scope), why)
    await asyncio.sleep(ctx.configs.integer("connection.failed.authentication.delay.ms") / 1000)


def _parts(given: str) -> tuple[str, str]:
    try:
        name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError as error:
        raise LoginFailed("not Basic") from error
    if not name or not colon:
        raise LoginFailed("not Basic")
    return name, password
