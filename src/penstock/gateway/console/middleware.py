"""Looks at every request that comes from the console, before anybody else does.

A request is the console's if its path is, or if it carries the header `HEADER`. Only then does the
cookie say who asks, so that no other page's request is taken for a person's. Whoever wants to
change something must say the session's write token in that header; where nobody has to log in, any
word will do, for other sites cannot send one without being asked first (CORS). `console.read.only`
refuses changes, `console.enable` all of the console.

Answers carry headers that forbid scripts from elsewhere, markup from data, and framing.
"""

import asyncio
import hmac
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.console.sessions import ConsoleSession, Sessions
from penstock.gateway.core.cluster_types import BrokerConfigs
from penstock.gateway.http.problems import PRINCIPAL, problem

ROOT = "/console"
API = f"{ROOT}/api"
HEADER = "x-penstock-console"
SESSION = "penstock.console.session"
LOGIN, LOGOUT = f"{API}/login", f"{API}/logout"
HARMLESS_POSTS = ("/compatibility/",)
"""Questions that are too long for a query."""
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
        # The browser itself refuses to take a string for markup, whatever a page tries.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


class ConsoleMiddleware:
    """Wraps an application."""

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
        send = _hardened(send, path) if is_page else _unprompted(send)
        try:
            self._admit(scope, headers, path)
        except Refused as refused:
            await problem(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope, headers: Headers, path: str) -> None:
        if not self._configs.flag("console.enable"):
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "there is no console here: it was turned off (console.enable)",
            )
        session = self._session(headers)
        if session is not None:
            scope[PRINCIPAL], scope[SESSION] = session.principal, session
        if scope["method"] in ("GET", "HEAD"):
            return
        said = headers.get(HEADER, "")
        wanted = said if session is None or path == LOGIN else session.write_token
        is_ours = said and hmac.compare_digest(said.encode(), wanted.encode())
        if not is_ours or headers.get("sec-fetch-site", "") not in SAME_SITE:
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "this did not come from the console's own page: reload it and try again",
            )
        is_harmless = path in (LOGIN, LOGOUT) or path.startswith(HARMLESS_POSTS)
        if self._configs.flag("console.read.only") and not is_harmless:
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "this console only shows: console.read.only is set",
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


def _unprompted(send: Send) -> Send:
    """Without what would have the browser ask for a password by itself."""
    return _sending(send, lambda headers: headers.__delitem__("www-authenticate"))


def _hardened(send: Send, path: str) -> Send:
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

    return _sending(send, change)


def _sending(send: Send, change: Callable[[MutableHeaders], None]) -> Send:
    async def changed(message: Message) -> None:
        if message["type"] == "http.response.start":
            change(MutableHeaders(scope=message))
        await send(message)

    return changed
