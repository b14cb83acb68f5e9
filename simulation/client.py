"""Simulated client: a process on its own host that sends requests one by one.

Uses the real client code (`penstock.client`) for connections, version negotiation, metadata and
coordinator lookup. It does not retry: each request has one of three outcomes, which the workload
must distinguish (RELIABILITY, 1.3):

- a reply with Kafka's error code;
- `Unreachable`: certainly not executed, since it was never sent;
- `ConnectionLost` or `RequestTimeout`: unknown; it may be executed, now or later.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection, ConnectionConfig
from penstock.client.coordinators import find_coordinator
from penstock.client.errors import ConnectionLost, RequestTimeout, Unreachable, code_of
from penstock.client.metadata import TopicInfo, TopicPartition
from penstock.wire.schema import wire_of
from simulation.disk import PowerCut
from simulation.random import SimRandom

if TYPE_CHECKING:
    from simulation.world import World

Answer = TypeVar("Answer")

UNKNOWN_OUTCOME = (ConnectionLost, RequestTimeout)
"""Errors of a request that may or may not have been executed."""
NO_REPLY = (Unreachable, ConnectionLost, RequestTimeout)
"""Errors of a request without a reply."""
CONNECT_TIMEOUT_MS = 2_000
REQUEST_TIMEOUT_MS = 4_000
LONG_TIMEOUT_MS = 60_000
WRONG_BROKER = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Error codes after which a client looks up the leader or coordinator again."""


class SimClient:
    """Client process, created by `World.client`."""

    def __init__(self, world: "World", name: str, *, has_long_timeouts: bool = False) -> None:
        self.world = world
        self.name = name
        self.process = world.loop.process(name)
        config = ConnectionConfig(
            client_id=name,
            connect_timeout_ms=LONG_TIMEOUT_MS if has_long_timeouts else CONNECT_TIMEOUT_MS,
            request_timeout_ms=LONG_TIMEOUT_MS if has_long_timeouts else REQUEST_TIMEOUT_MS,
        )
        random = SimRandom(world.rng(f"client/{name}/{world.now()}").getrandbits(64))
        self.cluster = Cluster(random, world.cluster.addresses, config)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._is_metadata_stale = False
        """True while the known leaders may be outdated."""

    @property
    def is_dead(self) -> bool:
        return self.process.is_dead

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` in this process. An exception is a violation: clients handle errors."""
        self.process.start(self._supervise(work))

    async def _supervise(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (asyncio.CancelledError, PowerCut):
            raise
        except BaseException as error:
            self.world.crashed(self.name, error)
            raise

    def kill(self, *, silent: bool) -> None:
        """Kills the process; with `silent` its peers get no reset."""
        self.process.kill()
        self.world.loop.net.crash(self.name, silent=silent)

    # -- requests ---------------------------------------------------------------------------

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: object,
        answer: type[Answer],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """Calls the coordinator of a group (kind 0) or a transactional id (kind 1)."""
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            await self._bootstrap()
            try:
                node_id = await find_coordinator(self.cluster, kind, key)
            except (ConnectionLost, RequestTimeout, Refused) as error:
                raise Unreachable(f"no coordinator: {error}") from error
            self._coordinators[kind, key] = node_id
        try:
            return await self._ask(node_id, request, answer, version, timeout_ms)
        except NO_REPLY:
            self._coordinators.pop((kind, key), None)
            raise

    def coordinator_of(self, kind: int, key: str) -> int | None:
        """Last known coordinator of the key."""
        return self._coordinators.get((kind, key))

    async def ask_leader(
        self,
        where: TopicPartition,
        request: object,
        answer: type[Answer],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """Calls the leader of a partition."""
        await self._bootstrap()
        if self._is_metadata_stale:
            self._is_metadata_stale = False
            await self.cluster.refresh_quietly((where.topic,))
        try:
            node_id = await self.cluster.leader(where)
        except (ConnectionLost, RequestTimeout, Refused) as error:
            self._is_metadata_stale = True
            raise Unreachable(f"no leader: {error}") from error
        try:
            return await self._ask(node_id, request, answer, version, timeout_ms)
        except NO_REPLY:
            self._is_metadata_stale = True
            raise

    async def ask_any(self, request: object, answer: type[Answer]) -> Answer:
        """Calls any broker."""
        await self._bootstrap()
        connection = await self.cluster.any_connection()
        return await self._send(connection, request, answer, None, None)

    async def topic(self, name: str) -> TopicInfo:
        """Metadata of a topic, requested if unknown."""
        await self._bootstrap()
        try:
            return await self.cluster.topic(name)
        except (ConnectionLost, RequestTimeout, Refused) as error:
            raise Unreachable(str(error)) from error

    def note_reply(self, request: str, code: int, kind: int = 0, key: str = "") -> ErrorCode:
        """Records an error code; forgets the coordinator and leaders if it says so."""
        found = code_of(code)
        self.world.reached(f"{request} {found.name}")
        self.world.note(self.name, (request, key, found.name))
        if found is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.world.violate("exception", f"{request} was answered with {found.name}")
        if found in WRONG_BROKER:
            self._coordinators.pop((kind, key), None)
            self._is_metadata_stale = True
        return found

    # -- internals --------------------------------------------------------------------------

    async def _bootstrap(self) -> None:
        if not self.cluster.metadata.brokers:
            try:
                await self.cluster.bootstrap()
            except (ConnectionLost, RequestTimeout) as error:
                raise Unreachable(str(error)) from error

    async def _ask(
        self,
        node_id: int,
        request: object,
        answer: type[Answer],
        version: int | None,
        timeout_ms: int | None,
    ) -> Answer:
        try:
            connection = await self.cluster.connection(node_id)
        except (ConnectionLost, RequestTimeout, PeerError) as error:
            raise Unreachable(str(error)) from error
        return await self._send(connection, request, answer, version, timeout_ms)

    async def _send(
        self,
        connection: Connection,
        request: object,
        answer: type[Answer],
        version: int | None,
        timeout_ms: int | None,
    ) -> Answer:
        self.world.sends(self.name, wire_of(type(request)).name.removesuffix("Request"), request)
        return await connection.call(request, answer, version=version, timeout_ms=timeout_ms)
