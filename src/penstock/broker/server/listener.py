"""Kafka listener: accepts connections, enforces limits, and closes stalled connections.

Limits and their effects:
- `max.connections`, `max.connections.per.ip` and its overrides: a new connection is closed at once
  and counted; with TLS, pending handshakes count too (`tls_handshakes`).
- quota `connection_creation_rate` of an address (KIP-612): a new connection is not read, and closed
  after the time by which the address exceeds its quota, at most `RATE_SECONDS_MAX`. The wait keeps
  the client from reconnecting in a tight loop.
- `max.connection.creation.rate`: reading of a new connection is delayed.
- no complete request within `HANDSHAKE_SECONDS` of connecting: closed.
- the rest of a frame is missing, or the peer does not read replies, for `STALL_SECONDS`: closed;
  also a large frame that takes longer than that while other connections wait for memory.
- idle for `connections.max.idle.ms`: closed, as in Kafka (negative: never).
- receive buffers of all connections: `queued.max.request.bytes` (see `receive_budget`).
- replies that the peer does not read: see `reply_limits`.
"""

import asyncio
import collections
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.errors import Refused
from penstock.base.token_bucket import TokenBucket
from penstock.broker.api.context import Context
from penstock.broker.api.dispatch import Dispatcher
from penstock.broker.server.connection import ConnectionOwner, KafkaConnection
from penstock.broker.server.receive_budget import ReceiveBudget
from penstock.broker.server.socket_buffers import SYSTEM_DEFAULT, SocketBufferSizes, disable_pacing
from penstock.broker.server.tls import distinguished_name
from penstock.broker.server.tls_handshakes import TlsHandshakes
from penstock.broker.server.writable_poller import WritablePoller
from penstock.security.login import Login
from penstock.security.principal_mapping import Rule, principal_of

log = logging.getLogger("penstock.server")

