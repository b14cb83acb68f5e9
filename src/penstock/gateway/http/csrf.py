"""Requests that a browser makes for somebody else's page are not answered.

A page from anywhere can have the browser of whoever looks at it send requests to this port, with
the password that the browser remembers, or, where nobody has to say who they are, with none. It
cannot read the answers, but a message that was sent or taken is sent or taken. So it is looked at
what browsers say of a request (`Sec-Fetch-Site`, or `Origin` beside `Host`): of other sites only
links to pages are followed. Programs say nothing of the kind.

A page may also be served under a name that is made to mean this machine, so that it is of the same
site (DNS rebinding). Where that helps it, on a loopback port that asks nobody who they are, names
that anybody can own are not answered to, unless `http.hosts` lists them.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.forwarded import Network, connected_from, is_address, is_within
from penstock.gateway.http.problems import problem

SITE, MODE, ORIGIN = b"sec-fetch-site", b"sec-fetch-mode", b"origin"
HOST, FORWARDED_HOST = b"host", b"x-forwarded-host"
LOOKED_AT = frozenset({SITE, MODE, ORIGIN, HOST, FORWARDED_HOST})
OWN_SITE = (b"same-origin", b"none")
Said: TypeAlias = dict[bytes, bytes]
"""Those headers of a request that are looked at."""
READING = ("GET", "HEAD")
PAGES = ("", "docs", "openapi.json", "healthz", "readyz", "metrics", "version", "console")
"""The first words of paths that a link may lead to."""
CONSOLE_ROUTES = "/console/api"
NAMES = "http.hosts"
ANY = "*"
PRIVATE = (".localhost", ".local", ".internal", ".lan", ".test", ".home.arpa")
"""Endings of names that nobody on the internet has."""


class CsrfCheck:
    """Wraps an application."""

    def __init__(
        self, app: ASGIApp, gateway: Gateway, host: str, proxies: Sequence[Network]
    ) -> None:
        """`host`: the address that the port listens on."""
        self._app = app
        self._gateway = gateway
        self._is_local = is_loopback(host)
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except Refused as refused:
                await problem(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        # Every request goes through here: its headers are looked through once.
        said: Said = {name: value for name, value in scope["headers"] if name in LOOKED_AT}
        host = self._host(scope, said)
        if self._is_local and not self._gateway.ctx.authorizer.is_on and not self._is_ours(host):
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"this port is not asked for by the name {host[:100]}: take an address or "
                f"localhost, or list the name in {NAMES}",
            )
        if _is_foreign(said, host) and not _is_link(scope, said):
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "this came from a page of another site, which may not ask for anything here; a "
                "proxy in between has to leave the Host header as it is",
            )

    def _host(self, scope: Scope, said: Said) -> str:
        """The name and port that the request was sent to, as whoever sent it knows them."""
        forwarded = said.get(FORWARDED_HOST)
        if forwarded is not None and is_within(connected_from(scope), self._proxies):
            return forwarded.decode("latin-1").rpartition(",")[2].strip()
        return said.get(HOST, b"").decode("latin-1")

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        if not name or "." not in name or name.endswith(PRIVATE) or is_address(name):
            return True
        listed = self._gateway.ctx.configs.items(NAMES)
        return ANY in listed or name in [one.strip().lower() for one in listed]


def _is_foreign(said: Said, host: str) -> bool:
    """Whether a browser says that another site's page wants this."""
    site = said.get(SITE)
    if site is not None:
        return site not in OWN_SITE
    origin = said.get(ORIGIN)
    return origin is not None and origin.decode("latin-1").partition("://")[2] != host


def _is_link(scope: Scope, said: Said) -> bool:
    """Somebody follows a link to a page, which does nothing."""
    path: str = scope["path"]
    return (
        scope["method"] in READING
        and said.get(MODE) == b"navigate"
        and path.removeprefix("/").partition("/")[0] in PAGES
        and not path.startswith(CONSOLE_ROUTES)
    )


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    return is_address(host) and ip_address(host).is_loopback
