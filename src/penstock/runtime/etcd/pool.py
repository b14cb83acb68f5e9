"""Connection pool for etcd: a working endpoint, a supported version, a bounded number.

Owns the current endpoint, idle connections and the requests that wait for one. Invariants:

- a connection is used only after its member reported a supported version (3.4 and early 3.5 have
  known consistency bugs), and not after a request on it failed;
- connections, and requests that wait for one, are bounded; urgent requests (lease renewals) have
  slots of their own, so that a burst of changes cannot let a lease expire.

`channel` handles tokens and retries.
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
"""Timeout of a connection attempt, version check included, before another endpoint is tried."""
PAUSE_S = (0.02, 0.5)
"""Bounds of the backoff between attempts, or between rounds through all endpoints."""

Step = Callable[[EtcdConnection], Awaitable[None]]


class EtcdRefused(ConnectionError):
    """etcd refused the request, and certainly has not applied it."""

    def __init__(self, message: str, code: int = messages.CODE_FAILED_PRECONDITION) -> None:
        super().__init__(message)
        self.code = code


class Pool:
    """Connection pool; each `connect` must be followed by `release`, or by a close."""

    def __init__(self, config: EtcdConfig, prepare: Step) -> None:
        """`prepare` runs on every connection before `connect` returns it."""
        self._endpoints = [parse_endpoint(text) for text in config.endpoints]
        self._tls = Tls(config)
        self._prepare = prepare
        self._current = 0
        self._idle: dict[EtcdEndpoint, list[EtcdConnection]] = {e: [] for e in self._endpoints}
        self._open: dict[EtcdConnection, None] = {}  # An ordered set.
        self._streams: dict[EtcdConnection, None] = {}
        self._problems: dict[EtcdEndpoint, str] = {}
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._urgent_slots = asyncio.Semaphore(URGENT_CONNECTIONS_MAX)
        self._waiting = 0
        self.is_closed = False

    @asynccontextmanager
    async def slot(self, deadline: float, is_urgent: bool = False) -> AsyncIterator[None]:
        """Slot for one request."""
        assert not self.is_closed, "the store is closed"
        slots = self._urgent_slots if is_urgent else self._slots
        if self._waiting >= WAITING_MAX:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{WAITING_MAX} requests to etcd are queued already: retry later",
            )
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await slots.acquire()
        except TimeoutError as error:
            raise TimeoutError("timed out behind other requests to etcd") from error
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            slots.release()

    async def connect(self, deadline: float, rounds: int | None = None) -> EtcdConnection:
        """Connection to the current endpoint, or to the next one that works."""
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
                reason = late(endpoint, now_s() - started)
                if deadline < started + CONNECT_S and endpoint in self._problems:
                    # The deadline ended the attempt early: the earlier failure says more.
                    reason = TimeoutError(self._problems[endpoint])
                self.leave(endpoint, reason)
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
            log.info("etcd endpoint %s works again", endpoint)
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
            raise EtcdRefused(f"{endpoint} does not respond like etcd (HTTP status {status})")
        if (int(numbers[1]), int(numbers[2])) < VERSION_MIN:
            raise EtcdRefused(
                f"{endpoint} is etcd {version}; 3.6 or newer is required, because older versions "
                "have known consistency bugs: upgrade it, or configure other endpoints"
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
        """Switches to the next endpoint after an error, and drops idle connections to this one."""
        reason = str(error)
        if self._problems.get(endpoint) != reason and not self.is_closed:
            log.warning("etcd: %s", reason)
        self._problems[endpoint] = reason
        for connection in self._idle[endpoint]:
            connection.close()
        self._idle[endpoint].clear()
        if isinstance(error, TimeoutError) and len(self._endpoints) > 1:
            # Streams from a stopped member would wait in vain; requests in progress may complete.
            for stream in [one for one in self._streams if one.endpoint == endpoint]:
                stream.close(f"left: {reason}")
        if self._endpoints[self._current] == endpoint:
            self._current = (self._current + 1) % len(self._endpoints)

    def _unreachable(self) -> ConnectionError:
        reasons = "; ".join(self._problems.values())
        return ConnectionError(f"no etcd endpoint works: {reasons}")

    async def check(self, endpoint: EtcdEndpoint, deadline: float) -> None:
        """Checks that the member responds; raises ConnectionError or TimeoutError."""
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
        """Registers a streaming connection, to be closed when its endpoint stops responding."""
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
    """Backoff before new attempts of one request."""
    return Retry(SystemRandom(), *PAUSE_S)


async def _or_close(connection: EtcdConnection, step: Step) -> EtcdConnection:
    """Runs a step on a connection; closes it if the step fails or is cancelled."""
    try:
        await step(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def late(endpoint: EtcdEndpoint, seconds: float) -> TimeoutError:
    return TimeoutError(f"{endpoint} did not respond within {seconds:.1f} s")
