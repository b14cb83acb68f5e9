"""Connections to the other nodes of the cluster, by node id.

Owns: where a node is reached (its registration in the image), one shared connection for each node
and lane, and every connection that was dialled for somebody else's own use.

Replies on a connection come in the order of its requests, so a request that may wait for long at
the other side (markers wait for their commit, a replica's fetch for data) gets a lane of its own,
or `dial`s a connection that nobody else uses.

Invariants: a connection belongs to one life of a node. When that life's registration goes or is
replaced, or nothing is heard of it (`reach`), its connections are closed, and whoever waits on them
hears at once.

Leaves to others: whether and when to try again. Every failure is an OSError (`Unreachable`: nothing
was sent; `ConnectionLost` and `RequestTimeout`: not known), a PeerError or a Refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from penstock.base.errors import PeerError, Refused
from penstock.base.ports import Random, Workers
from penstock.client.cluster import Cluster
from penstock.client.connection import Address, Connection, ConnectionConfig, connect
from penstock.client.errors import Unreachable
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord

Answer = TypeVar("Answer")
Life: TypeAlias = tuple[int, str, int]
"""The epoch of a registration, and where it says that the node listens."""

TROUBLE = (OSError, PeerError, Refused)
"""What asking another node may end in."""
CONNECT_TIMEOUT_MS = 5_000
REUSED_BYTES_MAX = 16 << 20
"""Enough for what a follower fetches at once."""
GENERAL = "general"


def life_of(record: BrokerRecord) -> Life:
    return record.epoch, record.host, record.port


class PeerConnections:
    """This node's way to the others. Everything runs on the event loop."""

    def __init__(
        self,
        node_id: int,
        follower: MetadataWatcher,
        config: ConnectionConfig | None = None,
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self.node_id = node_id
        self._follower = follower
        self._config = replace(
            config or ConnectionConfig(),
            client_id=f"penstock-node-{node_id}",
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            reused_bytes_max=REUSED_BYTES_MAX,
        )
        self._authenticate = authenticate
        self._shared: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._open: dict[Connection, tuple[int, Life]] = {}
        """Every connection there is, in the order of their making, with whom it is to."""

    @property
    def connection_count(self) -> int:
        return sum(not connection.is_closed for connection in self._open)

    async def dial(self, node_id: int, *, timeout_ms: int | None = None) -> Connection:
        """A new connection for the caller alone, who closes it. `timeout_ms`: of each request."""
        record = self._follower.image.brokers.get(node_id)
        if record is None:
            raise Unreachable(f"node {node_id} is not registered")
        config = self._config
        if timeout_ms is not None:
            config = replace(config, request_timeout_ms=timeout_ms)
        connection = await connect(Address(record.host, record.port), config, self._authenticate)
        known = self._follower.image.brokers.get(node_id)
        if known is None or life_of(known) != life_of(record):
            connection.close()
            raise Unreachable(f"node {node_id} has registered anew")
        self._forget_closed()
        self._open[connection] = node_id, life_of(record)
        return connection

    async def connection(self, node_id: int, lane: str = GENERAL) -> Connection:
        """The connection that all requests of a lane share; made when there is none."""
        key = (node_id, lane)
        task = self._shared.get(key)
        if task is None or (task.done() and not _is_usable(task)):
            task = asyncio.get_running_loop().create_task(self.dial(node_id))
            task.add_done_callback(_reveal_nothing)
            self._shared[key] = task
        # Others wait for the same one: who gives up does not take it from them.
        return await asyncio.shield(task)

    async def ask(
        self,
        node_id: int,
        request: object,
        answer: type[Answer],
        *,
        lane: str = GENERAL,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """A node's reply to one request. `version`: of one that ApiVersions does not name."""
        connection = await self.connection(node_id, lane)
        return await connection.call(request, answer, version=version, timeout_ms=timeout_ms)

    def client(self, random: Random, workers: Workers) -> Cluster:
        """A client of the whole cluster, introduced as this node is to the others.

        For work on somebody's behalf: whoever asks for it must have seen to their rights. What it
        reads is opened by `workers`: this node's loop has others to serve.
        """
        brokers = self._follower.image.brokers.values()
        addresses = [Address(record.host, record.port) for record in brokers]
        if not addresses:
            raise Unreachable("no node is registered")
        return Cluster(
            random, addresses, self._config, authenticate=self._authenticate, workers=workers
        )

    # -- following the cluster --------------------------------------------------------------

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image: gives up on lives that are over."""
        if before.brokers is after.brokers:
            return
        for connection, (node_id, life) in list(self._open.items()):
            record = after.brokers.get(node_id)
            if record is None or life_of(record) != life:
                connection.close()
        self._forget_closed()

    def give_up(self, node_id: int) -> None:
        """That node does not answer: nobody waits for it until TCP finds out."""
        for connection, (other, _) in list(self._open.items()):
            if other == node_id:
                connection.close()
        self._forget_closed()

    async def close(self) -> None:
        tasks = list(self._shared.values())
        self._shared.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = list(self._open)
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()
        self._open.clear()

    def _forget_closed(self) -> None:
        for connection in [one for one in self._open if one.is_closed]:
            del self._open[connection]


def _is_usable(task: "asyncio.Task[Connection]") -> bool:
    if task.cancelled() or task.exception() is not None:
        return False
    return not task.result().is_closed


def _reveal_nothing(task: "asyncio.Task[Connection]") -> None:
    """Those who waited were told; if all had given up, nobody needs to be."""
    if not task.cancelled():
        task.exception()
