"""Client address of a request: that of its connection, or the one a trusted proxy forwards.

`X-Forwarded-For` is trusted only from addresses in `http.trusted.proxies`, and only as far as
these go: from the right, the first address that is not a proxy's is the client's. A client may
forge everything to the left of it.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.security.acl_types import WILDCARD

PEER = "penstock.peer"
"""Key of a request's scope for the client's address."""
FORWARDED = "x-forwarded-for"
HOPS_MAX = 20

Network = IPv4Network | IPv6Network


def read_networks(addresses: Sequence[str]) -> list[Network]:
    """Parses addresses and networks, such as 10.0.0.7 and 10.1.0.0/16; raises ValueError."""
    return [ip_network(address.strip(), strict=False) for address in addresses]


class ForwardedFor:
    """Middleware that sets a request's client address."""

    def __init__(self, app: ASGIApp, trusted: Sequence[Network]) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope[PEER] = self.address(scope)
        await self._app(scope, receive, send)

    def address(self, scope: Scope) -> str:
        address = connected_from(scope)
        if not self._trusted or not self._is_proxy(address):
            return address
        named = ",".join(Headers(scope=scope).getlist(FORWARDED)).split(",")
        for hop in reversed(named[-HOPS_MAX:]):
            text = hop.strip()
            if not is_address(text):
                break
            address = text
            if not self._is_proxy(address):
                break
        return _plain(address)

    def _is_proxy(self, address: str) -> bool:
        return is_within(address, self._trusted)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    return is_address(address) and any(
        ip_address(_plain(address)) in network for network in networks
    )


def connected_from(scope: Scope) -> str:
    """Returns the connection's remote address; if unknown, `*`: only permissions
    for every host match."""
    client = scope.get("client")
    return _plain(client[0]) if client else WILDCARD


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _plain(address: str) -> str:
    """Returns an IPv4-mapped IPv6 address as IPv4, others unchanged."""
    if not is_address(address):
        return address
    mapped = getattr(ip_address(address), "ipv4_mapped", None)
    return str(mapped) if mapped is not None else address
