"""The Kafka port: accepts connections, counts them, and closes those that stall.

Limits and what happens at them:
- `max.connections`, `max.connections.per.ip`: the newcomer is closed at once and counted.
- no complete request within `HANDSHAKE_SECONDS` of connecting: closed.
- a peer that owes us the rest of a frame, or does not read what we sent, for `STALL_SECONDS`:
  closed; also one that takes longer than that for one large frame while others wait for memory.
- nothing at all for `connections.max.idle.ms`: closed, as Kafka does (negative: never).
- receive buffers of all connections together: `queued.max.request.bytes` (see `budget.py`).
"""

import asyncio
import contextlib
import logging
from collections import Counter as Tally
from dataclasses import dataclass

from penstock.api.context import Context
from penstock.api.dispatch import Dispatcher
from penstock.server.budget import Budget
from penstock.server.connection import Connection, ConnectionOwner

log = logging.getLogger("penstock.server")

HANDSHAKE_SECONDS = 10.0
STALL_SECONDS = 60.0
SWEEP_SECONDS = 2.0
QUIET_SECONDS = 10.0
REFUSALS_LOGGED_SECONDS = 10.0
DRAIN_SECONDS = 0.01
LAST_TURNS_MAX = 100
BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a listener takes on."""

    connections_max: int
    connections_per_ip_max: int
    idle_ms_max: int
    frame_bytes_max: int
    buffered_bytes_max: int


class Listener(ConnectionOwner):
    """A listening socket and its connections."""

    def __init__(self, ctx: Context, limits: Limits) -> None:
        self._ctx = ctx
        self._limits = limits
        self._dispatcher = Dispatcher(ctx)
        self.budget = Budget(limits.buffered_bytes_max)
        # A dict for its order, and removal costs nothing.
        self._connections: dict[Connection, None] = {}
        self._per_ip: Tally[str] = Tally()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._draining = False
        self._refusal_logged_at = float("-inf")

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port, which the system chose if `port` is 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, host, port, backlog=BACKLOG)
        self._sweeper = loop.create_task(self._sweep())
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    def _connect(self) -> Connection:
        return Connection(
            self._ctx, self._dispatcher, self.budget, self._limits.frame_bytes_max, self
        )

    def opened(self, connection: Connection) -> None:
        limits = self._limits
        self._connections[connection] = None
        self._per_ip[connection.peer] += 1
        if (
            len(self._connections) > limits.connections_max
            or self._per_ip[connection.peer] > limits.connections_per_ip_max
            or self._draining
        ):
            self._ctx.metrics.connections_refused.value += 1
            self._log_refusal(connection)
            connection.abort()

    def _log_refusal(self, connection: Connection) -> None:
        """Now and then: strangers do not get to fill our log."""
        if connection.connected_at - self._refusal_logged_at < REFUSALS_LOGGED_SECONDS:
            return
        self._refusal_logged_at = connection.connected_at
        log.warning(
            "refused a connection from %s: %d are open, %d of them its own",
            connection.peer,
            len(self._connections) - 1,
            self._per_ip[connection.peer] - 1,
        )

    def lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._per_ip[connection.peer] -= 1
        if self._per_ip[connection.peer] <= 0:
            del self._per_ip[connection.peer]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for connection in tuple(self._connections):
                connection.expire(now)
                self._judge(connection, now)

    def _judge(self, connection: Connection, now: float) -> None:
        quiet = now - connection.last_active
        idle_ms_max = self._limits.idle_ms_max
        is_contended = self.budget.is_contended
        if (
            connection.requests == 0
            and not connection.waits_for_budget
            and now - connection.connected_at > HANDSHAKE_SECONDS
        ):
            reason = "it connected and did not ask anything in time"
        elif connection.is_stalled_by_peer and quiet > STALL_SECONDS:
            reason = "it stalled in the middle of a request or does not read our replies"
        elif (
            is_contended
            and connection.holds_budget
            and connection.is_stalled_by_peer
            and now - connection.last_request > STALL_SECONDS
        ):
            reason = "it took too long for a large request while others wait for memory"
        elif connection.is_idle and 0 <= idle_ms_max < quiet * 1000:
            reason = "it was idle for longer than connections.max.idle.ms"
        else:
            if is_contended or quiet > QUIET_SECONDS:
                connection.shrink()
            return
        log.info("closing %s: %s", connection.peer, reason)
        connection.abort()

    async def stop(self, grace_seconds: float) -> None:
        """Takes no more; lets acknowledgements in flight leave, for a bounded time; closes."""
        self._draining = True
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds
        for connection in tuple(self._connections):
            connection.drain()
        while self._connections and loop.time() < deadline:
            for connection in tuple(self._connections):
                if not connection.owes_acknowledgement:
                    connection.close()
            await asyncio.sleep(DRAIN_SECONDS)
        for connection in tuple(self._connections):
            connection.abort()
        # Their ends are told from the loop; whoever stops next must not meet them half alive.
        for _ in range(LAST_TURNS_MAX):
            if not self._connections:
                break
            await asyncio.sleep(0)
