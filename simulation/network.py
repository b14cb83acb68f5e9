"""Simulated network: hosts by name, routes between them, and faults.

A connection is two byte streams that keep their order; different connections overtake each other.
All random choices come from the loop's seed. Controls for tests:

- `latency_s`: range of the latency of a packet; `slow(a, b, ...)` for one route;
- `whole_ratio`: fraction of writes that arrive in one piece; others are split at random;
- `cut(a, b)`: drops packets from a to b, one way or both; they arrive after `heal`, as TCP
  retransmits. Connecting over a cut times out. Neither end is notified: the connection is half open
  until a deadline of one end closes it;
- `pause(host)`: packets wait until `resume`, as for a stopped process;
- `reset(a, b)`: breaks connections between the two, with an error at both ends;
- `crash(host)`: removes its servers and connections; its peers are reset, or with `silent=True`
  notice nothing until they send to it, as when a machine loses power.

The host that code runs on is a context variable, inherited by tasks and callbacks:
`loop.create_task(node.run(), context=host_context("node-1"))`.
"""

import asyncio
import contextvars
import itertools
import random
from collections.abc import Callable
from typing import Any

from simulation.transport import Packet, SimTransport

HOST: contextvars.ContextVar[str] = contextvars.ContextVar("simulated_host", default="localhost")

_HERE = ("", "0.0.0.0", "::", "localhost", "127.0.0.1", "::1")  # noqa: S104
_FIRST_PORT = 30_000


def host_context(host: str) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(HOST.set, host)
    return context


