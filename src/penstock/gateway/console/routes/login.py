"""Login, logout, and the session data that every page needs."""

import asyncio

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.middleware import ROOT, SESSION
from penstock.gateway.console.routes.audit import TOPIC as AUDIT_TOPIC
from penstock.gateway.console.sessions import SESSION_SECONDS, ConsoleSession
from penstock.gateway.console.visibility import Visibility, visibility_of
from penstock.gateway.http.authentication import note_failure
from penstock.gateway.http.request_io import (
    json_answer,
    no_content,
    peer_of,
    principal_of,
    read_json,
)
from penstock.security.login import FAILED

NAME_CHARS_MAX = 255
PASSWORD_CHARS_MAX = 1_024
NO_LOGIN = "1"
"""Write token without a login."""


class LoginBody(Struct, forbid_unknown_fields=True):
    name: str
    password: str


class SessionRights(Struct):
    """Operations that the viewer may perform on the cluster."""

    create_topics: bool
    """On at least one name."""
    alter: bool
    """Users, ACLs."""
    alter_configs: bool
    """Quotas."""
    read_audit: bool


class SessionAnswer(Struct):
    principal: str
    is_logged_in: bool
    can_log_in: bool
    """True if there are users who can log in."""
    must_log_in: bool
    """True if authorization is enabled and the viewer is not authenticated."""
    is_read_only: bool
    write_token: str
    version: str
    node_id: int
    cluster_id: str
    kafka: str
    may: SessionRights


async def show_session(console: Console, request: Request) -> Response:
    ctx, about = console.ctx, console.about
    session: ConsoleSession | None = request.scope.get(SESSION)
    guarded = console.users is not None and ctx.authorizer.is_on
    return json_answer(
        SessionAnswer(
            principal_of(request).name,
            session is not None,
            console.users is not None,
            guarded and session is None and "authorization" not in request.headers,
            ctx.configs.flag("console.read.only"),
            NO_LOGIN if session is None else session.write_token,
            about.version,
            ctx.node_id,
            about.cluster_id,
            about.kafka_address,
            _rights(console, visibility_of(ctx, request)),
        )
    )


def _rights(console: Console, visibility: Visibility) -> SessionRights:
    principal = visibility.principal
    return SessionRights(
        visibility.cluster(Operation.CREATE)
        or console.ctx.authorizer.allows_some(
            principal.name, Operation.CREATE, ResourceType.TOPIC, principal.host
        ),
        visibility.cluster(Operation.ALTER),
        visibility.cluster(Operation.ALTER_CONFIGS),
        visibility.topic(AUDIT_TOPIC, Operation.READ),
    )


async def log_in(console: Console, request: Request) -> Response:
    if console.users is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "login is disabled on this node: it has no users")
    body = await read_json(request, LoginBody)
    name, password, peer = body.name, body.password, peer_of(request.scope)
    is_short = len(name) <= NAME_CHARS_MAX and len(password) <= PASSWORD_CHARS_MAX
    if not is_short or not await console.users.verify(name, password, peer):
        why = f"wrong user or password for {name!r}"
        await note_failure(console.ctx, request.scope, why)
        raise Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED)
    session = console.sessions.begin(name, asyncio.get_running_loop().time())
    response = no_content()
    response.set_cookie(
        console.cookie,
        session.token,
        max_age=int(SESSION_SECONDS),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def log_out(console: Console, request: Request) -> Response:
    session: ConsoleSession | None = request.scope.get(SESSION)
    if session is not None:
        console.sessions.end(session.token)
    response = no_content()
    response.delete_cookie(console.cookie, path="/", httponly=True, samesite="strict")
    return response


ROWS = (
    ConsoleRow("GET", "/session", "show the principal and the console's mode", show_session),
    ConsoleRow(
        "POST", "/login", f"log in with name and password; sets a cookie for {ROOT}", log_in
    ),
    ConsoleRow("POST", "/logout", "end the session", log_out),
)