HANDSHAKE_SECONDS = 10.0
STALL_SECONDS = 60.0
SWEEP_SECONDS = 2.0
SWEPT_AT_ONCE = 100
"""The sweep yields after this many connections: 10,000 take tens of milliseconds."""
QUIET_SECONDS = 10.0
REFUSALS_LOGGED_SECONDS = 10.0
DRAIN_SECONDS = 0.01
CLOSE_ROUNDS_MAX = 100
BACKLOG = 1024
RATE_SECONDS_MAX = 1.0
RATE_BURST_SECONDS = 1.0
DELAY_SECONDS_MAX = 3_600.0
NO_RATE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of a listener."""

    connections_max: int
    connections_per_ip_max: int
    idle_ms_max: int
    frame_bytes_max: int
    buffered_bytes_max: int
    connection_rate_max: int = NO_RATE
    backlog: int = BACKLOG
    buffers: SocketBufferSizes = SYSTEM_DEFAULT
    overrides: Mapping[str, int] = field(default_factory=dict)
    """Connections per address, for addresses with another limit than the rest."""

    def connections_of_max(self, peer: str) -> int:
        return self.overrides.get(peer, self.connections_per_ip_max)


class Listener(ConnectionOwner):
    """A listening socket and its connections."""

    def __init__(
        self,
        ctx: Context,
        limits: ListenerLimits,
        *,
        name: str = "PLAINTEXT",
        budget: ReceiveBudget | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: Callable[[], Login] | None = None,
        rules: Sequence[Rule] = (),
    ) -> None:
        """`tls` returns the context of each new connection, `login` its authentication.

        `rules` map certificates to principals. Listeners of one node share a budget.
        """
        self.name = name
        self.poller = WritablePoller()
        self._ctx = ctx
        self._limits = limits
        self._tls = tls
        self._login = login
        self._rules = rules
        self._dispatcher = Dispatcher(ctx)
        self.budget = budget or ReceiveBudget(limits.buffered_bytes_max)
        # A dict: ordered, with cheap removal.
        self._connections: dict[KafkaConnection, None] = {}
        self._per_ip: collections.Counter[str] = collections.Counter()
        self._server: asyncio.Server | None = None
        self._handshakes: TlsHandshakes | None = None
        self._rate: TokenBucket | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._draining = False
        self._refusal_logged_at = float("-inf")

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Starts listening and returns the port, which the system chooses if `port` is 0."""
        loop = asyncio.get_running_loop()
        self.limit(self._limits)
        self._sweeper = loop.create_task(self._sweep())
        if self._tls is not None:
            self._handshakes = TlsHandshakes(
                self._tls, self._connect, self._admits, self._connection_delay_s, HANDSHAKE_SECONDS
            )
            limits = self._limits
            return await self._handshakes.open(host, port, limits.backlog, limits.buffers)
        self._server = await loop.create_server(
            self._connect, host, port, backlog=self._limits.backlog
        )
        for listening in self._server.sockets:
            self._limits.buffers.apply_to(listening)
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    def limit(self, limits: ListenerLimits) -> None:
        """Applies limits to new connections from now on; existing ones stay."""
        self._limits = limits
        rate = limits.connection_rate_max
        self._rate = TokenBucket(rate, rate * RATE_BURST_SECONDS) if rate < NO_RATE else None

    def _connect(self) -> KafkaConnection:
        return KafkaConnection(
            self._ctx,
            self._dispatcher,
            self.budget,
            self._limits.frame_bytes_max,
            self,
            self._login() if self._login is not None else None,
            self.name,
        )

    def opened(self, connection: KafkaConnection) -> None:
        limits = self._limits
        assert connection.transport is not None
        sock = connection.transport.get_extra_info("socket")
        if sock is not None and connection.peer.removeprefix("::ffff:") == connection.local_host:
            disable_pacing(sock)
        self._connections[connection] = None
        self._per_ip[connection.peer] += 1
        if (
            len(self._connections) > limits.connections_max
            or self._per_ip[connection.peer] > limits.connections_of_max(connection.peer)
            or self._draining
        ):
            self._ctx.metrics.connections_refused.value += 1
            self._log_refusal(connection.peer)
            connection.abort()
        elif self._tls is not None:
            self._identify(connection)
        else:
            self._enforce_rates(connection)

    def _enforce_rates(self, connection: KafkaConnection) -> None:
        """Delays a connection above the listener's rate; closes one above its address's quota."""
        loop = asyncio.get_running_loop()
        above_s = self._ctx.meter.connect(connection.peer, loop.time())
        if above_s > 0:
            self._ctx.metrics.connections_refused.value += 1
            wait_s = min(above_s, RATE_SECONDS_MAX)
            connection.mute(wait_s + SWEEP_SECONDS)
            loop.call_later(wait_s, connection.abort)
        elif (delay_s := self._connection_delay_s()) > 0:
            connection.mute(delay_s)

    def _connection_delay_s(self) -> float:
        """Counts a new connection against the rate; returns its delay in seconds."""
        if self._rate is None:
            return 0.0
        return min(self._rate.take(1, asyncio.get_running_loop().time()), DELAY_SECONDS_MAX)

    def _admits(self, peer: str, pending: int, pending_of_it: int) -> bool:
        """True if one more connection from this address may start its handshake."""
        limits = self._limits
        is_too_many = len(self._connections) + pending >= limits.connections_max or self._per_ip[
            peer
        ] + pending_of_it >= limits.connections_of_max(peer)
        now_s = asyncio.get_running_loop().time()
        if is_too_many or self._draining or self._ctx.meter.connect(peer, now_s) > 0:
            self._ctx.metrics.connections_refused.value += 1
            self._log_refusal(peer)
            return False
        return True

    def _identify(self, connection: KafkaConnection) -> None:
        """Sets the principal from the peer's certificate, unless SASL is required."""
        assert connection.transport is not None
        certificate = connection.transport.get_extra_info("peercert")
        if not certificate or connection.is_unauthenticated:
            return
        try:
            connection.principal = principal_of(self._rules, distinguished_name(certificate))
        except Refused as refused:
            self._ctx.security.failed_logins.note(connection.peer, refused.message)
            connection.abort()

    def _log_refusal(self, peer: str) -> None:
        """Logs a refusal, rate-limited so that unauthenticated peers cannot fill the log."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refusal_logged_at < REFUSALS_LOGGED_SECONDS:
            return
        self._refusal_logged_at = now_s
        log.warning(
            "refused a connection from %s: %d are open, %d of them from this address",
            peer,
            len(self._connections),
            self._per_ip[peer],
        )

    def lost(self, connection: KafkaConnection) -> None:
        self._connections.pop(connection, None)
        self._per_ip[connection.peer] -= 1
        if self._per_ip[connection.peer] <= 0:
            del self._per_ip[connection.peer]

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for number, connection in enumerate(tuple(self._connections), start=1):
                if not connection.closed:
                    connection.expire(now)
                    self._close_if_stalled(connection, now)
                if number % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)
                    now = loop.time()

    def _close_if_stalled(self, connection: KafkaConnection, now: float) -> None:
        quiet = connection.quiet_for(now)
        idle_ms_max = self._limits.idle_ms_max
        is_contended = self.budget.is_contended
        if (
            connection.requests == 0
            and not connection.waits_for_budget
            and now - connection.connected_at > HANDSHAKE_SECONDS
        ):
            reason = "it sent no request in time"
        elif connection.is_unauthenticated and now - connection.connected_at > HANDSHAKE_SECONDS:
            reason = "it did not authenticate in time"
        elif connection.is_stalled_by_peer and quiet > STALL_SECONDS:
            reason = "it stalled in the middle of a request or does not read its replies"
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
        """Stops accepting, waits a bounded time until pending replies are sent, and closes."""
        self._draining = True
        if self._server is not None:
            self._server.close()
        if self._handshakes is not None:
            await self._handshakes.close()
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
                if not connection.has_pending_replies:
                    connection.close()
            await asyncio.sleep(DRAIN_SECONDS)
        for connection in tuple(self._connections):
            connection.abort()
        # The loop calls `connection_lost` later; wait for it before the caller stops anything else.
        for _ in range(CLOSE_ROUNDS_MAX):
            if not self._connections:
                break
            await asyncio.sleep(0)
        self.poller.close()
