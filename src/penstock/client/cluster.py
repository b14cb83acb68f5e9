"""One client's view of a cluster: connections by node, metadata, routing to leaders, retries.

Owns the connections (one per node, opened on first use, opened again after a loss) and the
cached `Metadata`. Leaves to admin, producer and consumer what to ask.

Retries are bounded by time and by kind: a refusal that another try cannot change is raised at
once; a lost connection is retried only by callers for whom doing it twice is harmless.
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

# A topic that was just created may be unknown to another broker for a moment, but someone who
# misspelt a name should not wait long for the answer.
_UNKNOWN_TOPIC_TRIES = 4
# A topic that is being created for us takes its time.
_NEW_TOPIC_TRIES = 10
METADATA_AGE_MAX_S = 300.0


def parse_brokers(text: str) -> list[Address]:
    """`host:port,host:port`; the port defaults to 9092, an IPv6 host stands in brackets."""
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
            raise ValueError(f"{part!r} is not a broker address; write host:port")
        addresses.append(Address(host, int(port or 9092)))
    if not addresses:
        raise ValueError("no broker address; write host:port, several separated by commas")
    return addresses


class Cluster:
    """Start with `await bootstrap()`; end with `await close()`, or use `async with`."""

    def __init__(
        self,
        random: Random,
        addresses: Sequence[Address],
        config: ConnectionConfig | None = None,
        *,
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
        workers: Workers | None = None,
    ) -> None:
        """`workers` open what was fetched, for those who share the loop with others."""
        assert addresses
        self.addresses = list(addresses)
        self.config = config or ConnectionConfig()
        self.random = random
        self.workers = workers
        self.backoff = Backoff(random)
        self.metadata = Metadata()
        self.coordinators: dict[tuple[int, str], int] | None = None
        """Set to {} where `coordinators` should remember who they are."""
        self._authenticate = authenticate
        self._connections: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None
        self._unhelpful: dict[Address, None] = {}
        """Addresses that were asked for metadata since the last answer."""
        self._connecting: dict[int, asyncio.Task[Connection]] = {}
        self._refreshing: dict[tuple[str, ...] | None, asyncio.Task[None]] = {}

    async def __aenter__(self) -> "Cluster":
        await self.bootstrap()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def bootstrap(self) -> None:
        """Reaches some broker and learns who is there. Fails at once if none can be reached."""
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
        """The connection to a node, opened if need be; several callers share one attempt."""
        ready = self.ready(node_id)
        return ready if ready is not None else await asyncio.shield(self._connecting[node_id])

    def ready(self, node_id: int) -> Connection | None:
        """The open connection to a node, or None and one begins to open."""
        known = self._connections.get(node_id)
        if known is not None and not known.is_closed:
            return known
        if node_id not in self._connecting:
            task = asyncio.get_running_loop().create_task(self._open(node_id))
            self._connecting[node_id] = task
            task.add_done_callback(lambda done: self._opened(node_id, done))
        return None

    def connecting(self, node_id: int) -> "asyncio.Task[Connection] | None":
        """The attempt that `ready` began."""
        return self._connecting.get(node_id)

    async def _open(self, node_id: int) -> Connection:
        connection = self._connections[node_id] = await self.open_connection(node_id)
        return connection

    async def open_connection(self, node_id: int) -> Connection:
        """A connection of the caller's own, who closes it: for long polls and sessions."""
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise Unreachable(f"broker {node_id} is not known to the cluster; is it down?")
        return await connect(broker.address, self.config, self._authenticate)

    def _opened(self, node_id: int, task: "asyncio.Task[Connection]") -> None:
        del self._connecting[node_id]
        if not task.cancelled():
            task.exception()  # Whoever waits sees it; nobody waiting is no cause for a warning.

    async def any_connection(self) -> Connection:
        """An open connection to any broker, opened to a known one or to bootstrap if need be.

        The first choice carries no fetches, so that no question waits behind a long poll. Who
        had no answer is not asked again before the others: it may be cut off from them, and would
        go on sending its clients away.
        """
        for known in (self._bootstrap, *self._connections.values()):
            if known is not None and not known.is_closed and known.address not in self._unhelpful:
                return known
        failure: Unreachable | None = None
        brokers = [broker.address for broker in self.metadata.brokers.values()]
        addresses = dict.fromkeys((*brokers, *self.addresses))
        for address in sorted(addresses, key=self._unhelpful.__contains__):
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
        """One request to one node (any, if none is named), one try."""
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
        """Calls `attempt` until it succeeds, fails for good, or time is up.

        `is_repeatable` says that doing it twice does no harm: only then is a request whose
        outcome is unknown sent again. Before a new try the metadata of `topics` is renewed if
        the failure says that it is out of date.
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
        """Asks for these topics (None: for all, empty: for the brokers only), one try."""
        key = None if topics is None else (*sorted(topics), *(("",) if auto_create else ()))
        task = self._refreshing.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._refresh(topics, auto_create))
            self._refreshing[key] = task
            task.add_done_callback(lambda done: self._refreshed(key, done))
        await asyncio.shield(task)

    async def refresh_quietly(self, topics: Collection[str]) -> None:
        """As `refresh`, for callers that will find out by themselves if it did not work."""
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
            is_last = connection.address in self._unhelpful
            try:
                reply = await connection.call(request, MetadataResponse)
            except (ConnectionLost, RequestTimeout) as error:
                self._unhelpful[connection.address] = None
                if is_last or isinstance(error, RequestTimeout):
                    raise
            else:
                self._unhelpful.clear()
                return reply

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """A topic as last known, asked for if it is not known or the knowledge is old."""
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
        """The topic in the cached metadata. Raises Refused with the broker's reason if none."""
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
        """The node that leads a partition. Raises Refused where there is none for now."""
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
        self, places: Collection[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """The partitions grouped by the node that leads them, each group sorted."""
        groups: dict[int, list[TopicPartition]] = {}
        for where in sorted(places):
            groups.setdefault(await self.leader(where), []).append(where)
        return groups

    def version_of(self, node_id: int, request: type[Any]) -> int | None:
        """The version a request would have on the open connection to a node, if there is one."""
        connection = self._connections.get(node_id)
        return None if connection is None else connection.version_of(request)
