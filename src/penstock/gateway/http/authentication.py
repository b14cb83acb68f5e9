"""Who asks over HTTP: a user with a password (Basic) or a token (Bearer), the same as Kafka's.

Nobody has to say who they are: who does not is `User:ANONYMOUS`, and the rights decide. What
somebody does say has to be true. That a password was right is remembered below (`Users`), since
every request has it; where too many ask for theirs to be looked at, some are told to try again.

Signatures of AWS SDKs are not looked at here (`sqs.entry`).
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
    """Those who may come in."""

    async def verify(self, name: str, password: str, peer: str) -> bool:
        """Asked from the address `peer`; raises Refused when too many ask."""
        ...

    async def verify_token(self, token: str) -> AuthenticatedIdentity:
        """Raises LoginFailed."""
        ...


class Authentication:
    """Wraps an application."""

    def __init__(
        self,
        app: ASGIApp,
        users: Users,
        ctx: Context,
        tell_stranger: Callable[[str], None] | None = None,
    ) -> None:
        """`tell_stranger` is told from where somebody came whose word was not true."""
        self._ctx = ctx
        self._tell_stranger = tell_stranger
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
                if self._tell_stranger is not None:
                    self._tell_stranger(peer_of(scope))
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
    """A login that failed is told to our log, and answered a little later."""
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
