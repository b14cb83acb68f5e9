"""Client of a cluster: connections by node, metadata, routing to leaders, retries.

Owns the connections (one per node, opened on first use and again after a loss) and the cached
`Metadata`. Admin, producer and consumer send their requests through it.

Retries are bounded by time and by kind. A refusal that a retry cannot change is raised at once. A
request on a lost connection is retried only if the caller says that it is idempotent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, Workers
from penstock.base.retry import Backoff
from penstock.client.connection import Address, Connection, ConnectionConfig, connect
from penstock.client.errors import (
    RETRIABLE,
    STALE_METADATA,
    ConnectionLost,
    RequestTimeout,
    Unreachable,
    Untrusted,
)
from penstock.client.metadata import Metadata, TopicInfo, TopicPartition
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

Answer = TypeVar("Answer")
T = TypeVar("T")

# A new topic may be unknown to another broker for a moment, but a user who misspelt a name should
# not wait long for the error.
_UNKNOWN_TOPIC_TRIES = 4
# Auto-creation of a topic takes longer.
_NEW_TOPIC_TRIES = 10
METADATA_AGE_MAX_S = 300.0
"""Age from which metadata is refreshed, in seconds."""


def parse_brokers(text: str) -> list[Address]:
    """Parses `host:port,host:port`; the port defaults to 9092, an IPv6 host is in brackets."""
    addresses = []
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        if part.startswith("["):
            host, _, rest = part[1:].partition("]")
            port = rest.removeprefix(":")
        else:
            host, _, port = part.partition(":")
        if not host or not (port.isdigit() or not port) or int(port or 9092) > 65535:
            raise ValueError(f"{part!r} is not a broker address: write host:port")
        addresses.append(Address(host, int(port or 9092)))
    if not addresses:
        raise ValueError("broker address is missing: write host:port, several separated by commas")
    return addresses


class Cluster:
    """Client of a cluster, from `bootstrap` until `close`; also a context manager."""

    def __init__(
        self,
        random: Random,
        addresses: Sequence[Address],
        config: ConnectionConfig | None = None,
        *,
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
        workers: Workers | None = None,
    ) -> None:
        """`workers` decode fetched records, for callers that must not block the event loop."""
        assert addresses
        self.addresses = list(addresses)
        self.config = config or ConnectionConfig()
        self.random = random
        self.workers = workers
        self.backoff = Backoff(random)
        self.metadata = Metadata()
        self.coordinators: dict[tuple[int, str], int] | None = None
        """Cache of the `coordinators` module; set to {} to enable it."""
        self._authenticate = authenticate
        self._connections: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None
        self._failed_addresses: dict[Address, None] = {}
        """Addresses that failed to answer a metadata request since the last reply."""
        self._connecting: dict[int, asyncio.Task[Connection]] = {}
        self._refreshing: dict[tuple[str, ...] | None, asyncio.Task[None]] = {}

    async def __aenter__(self) -> "Cluster":
        await self.bootstrap()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def bootstrap(self) -> None:
        """Connects to any broker and gets the list of brokers; raises if none is reachable."""
        await self.refresh(())

    async def close(self) -> None:
        tasks = [*self._connecting.values(), *self._refreshing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = [*self._connections.values()]
        if self._bootstrap is not None:
            connections.append(self._bootstrap)
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()
        self._connections.clear()
        self._bootstrap = None

    # Connections.

    async def connection(self, node_id: int) -> Connection:
        """Returns the connection to a node, opened if needed; callers share one attempt."""
        ready = self.ready(node_id)
        return ready if ready is not None else await asyncio.shield(self._connecting[node_id])

    def ready(self, node_id: int) -> Connection | None:
        """Returns the open connection to a node; otherwise starts to open one and returns None."""
        known = self._connections.get(node_id)
        if known is not None and not known.is_closed:
            return known
        if node_id not in self._connecting:
            task = asyncio.get_running_loop().create_task(self._open(node_id))
            self._connecting[node_id] = task
            task.add_done_callback(lambda done: self._opened(node_id, done))
        return None

    def connecting(self, node_id: int) -> "asyncio.Task[Connection] | None":
        """Returns the attempt to connect that `ready` started."""
        return self._connecting.get(node_id)

    async def _open(self, node_id: int) -> Connection:
        connection = self._connections[node_id] = await self.open_connection(node_id)
        return connection

    async def open_connection(self, node_id: int) -> Connection:
        """Opens a separate connection for a session or long polls; the caller must close it."""
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise Unreachable(
                f"broker {node_id} is not in the metadata of the cluster; is it down?"
            )
        return await connect(broker.address, self.config, self._authenticate)

    def _opened(self, node_id: int, task: "asyncio.Task[Connection]") -> None:
        del self._connecting[node_id]
        if not task.cancelled():
            task.exception()  # Marked as retrieved: a waiting caller gets it, if there is one.

    async def any_connection(self) -> Connection:
        """Returns an open connection to any broker, opened if needed.

        The bootstrap connection comes first: it carries no fetches, so that a request never waits
        behind a long poll. A broker that failed to answer a metadata request comes last: it may be
        partitioned from the others and would fail again.
        """
        for known in (self._bootstrap, *self._connections.values()):
            if (
                known is not None
                and not known.is_closed
                and known.address not in self._failed_addresses
            ):
                return known
        failure: Unreachable | None = None
        brokers = [broker.address for broker in self.metadata.brokers.values()]
        addresses = dict.fromkeys((*brokers, *self.addresses))
        for address in sorted(addresses, key=self._failed_addresses.__contains__):
            try:
                self._bootstrap = await connect(address, self.config, self._authenticate)
            except Unreachable as error:
                failure = failure or error
            else:
                return self._bootstrap
        assert failure is not None
        raise failure

    # Requests.

    async def call(
        self,
        request: object,
        answer: type[Answer],
        *,
        node_id: int | None = None,
        timeout_ms: int | None = None,
        version_max: int | None = None,
    ) -> Answer:
        """Sends one request to one node, or to any, without retries."""
        if node_id is None:
            connection = await self.any_connection()
        else:
            connection = await self.connection(node_id)
        version = connection.version_of(type(request), version_max)
        return await connection.call(request, answer, version=version, timeout_ms=timeout_ms)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int | None = None,
        is_repeatable: bool = True,
        topics: Collection[str] = (),
        unknown_topic_tries: int = _UNKNOWN_TOPIC_TRIES,
    ) -> T:
        """Calls `attempt` until it succeeds, fails permanently, or the timeout is reached.

        `is_repeatable` is True for an idempotent request: only then is it sent again if its
        outcome is unknown. If the failure means that metadata is stale, the metadata of `topics`
        is refreshed before a retry.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + (timeout_ms or self.config.request_timeout_ms) / 1000
        tries = 0
        while True:
            try:
                return await attempt()
            except Refused as error:
                if error.code not in RETRIABLE:
                    raise
                unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                failure: Exception = error
                if unknown and tries + 1 >= unknown_topic_tries:
                    raise
                is_stale = error.code in STALE_METADATA
            except Untrusted:
                raise
            except (Unreachable, ConnectionLost, RequestTimeout) as error:
                if not is_repeatable and not isinstance(error, Unreachable):
                    raise
                failure, is_stale = error, True
            delay_s = self.backoff.delay_s(tries)
            if loop.time() + delay_s >= end:
                raise failure
            await asyncio.sleep(delay_s)
            tries += 1
            if is_stale:
                await self.refresh_quietly(topics)

    # Metadata.

    async def refresh(
        self, topics: Collection[str] | None = None, *, auto_create: bool = False
    ) -> None:
        """Requests metadata of these topics (None: all, empty: only brokers), without retries."""
        key = None if topics is None else (*sorted(topics), *(("",) if auto_create else ()))
        task = self._refreshing.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._refresh(topics, auto_create))
            self._refreshing[key] = task
            task.add_done_callback(lambda done: self._refreshed(key, done))
        await asyncio.shield(task)

    async def refresh_quietly(self, topics: Collection[str]) -> None:
        """Works like `refresh`, but ignores failures."""
        try:
            await self.refresh(topics)
        except (Unreachable, ConnectionLost, RequestTimeout, Refused):
            return

    def _refreshed(self, key: tuple[str, ...] | None, task: "asyncio.Task[None]") -> None:
        del self._refreshing[key]
        if not task.cancelled():
            task.exception()

    async def _refresh(self, topics: Collection[str] | None, auto_create: bool) -> None:
        rows = None if topics is None else [MetadataRequestTopic(name=t) for t in sorted(topics)]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=auto_create)
        reply = await self._ask_for_metadata(request)
        self.metadata = self.metadata.merge(
            reply, is_full=topics is None, at=asyncio.get_running_loop().time()
        )

    async def _ask_for_metadata(self, request: MetadataRequest) -> MetadataResponse:
        while True:
            connection = await self.any_connection()
            is_last = connection.address in self._failed_addresses
            try:
                reply = await connection.call(request, MetadataResponse)
            except (ConnectionLost, RequestTimeout) as error:
                self._failed_addresses[connection.address] = None
                if is_last or isinstance(error, RequestTimeout):
                    raise
            else:
                self._failed_addresses.clear()
                return reply

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """Returns a topic from the cache, or requests it if it is unknown or stale."""
        known = self.metadata.topics.get(name)
        age_s = asyncio.get_running_loop().time() - self.metadata.at
        if known is not None and age_s < METADATA_AGE_MAX_S:
            return known

        async def look() -> TopicInfo:
            await self.refresh((name,), auto_create=auto_create)
            return self.known_topic(name)

        tries = _NEW_TOPIC_TRIES if auto_create else _UNKNOWN_TOPIC_TRIES
        return await self.retrying(look, unknown_topic_tries=tries)

    def known_topic(self, name: str) -> TopicInfo:
        """Returns the topic in the cached metadata. Raises Refused with the broker's error."""
        known = self.metadata.topics.get(name)
        if known is not None:
            return known
        code = self.metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        match code:
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                text = f"topic {name!r} does not exist"
            case ErrorCode.INVALID_TOPIC_EXCEPTION:
                text = (
                    f"{name!r} is not a valid topic name: use up to 249 letters, digits, "
                    "'.', '_' and '-'"
                )
            case ErrorCode.LEADER_NOT_AVAILABLE:
                text = f"topic {name!r} has no leader yet"
            case _:
                text = f"topic {name!r}: {code.name}"
        raise Refused(code, text)

    async def leader(self, where: TopicPartition) -> int:
        """Returns the leader of a partition. Raises Refused if it has none at the moment."""
        topic = await self.topic(where.topic)
        leader_id = self.metadata.leader_of(where)
        if where.partition not in topic.partitions:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {where.topic!r} has {len(topic.partitions)} partitions, "
                f"0-{len(topic.partitions) - 1}: there is no partition {where.partition}",
            )
        if leader_id < 0:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader at the moment")
        return leader_id

    async def by_leader(
        self, partitions: Collection[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Groups partitions by their leader, each group sorted."""
        groups: dict[int, list[TopicPartition]] = {}
        for where in sorted(partitions):
            groups.setdefault(await self.leader(where), []).append(where)
        return groups

    def version_of(self, node_id: int, request: type[Any]) -> int | None:
        """Returns the version of a request on the open connection to a node, if there is one."""
        connection = self._connections.get(node_id)
        return None if connection is None else connection.version_of(request)
