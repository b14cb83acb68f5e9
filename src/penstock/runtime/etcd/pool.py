"""Connections to etcd: to an endpoint that works, of a member that is new enough, not too many.

Owns: which endpoint is in use, idle connections, who waits for one. Invariants:

- no connection is used before its member said that it is new enough (3.4 and early 3.5 have
  known consistency bugs), nor after a request on it failed;
- connections, and requests that wait for one, are bounded; what is urgent (renewing leases) has
  slots of its own, so that a burst of changes cannot let a lease end.

Leaves to others: tokens and what may be asked twice (`etcd_channel`).
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.base.retry import Retry
from penstock.runtime.etcd import messages
from penstock.runtime.etcd.config import EtcdConfig, Tls, parse_endpoint
from penstock.runtime.etcd.http import EtcdConnection, EtcdEndpoint, connect
from penstock.runtime.random import SystemRandom

log = logging.getLogger("penstock.etcd")

VERSION_MIN = (3, 6)
CONNECTIONS_MAX = 16
URGENT_CONNECTIONS_MAX = 4
WAITING_MAX = 10_000
CONNECT_S = 2.0
"""Until another endpoint is tried; connecting includes the question for the version."""
PAUSE_S = (0.02, 0.5)
"""Bounds of the pause between two attempts, or two rounds through all endpoints."""

Step = Callable[[EtcdConnection], Awaitable[None]]


class EtcdRefused(ConnectionError):
    """etcd says no, and certainly has not done it."""

    def __init__(self, message: str, code: int = messages.CODE_FAILED_PRECONDITION) -> None:
        super().__init__(message)
        self.code = code


class Pool:
    """Each `connect` is followed by a `release`, or by closing the connection."""

    def __init__(self, config: EtcdConfig, prepare: Step) -> None:
        """`prepare` is done with every connection before it is handed out."""
        self._endpoints = [parse_endpoint(text) for text in config.endpoints]
        self._tls = Tls(config)
        self._prepare = prepare
        self._current = 0
        self._idle: dict[EtcdEndpoint, list[EtcdConnection]] = {e: [] for e in self._endpoints}
        self._open: dict[EtcdConnection, None] = {}  # A set with an order.
        self._streams: dict[EtcdConnection, None] = {}
        self._problems: dict[EtcdEndpoint, str] = {}
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._urgent_slots = asyncio.Semaphore(URGENT_CONNECTIONS_MAX)
        self._waiting = 0
        self.is_closed = False

    @asynccontextmanager
    async def slot(self, deadline: float, is_urgent: bool = False) -> AsyncIterator[None]:
        """Room for one request."""
        assert not self.is_closed, "the store is closed"
        slots = self._urgent_slots if is_urgent else self._slots
        if self._waiting >= WAITING_MAX:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many requests wait for etcd")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await slots.acquire()
        except TimeoutError as error:
            raise TimeoutError("too many requests to etcd wait before this one") from error
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            slots.release()

    async def connect(self, deadline: float, rounds: int | None = None) -> EtcdConnection:
        """A connection to the endpoint in use, or to the next that works."""
        failed, retry = 0, retrying()
        while True:
            if self.is_closed:
                raise ConnectionAbortedError("the store was closed")
            endpoint, started = self._endpoints[self._current], now_s()
            try:
                async with asyncio.timeout_at(min(started + CONNECT_S, deadline)):
                    connection = self._take_idle(endpoint) or await self._dial(endpoint)
                    return await _or_close(connection, self._prepare)
            except TimeoutError:
                self.leave(endpoint, late(endpoint, now_s() - started))
            except ConnectionError as error:
                self.leave(endpoint, error)
            failed += 1
            is_round = failed % len(self._endpoints) == 0
            if is_round and rounds is not None and failed >= rounds * len(self._endpoints):
                raise self._unreachable()
            if now_s() >= deadline:
                raise self._unreachable()
            if is_round:
                await retry.pause()

    async def _dial(self, endpoint: EtcdEndpoint) -> EtcdConnection:
        connection = await connect(endpoint, self._tls.context() if endpoint.is_tls else None)
        self._open = {c: None for c in self._open if not c.is_closed}
        self._open[connection] = None
        if self.is_closed:
            connection.close()
        await _or_close(connection, self._check_version)
        if self._problems.pop(endpoint, None) is not None:
            log.info("%s works again", endpoint)
        return connection

    async def _check_version(self, connection: EtcdConnection) -> None:
        endpoint = connection.endpoint
        status, body = await connection.ask("GET", "/version", b"", "")
        try:
            version = messages.decode(messages.VersionAnswer, body).etcdserver
        except msgspec.DecodeError:
            version = ""
        numbers = re.match(r"(\d+)\.(\d+)\.", version)
        if status != 200 or numbers is None:
            raise EtcdRefused(f"{endpoint} does not answer as etcd does (HTTP {status})")
        if (int(numbers[1]), int(numbers[2])) < VERSION_MIN:
            raise EtcdRefused(
                f"{endpoint} is etcd {version}; 3.6 or newer is needed, for older ones have known "
                "bugs that lose consistency: upgrade it, or name other endpoints"
            )

    def _take_idle(self, endpoint: EtcdEndpoint) -> EtcdConnection | None:
        idle = self._idle[endpoint]
        while idle:
            connection = idle.pop()
            if not connection.is_closed:
                return connection
        return None

    def release(self, connection: EtcdConnection) -> None:
        if not connection.is_closed:
            self._idle[connection.endpoint].append(connection)

    def leave(self, endpoint: EtcdEndpoint, error: Exception) -> None:
        """The next request goes to the next endpoint, on new connections."""
        reason = str(error)
        if self._problems.get(endpoint) != reason and not self.is_closed:
            log.warning("etcd: %s", reason)
        self._problems[endpoint] = reason
        for connection in self._idle[endpoint]:
            connection.close()
        self._idle[endpoint].clear()
        if isinstance(error, TimeoutError) and len(self._endpoints) > 1:
            # Streams from a stopped member would wait in vain; what was sent there may yet come.
            for stream in [one for one in self._streams if one.endpoint == endpoint]:
                stream.close(f"left: {reason}")
        if self._endpoints[self._current] == endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    def _unreachable(self) -> ConnectionError:
        reasons = "; ".join(self._problems.values())
        return ConnectionError(f"etcd cannot be used: {reasons}")

    async def check(self, endpoint: EtcdEndpoint, deadline: float) -> None:
        """Whether that member still answers at all; raises ConnectionError or TimeoutError."""
        async with self.slot(deadline, is_urgent=True):
            try:
                async with asyncio.timeout(CONNECT_S):
                    connection = self._take_idle(endpoint)
                    if connection is None:
                        connection = await self._dial(endpoint)
                    else:
                        await _or_close(connection, self._check_version)
            except TimeoutError as error:
                raise late(endpoint, CONNECT_S) from error
            self.release(connection)

    def add_stream(self, connection: EtcdConnection) -> None:
        """It will be used until it ends; leaving its endpoint because it is silent ends it."""
        self._streams = {c: None for c in self._streams if not c.is_closed}
        self._streams[connection] = None

    def close(self) -> None:
        self.is_closed = True
        for connection in list(self._open):
            connection.close()
        self._open.clear()


def now_s() -> float:
    return asyncio.get_running_loop().time()


def retrying() -> Retry:
    """The pauses before new attempts of one request."""
    return Retry(SystemRandom(), *PAUSE_S)


async def _or_close(connection: EtcdConnection, step: Step) -> EtcdConnection:
    """The connection after a step on it; one that failed, or was not waited for, is of no use."""
    try:
        await step(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def late(endpoint: EtcdEndpoint, seconds: float) -> TimeoutError:
    return TimeoutError(f"{endpoint} did not answer within {seconds:.1f} s")
