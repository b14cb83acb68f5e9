"""Middleware of the console: sessions, protection against forged requests, security headers.

A request belongs to the console if its path does, or if it has the header `HEADER`. Only then the
session cookie authenticates it, so that requests of other pages never use a person's session.
Requests that change something must carry the session's write token in that header. Without logins
any value is accepted, because other sites cannot send the header without a preflight request
(CORS). `console.read.only` refuses changes; without `console.enable` all requests are refused.

Responses have headers that forbid foreign scripts, markup made from data, and framing.
"""

import asyncio
import hmac
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.console.sessions import (
    ConsoleSession,
    Sessions,
)
from penstock.gateway.core.cluster_types import BrokerConfigs
from penstock.gateway.http.problems import PRINCIPAL, problem

ROOT = "/console"
API = f"{ROOT}/api"
HEADER = "x-penstock-console"
SESSION = "penstock.console.session"
LOGIN, LOGOUT = f"{API}/login", f"{API}/logout"
READ_ONLY_POSTS = ("/compatibility/",)
"""Paths of POST requests that change nothing: their parameters are too long for a query."""
SAME_SITE = ("same-origin", "none", "")
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        # Browsers then refuse to interpret strings as markup.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


class ConsoleMiddleware:
    """Middleware for the console's requests."""

    def __init__(
        self, app: ASGIApp, configs: BrokerConfigs, sessions: Sessions, cookie: str
    ) -> None:
        self._app = app
        self._configs = configs
        self._sessions = sessions
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        headers = Headers(scope=scope)
        is_page = path == ROOT or path.startswith(f"{ROOT}/")
        if not is_page and HEADER not in headers:
            await self._app(scope, receive, send)
            return
        send = _with_security_headers(send, path) if is_page else _without_prompt(send)
        try:
            self._authorize(scope, headers, path)
        except Refused as refused:
            await problem(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _authorize(self, scope: Scope, headers: Headers, path: str) -> None:
        if not self._configs.flag("console.enable"):
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "the console is disabled on this node: set console.enable to true",
            )
        session = self._session(headers)
        if session is not None:
            scope[PRINCIPAL], scope[SESSION] = session.principal, session
        if scope["method"] in ("GET", "HEAD"):
            return
        given = headers.get(HEADER, "")
        wanted = given if session is None or path == LOGIN else session.write_token
        is_ours = given and hmac.compare_digest(given.encode(), wanted.encode())
        if not is_ours or headers.get("sec-fetch-site", "") not in SAME_SITE:
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "the request did not come from the console's page: reload the page and retry",
            )
        changes_nothing = path in (LOGIN, LOGOUT) or path.startswith(READ_ONLY_POSTS)
        if self._configs.flag("console.read.only") and not changes_nothing:
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "the console is read-only: console.read.only is set",
            )

    def _session(self, headers: Headers) -> ConsoleSession | None:
        if "authorization" in headers or "cookie" not in headers:
            return None
        try:
            morsel = SimpleCookie(headers["cookie"]).get(self._cookie)
        except CookieError:
            return None
        if morsel is None:
            return None
        return self._sessions.find(morsel.value, asyncio.get_running_loop().time())


def _without_prompt(send: Send) -> Send:
    """Removes the header that makes browsers prompt for a password."""
    return _changing_headers(send, lambda headers: headers.__delitem__("www-authenticate"))


def _with_security_headers(send: Send, path: str) -> Send:
    def change(headers: MutableHeaders) -> None:
        del headers["www-authenticate"]
        headers["content-security-policy"] = CONTENT_SECURITY_POLICY
        headers["x-content-type-options"] = "nosniff"
        headers["referrer-policy"] = "no-referrer"
        headers["x-frame-options"] = "DENY"
        headers["cross-origin-opener-policy"] = "same-origin"
        headers["cross-origin-resource-policy"] = "same-origin"
        if path.startswith(f"{API}/"):
            headers.setdefault("cache-control", "no-store")

    return _changing_headers(send, change)


def _changing_headers(send: Send, change: Callable[[MutableHeaders], None]) -> Send:
    async def changed(message: Message) -> None:
        if message["type"] == "http.response.start":
            change(MutableHeaders(scope=message))
        await send(message)

    return changed
