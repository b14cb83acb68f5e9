"""The Kafka port: accepts connections, counts them, and closes those that stall.

Limits and what happens at them:
- `max.connections`, `max.connections.per.ip` and its overrides: the newcomer is closed at once and
  counted; with TLS those count that are still in their handshake (`handshakes.py`).
- an address above its quota `connection_creation_rate` (KIP-612): the newcomer is not read, and
  closed after the time it is above it, `RATE_SECONDS_MAX` at most, so that it does not hammer.
- `max.connection.creation.rate`: the newcomer is served when its turn comes.
- no complete request within `HANDSHAKE_SECONDS` of connecting: closed.
- a peer that owes us the rest of a frame, or does not read what we sent, for `STALL_SECONDS`:
  closed; also one that takes longer than that for one large frame while others wait for memory.
- nothing at all for `connections.max.idle.ms`: closed, as Kafka does (negative: never).
- receive buffers of all connections together: `queued.max.request.bytes` (see `budget.py`).
- replies that are not read: see `unsent.py`.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.errors import Refused
from penstock.base.token_bucket import TokenBucket
from penstock.broker.api.context import Context
from penstock.broker.api.dispatch import Dispatcher
from penstock.broker.server.connection import KafkaConnection
from penstock.broker.server.connection_owner import ConnectionOwner
from penstock.broker.server.receive_budget import ReceiveBudget
from penstock.broker.server.socket_buffers import SYSTEMS_OWN, Buffers, spare_pacing
from penstock.broker.server.tls import distinguished_name
from penstock.broker.server.tls_handshakes import Handshakes
from penstock.broker.server.writable_poller import WritablePoller
from penstock.security.login import Login
from penstock.security.principal_mapping import Rule, principal_of

log = logging.getLogger("penstock.server")

HANDSHAKE_SECONDS = 10.0
STALL_SECONDS = 60.0
SWEEP_SECONDS = 2.0
SWEPT_AT_ONCE = 100
"""Then others are served: to look at ten thousand takes tens of milliseconds."""
QUIET_SECONDS = 10.0
REFUSALS_LOGGED_SECONDS = 10.0
DRAIN_SECONDS = 0.01
LAST_TURNS_MAX = 100
BACKLOG = 1024
RATE_SECONDS_MAX = 1.0
RATE_BURST_SECONDS = 1.0
TURN_SECONDS_MAX = 3_600.0
NO_RATE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a listener takes on."""

    connections_max: int
    connections_per_ip_max: int
    idle_ms_max: int
    frame_bytes_max: int
    buffered_bytes_max: int
    connection_rate_max: int = NO_RATE
    backlog: int = BACKLOG
    buffers: Buffers = SYSTEMS_OWN
    overrides: Mapping[str, int] = field(default_factory=dict)
    """Addresses that may have another number of connections."""

    def connections_of_max(self, peer: str) -> int:
        return self.overrides.get(peer, self.connections_per_ip_max)


class Listener(ConnectionOwner):
    """A listening socket and its connections."""

    def __init__(
        self,
        ctx: Context,
        limits: Limits,
        *,
        name: str = "PLAINTEXT",
        budget: ReceiveBudget | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: Callable[[], Login] | None = None,
        rules: Sequence[Rule] = (),
    ) -> None:
        """`tls` is asked for each connection; `login` makes what one has to go through; `rules`
        name those who come with a certificate. Listeners of one node share a budget."""
        self.name = name
        self.room = WritablePoller()
        self._ctx = ctx
        self._limits = limits
        self._tls = tls
        self._login = login
        self._rules = rules
        self._dispatcher = Dispatcher(ctx)
        self.budget = budget or ReceiveBudget(limits.buffered_bytes_max)
        # A dict for its order, and removal costs nothing.
        self._connections: dict[KafkaConnection, None] = {}
        self._per_ip: Tally[str] = Tally()
        self._server: asyncio.Server | None = None
        self._handshakes: Handshakes | None = None
        self._rate: TokenBucket | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._draining = False
        self._refusal_logged_at = float("-inf")

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port, which the system chose if `port` is 0."""
        loop = asyncio.get_running_loop()
        self.limit(self._limits)
        self._sweeper = loop.create_task(self._sweep())
        if self._tls is not None:
            self._handshakes = Handshakes(
                self._tls, self._connect, self._admits, self._turn_s, HANDSHAKE_SECONDS
            )
            limits = self._limits
            return await self._handshakes.open(host, port, limits.backlog, limits.buffers)
        self._server = await loop.create_server(
            self._connect, host, port, backlog=self._limits.backlog
        )
        for listening in self._server.sockets:
            self._limits.buffers.give_to(listening)
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    def limit(self, limits: Limits) -> None:
        """These hold for newcomers from now on; whoever is connected stays."""
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
            spare_pacing(sock)
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
            self._pace(connection)

    def _pace(self, connection: KafkaConnection) -> None:
        """Newcomers that come too fast are put off, and those above a quota of their own closed."""
        loop = asyncio.get_running_loop()
        above_s = self._ctx.meter.connect(connection.peer, loop.time())
        if above_s > 0:
            self._ctx.metrics.connections_refused.value += 1
            wait_s = min(above_s, RATE_SECONDS_MAX)
            connection.mute(wait_s + SWEEP_SECONDS)
            loop.call_later(wait_s, connection.abort)
        elif (turn_s := self._turn_s()) > 0:
            connection.mute(turn_s)

    def _turn_s(self) -> float:
        """Counts a newcomer; answers in how many seconds it is its turn."""
        if self._rate is None:
            return 0.0
        return min(self._rate.take(1, asyncio.get_running_loop().time()), TURN_SECONDS_MAX)

    def _admits(self, peer: str, pending: int, pending_of_it: int) -> bool:
        """Whether one more from this address may try to shake hands."""
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
        """Who has shown a certificate is who that says; SASL, where it is asked for, says more."""
        assert connection.transport is not None
        certificate = connection.transport.get_extra_info("peercert")
        if not certificate or connection.is_stranger:
            return
        try:
            connection.principal = principal_of(self._rules, distinguished_name(certificate))
        except Refused as refused:
            self._ctx.security.failed_logins.note(connection.peer, refused.message)
            connection.abort()

    def _log_refusal(self, peer: str) -> None:
        """Now and then: strangers do not get to fill our log."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refusal_logged_at < REFUSALS_LOGGED_SECONDS:
            return
        self._refusal_logged_at = now_s
        log.warning(
            "refused a connection from %s: %d are open, %d of them its own",
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
                    self._judge(connection, now)
                if number % SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)
                    now = loop.time()

    def _judge(self, connection: KafkaConnection, now: float) -> None:
        quiet = connection.quiet_for(now)
        idle_ms_max = self._limits.idle_ms_max
        is_contended = self.budget.is_contended
        if (
            connection.requests == 0
            and not connection.waits_for_budget
            and now - connection.connected_at > HANDSHAKE_SECONDS
        ):
            reason = "it connected and did not ask anything in time"
        elif connection.is_stranger and now - connection.connected_at > HANDSHAKE_SECONDS:
            reason = "it did not say who it is in time"
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
        self.room.close()
