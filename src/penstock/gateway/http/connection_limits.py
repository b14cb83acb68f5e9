"""Connection limits of the HTTP port, per address and in all, like those of the Kafka ports.

Connections count from the start, before a TLS handshake. `max.connections.per.ip` and an address's
quota `connection_creation_rate` apply here as well. Trusted proxies (`http.trusted.proxies`) have
no limit per address, because they forward for many clients.

Bounds: `CONNECTIONS_MAX`; a connection beyond it is closed at once.
"""

import asyncio
import collections
from collections.abc import Sequence

from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.topics import connections_max
from penstock.gateway.http.forwarded import Network, is_within

CONNECTIONS_MAX = 4096
"""A long poll or a stream holds a connection while it waits."""


class ConnectionLimiter:
    """Counts and limits connections; one instance per port."""

    def __init__(self, gateway: Gateway | None, proxies: Sequence[Network] = ()) -> None:
        self._gateway = gateway
        self._proxies = proxies
        self._open = 0
        self._by_address: collections.Counter[str] = collections.Counter()

    def admits(self, address: str, pending: int = 0, pending_of_it: int = 0) -> bool:
        """True if one more connection is allowed. `pending`: unfinished TLS handshakes, in all;
        `pending_of_it`: those of this address."""
        is_admitted = self._open + pending < CONNECTIONS_MAX and (
            self._gateway is None or self._is_within_quota(self._gateway, address, pending_of_it)
        )
        if not is_admitted and self._gateway is not None:
            self._gateway.ctx.metrics.connections_refused.value += 1
        return is_admitted

    def _is_within_quota(self, gateway: Gateway, address: str, pending_of_it: int) -> bool:
        if is_within(address, self._proxies):
            return True
        ctx = gateway.ctx
        if self._by_address[address] + pending_of_it >= connections_max(ctx.configs, address):
            return False
        return ctx.meter.connect(address, asyncio.get_running_loop().time()) <= 0

    def opened(self, address: str) -> None:
        self._open += 1
        self._by_address[address] += 1

    def lost(self, address: str) -> None:
        self._open -= 1
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]
