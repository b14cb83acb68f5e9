"""Which connections the HTTP port takes: bounds by address and in all, as the Kafka ports have.

Counted from the first moment, before a TLS handshake. `max.connections.per.ip` and the quota
`connection_creation_rate` of an address hold here as well; proxies that are trusted
(`http.trusted.proxies`) have no bound of their own, for they stand for many.

Bounds: `CONNECTIONS_MAX`; one too many is closed at once.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Sequence

from penstock.gateway.core.configs import connections_max
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.forwarded import Network, is_within

CONNECTIONS_MAX = 4096
"""A long poll or a stream holds one for as long as it waits."""


class ConnectionLimiter:
    """Made once for each port."""

    def __init__(self, gateway: Gateway | None, proxies: Sequence[Network] = ()) -> None:
        self._gateway = gateway
        self._proxies = proxies
        self._open = 0
        self._by_address: Tally[str] = Tally()

    def admits(self, address: str, pending: int = 0, pending_of_it: int = 0) -> bool:
        """Whether one more may come, beside those that still shake hands."""
        is_admitted = self._open + pending < CONNECTIONS_MAX and (
            self._gateway is None or self._has_room(self._gateway, address, pending_of_it)
        )
        if not is_admitted and self._gateway is not None:
            self._gateway.ctx.metrics.connections_refused.value += 1
        return is_admitted

    def _has_room(self, gateway: Gateway, address: str, pending_of_it: int) -> bool:
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
