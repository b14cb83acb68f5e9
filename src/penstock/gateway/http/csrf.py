"""Protection against cross-site request forgery (CSRF) and DNS rebinding.

Any web page can make its visitor's browser send requests to this port, with the password that the
browser remembers, or without one if none is needed. The page cannot read the responses, but a
message published or received is published or received. So the headers that browsers add are checked
(`Sec-Fetch-Site`, or `Origin` against `Host`): from other sites only links to pages are allowed.
Other programs do not send these headers.

A page may also be served under a host name that resolves to this machine, which makes it the same
site (DNS rebinding). That matters on a loopback port without authentication. There, requests for
host names that anyone could register are refused, unless `http.hosts` lists the name.
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
CHECKED_HEADERS = frozenset({SITE, MODE, ORIGIN, HOST, FORWARDED_HOST})
OWN_SITE = (b"same-origin", b"none")
CheckedHeaders: TypeAlias = dict[bytes, bytes]
"""Headers of a request that are checked."""
READING = ("GET", "HEAD")
PAGES = ("", "docs", "openapi.json", "healthz", "readyz", "metrics", "version", "console")
"""First segments of paths that links from other sites may lead to."""
CONSOLE_ROUTES = "/console/api"
NAMES = "http.hosts"
ANY = "*"
PRIVATE = (".localhost", ".local", ".internal", ".lan", ".test", ".home.arpa")
"""Suffixes of host names that do not exist on the internet."""


class CsrfCheck:
    """Middleware that refuses cross-site requests."""

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
        # Runs for every request, so it scans the headers once.
        headers: CheckedHeaders = {
            name: value for name, value in scope["headers"] if name in CHECKED_HEADERS
        }
        host = self._host(scope, headers)
        if self._is_local and not self._gateway.ctx.authorizer.is_on and not self._is_ours(host):
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"host name {host[:100]} is not allowed on this port: use an IP address or "
                f"localhost, or add the name to {NAMES}",
            )
        if _is_foreign(headers, host) and not _is_link(scope, headers):
            raise Refused(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "cross-site request refused: a page of another site may not send requests here; if "
                "a proxy is in between, it must pass on the Host header unchanged",
            )

    def _host(self, scope: Scope, headers: CheckedHeaders) -> str:
        """Returns the host name and port that the client sent the request to."""
        forwarded = headers.get(FORWARDED_HOST)
        if forwarded is not None and is_within(connected_from(scope), self._proxies):
            return forwarded.decode("latin-1").rpartition(",")[2].strip()
        return headers.get(HOST, b"").decode("latin-1")

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        if not name or "." not in name or name.endswith(PRIVATE) or is_address(name):
            return True
        listed = self._gateway.ctx.configs.items(NAMES)
        return ANY in listed or name in [one.strip().lower() for one in listed]


def _is_foreign(headers: CheckedHeaders, host: str) -> bool:
    """True if the browser says that the request comes from another site's page."""
    site = headers.get(SITE)
    if site is not None:
        return site not in OWN_SITE
    origin = headers.get(ORIGIN)
    return origin is not None and origin.decode("latin-1").partition("://")[2] != host


def _is_link(scope: Scope, headers: CheckedHeaders) -> bool:
    """True for a link to a page, which has no effects."""
    path: str = scope["path"]
    return (
        scope["method"] in READING
        and headers.get(MODE) == b"navigate"
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