class SimSocket:
    """Listening socket with the methods that servers use."""

    def __init__(self, name: tuple[str, int]) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Does nothing: data is always sent immediately."""


class SimServer(asyncio.AbstractServer):
    def __init__(
        self,
        net: "SimNet",
        name: tuple[str, int],
        factory: Callable[[], asyncio.BaseProtocol],
        context: contextvars.Context,
    ) -> None:
        self.name = name
        self.factory = factory
        self.context = context
        self.sockets: tuple[SimSocket, ...] = (SimSocket(name),)
        self._net = net

    def is_serving(self) -> bool:
        return self._net.servers.get(self.name) is self

    async def start_serving(self) -> None:
        self._net.servers[self.name] = self

    async def serve_forever(self) -> None:
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        if self.is_serving():
            del self._net.servers[self.name]
        self.sockets = ()

    async def wait_closed(self) -> None:
        pass

    def get_loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self._net.loop
        return loop


class SimNet:
    def __init__(self, loop: Any, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.latency_s = (0.0001, 0.001)
        self.whole_ratio = 0.9
        self.window_bytes = 128 * 1024
        self.connect_timeout_s = 30.0
        self.servers: dict[tuple[str, int], SimServer] = {}
        self.transports: dict[int, SimTransport] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._slow: dict[tuple[str, str], tuple[float, float]] = {}
        self._paused: dict[str, None] = {}
        self._stalled: dict[int, SimTransport] = {}
        self._numbers = itertools.count(1)
        self._ports = itertools.count(_FIRST_PORT)
        # Belongs to no process, so that packets in flight arrive even if the sender dies.
        self._context = contextvars.Context()

    # Used by the loop.

    def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        start_serving: bool = True,
        **options: Any,
    ) -> SimServer:
        _refuse(options)
        name = (_host_of(host), port or next(self._ports))
        if name in self.servers:
            raise OSError(98, f"Address already in use: {name}")
        server = SimServer(self, name, protocol_factory, contextvars.copy_context())
        if start_serving:
            self.servers[name] = server
        return server

    async def connect(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        local_addr: tuple[str, int] | None = None,
        **options: Any,
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        _refuse(options)
        assert port is not None
        here = _host_of(local_addr[0] if local_addr else None)
        there = _host_of(host)
        await self._cross(here, there)
        server = self.servers.get((there, port))
        if server is None:
            await self._cross(there, here)
            raise ConnectionRefusedError(111, f"Connection refused: {there}:{port}")
        near, far = self._pair((here, next(self._ports)), server)
        self.loop.call_soon(_accept, server, far, context=server.context)
        try:
            await self._cross(there, here)
            protocol = protocol_factory()
            near.start(protocol)
        except BaseException:
            near.abort()
            raise
        return near, protocol

    # Fault injection by tests.

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        self._cut[source, target] = None
        if both:
            self._cut[target, source] = None

    def isolate(self, host: str, others: list[str]) -> None:
        for other in others:
            self.cut(host, other)

    def heal(self) -> None:
        """Restores all routes; resends packets."""
        self._cut.clear()
        self._slow.clear()
        self._send_again()

    def mend(self, source: str, target: str) -> None:
        """Restores one route, both ways; resends packets."""
        for route in ((source, target), (target, source)):
            self._cut.pop(route, None)
            self._slow.pop(route, None)
        self._send_again()

    def pause(self, host: str) -> None:
        self._paused[host] = None

    def resume(self, host: str) -> None:
        self._paused.pop(host, None)
        self._send_again()

    def slow(self, source: str, target: str, latency_s: tuple[float, float]) -> None:
        self._slow[source, target] = latency_s

    def reset(self, one: str, other: str) -> int:
        """Resets the connections between two hosts; returns their number."""
        ends = [
            end
            for end in self.transports.values()
            if (end.host, end.peer.host) in ((one, other), (other, one))
        ]
        for end in ends:
            self.loop.call_soon(end.deliver, None, context=end.context)
        return len(ends)

    def crash(self, host: str, *, silent: bool = False) -> None:
        for name in [name for name in self.servers if name[0] == host]:
            del self.servers[name]
        for end in [end for end in self.transports.values() if end.host == host]:
            if not silent:
                self.send(end, None)
            end.kill()

    def _send_again(self) -> None:
        """Resends packets of routes that are not cut any more."""
        for number, transport in list(self._stalled.items()):
            if not self._is_blocked(transport.host, transport.peer.host):
                del self._stalled[number]
                count, transport.stalled = transport.stalled, 0
                for _ in range(count):
                    self._schedule(transport)

    # Used by transports.

    def segment_bytes(self, available: int) -> int:
        if self.rng.random() < self.whole_ratio:
            return available
        return self.rng.randint(1, available)

    def send(self, source: SimTransport, packet: Packet) -> None:
        source.flight.append(packet)
        self._schedule(source)

    def forget(self, transport: SimTransport) -> None:
        self.transports.pop(transport.number, None)

    # Internals.

    def _is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._cut or target in self._paused

    def _schedule(self, source: SimTransport) -> None:
        """Schedules the arrival of one packet of `source`: always the first in flight."""
        target = source.peer
        latency_s = self._latency_s(source.host, target.host)
        source.due = max(source.due, self.loop.time() + latency_s)
        self.loop.call_at(source.due, self._arrive, source, context=self._context)

    def _arrive(self, source: SimTransport) -> None:
        if self._is_blocked(source.host, source.peer.host):
            source.stalled += 1
            self._stalled[source.number] = source
        elif source.flight:
            target = source.peer
            target.context.run(target.deliver, source.flight.popleft())

    def _latency_s(self, source: str, target: str) -> float:
        return self.rng.uniform(*self._slow.get((source, target), self.latency_s))

    async def _cross(self, source: str, target: str) -> None:
        """Waits for the latency of a handshake packet; retries while the route is cut."""
        deadline = self.loop.time() + self.connect_timeout_s
        await asyncio.sleep(self._latency_s(source, target))
        while self._is_blocked(source, target):
            if self.loop.time() > deadline:
                raise TimeoutError(110, f"Connection timed out: {source} to {target}")
            await asyncio.sleep(0.2)

    def _pair(self, here: tuple[str, int], server: SimServer) -> tuple[SimTransport, SimTransport]:
        near_names = {"sockname": here, "peername": server.name}
        far_names = {"sockname": server.name, "peername": here}
        near = SimTransport(
            self.loop, self, next(self._numbers), here[0], contextvars.copy_context(), near_names
        )
        far = SimTransport(
            self.loop, self, next(self._numbers), server.name[0], server.context, far_names
        )
        near.peer, far.peer = far, near
        self.transports[near.number] = near
        self.transports[far.number] = far
        return near, far


def _accept(server: SimServer, transport: SimTransport) -> None:
    if not transport.dead:
        transport.start(server.factory())


def _host_of(host: str | None) -> str:
    return HOST.get() if host is None or host in _HERE else host


def _refuse(options: dict[str, Any]) -> None:
    if options.get("ssl") or options.get("sock"):
        raise RuntimeError("no TLS and no real sockets in simulation")
