"""A simulated client: a process on a host of its own, and requests one by one.

It speaks through the real client code (`penstock.client`): connections, version negotiation,
metadata, the search for coordinators. It does not retry: each request has one of three fates, and
whoever sends it must know which (RELIABILITY, 1.3):

- an answer, with Kafka's code in it;
- `Unreachable`: it was certainly not done, since it was never sent;
- `ConnectionLost` or `RequestTimeout`: unknown; it may be done, now or later.
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

UNKNOWN = (ConnectionLost, RequestTimeout)
"""The request may or may not have been done."""
LOST = (Unreachable, ConnectionLost, RequestTimeout)
"""There is no answer."""
CONNECT_TIMEOUT_MS = 2_000
REQUEST_TIMEOUT_MS = 4_000
PATIENCE_MS = 60_000
ELSEWHERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Answers after which a client looks again who is in charge."""


class SimClient:
    """One client process. Made by `World.client`."""

    def __init__(self, world: "World", name: str, *, is_patient: bool = False) -> None:
        self.world = world
        self.name = name
        self.process = world.loop.process(name)
        config = ConnectionConfig(
            client_id=name,
            connect_timeout_ms=PATIENCE_MS if is_patient else CONNECT_TIMEOUT_MS,
            request_timeout_ms=PATIENCE_MS if is_patient else REQUEST_TIMEOUT_MS,
        )
        random = SimRandom(world.rng(f"client/{name}/{world.now()}").getrandbits(64))
        self.cluster = Cluster(random, world.cluster.addresses, config)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._is_lost = False
        """What is known about leaders may be out of date."""

    @property
    def is_dead(self) -> bool:
        return self.process.is_dead

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` in this process. What it raises is a violation: clients handle errors."""
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
        """The process is gone; with `silent` the other end does not hear of it."""
        self.process.kill()
        self.world.loop.net.crash(self.name, silent=silent)

    # -- asking -----------------------------------------------------------------------------

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
        """Asks whoever coordinates a group (kind 0) or a transactional id (kind 1)."""
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
        except LOST:
            self._coordinators.pop((kind, key), None)
            raise

    def coordinator_of(self, kind: int, key: str) -> int | None:
        """Coordinator of the key, as far as known."""
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
        """Asks the leader of a partition."""
        await self._bootstrap()
        if self._is_lost:
            self._is_lost = False
            await self.cluster.refresh_quietly((where.topic,))
        try:
            node_id = await self.cluster.leader(where)
        except (ConnectionLost, RequestTimeout, Refused) as error:
            self._is_lost = True
            raise Unreachable(f"no leader: {error}") from error
        try:
            return await self._ask(node_id, request, answer, version, timeout_ms)
        except LOST:
            self._is_lost = True
            raise

    async def ask_any(self, request: object, answer: type[Answer]) -> Answer:
        """Asks any broker."""
        await self._bootstrap()
        connection = await self.cluster.any_connection()
        return await self._send(connection, request, answer, None, None)

    async def topic(self, name: str) -> TopicInfo:
        """What is known about a topic; asked for, if nothing is."""
        await self._bootstrap()
        try:
            return await self.cluster.topic(name)
        except (ConnectionLost, RequestTimeout, Refused) as error:
            raise Unreachable(str(error)) from error

    def told(self, request: str, code: int, kind: int = 0, key: str = "") -> ErrorCode:
        """Takes note of an answer; forgets the coordinator if it says so."""
        found = code_of(code)
        self.world.reached(f"{request} {found.name}")
        self.world.note(self.name, (request, key, found.name))
        if found is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.world.violate("exception", f"{request} was answered with {found.name}")
        if found in ELSEWHERE:
            self._coordinators.pop((kind, key), None)
            self._is_lost = True
        return found

    # -- within -----------------------------------------------------------------------------

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
