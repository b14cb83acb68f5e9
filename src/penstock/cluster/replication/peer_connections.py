"""Connections to the other nodes of the cluster, by node id.

Owns: the nodes' addresses (their registrations in the image), one shared connection per node and
channel, and every connection that `dial` made for the caller's own use.

Replies on a connection come in the order of its requests. So a request that may wait for long at
the other node (transaction markers for their commit, a replica's fetch for data) uses a channel of
its own, or a connection from `dial`.

Invariants: a connection belongs to one incarnation of a node. When that registration is removed or
replaced, or the node is unreachable (`peer_reachability`), its connections are closed, and requests
that wait on them fail at once.

Elsewhere: retries. Every failure is an OSError (`Unreachable`: nothing was sent; `ConnectionLost`
and `RequestTimeout`: outcome unknown), a PeerError or a Refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from penstock.base.errors import PeerError, Refused
from penstock.base.ports import Random, Workers
from penstock.client.cluster import Cluster
from penstock.client.connection import Address, Connection, ConnectionConfig, connect
from penstock.client.errors import Unreachable
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import Incarnation

Answer = TypeVar("Answer")

PEER_ERRORS = (OSError, PeerError, Refused)
"""Errors of a request to another node."""
CONNECT_TIMEOUT_MS = 5_000
REUSED_BYTES_MAX = 16 << 20
"""Reused buffer: enough for one fetch of a follower."""
GENERAL = "general"


class PeerConnections:
    """Connections of this node to its peers. Runs on the event loop."""

    def __init__(
        self,
        node_id: int,
        watcher: MetadataWatcher,
        config: ConnectionConfig | None = None,
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self.node_id = node_id
        self._watcher = watcher
        self._config = replace(
            config or ConnectionConfig(),
            client_id=f"penstock-node-{node_id}",
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            reused_bytes_max=REUSED_BYTES_MAX,
        )
        self._authenticate = authenticate
        self._shared: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._open: dict[Connection, tuple[int, Incarnation]] = {}
        """All connections with their node and incarnation, oldest first."""

    @property
    def connection_count(self) -> int:
        return sum(not connection.is_closed for connection in self._open)

    async def dial(self, node_id: int, *, timeout_ms: int | None = None) -> Connection:
        """Opens a connection for the caller alone, who closes it. `timeout_ms`: per request."""
        record = self._watcher.image.brokers.get(node_id)
        if record is None:
            raise Unreachable(f"node {node_id} is not registered")
        config = self._config
        if timeout_ms is not None:
            config = replace(config, request_timeout_ms=timeout_ms)
        connection = await connect(Address(record.host, record.port), config, self._authenticate)
        known = self._watcher.image.brokers.get(node_id)
        if known is None or known.incarnation != record.incarnation:
            connection.close()
            raise Unreachable(f"node {node_id} has registered again")
        self._forget_closed()
        self._open[connection] = node_id, record.incarnation
        return connection

    async def connection(self, node_id: int, channel: str = GENERAL) -> Connection:
        """Returns the connection that all requests of a channel share; opens it if needed."""
        key = (node_id, channel)
        task = self._shared.get(key)
        if task is None or (task.done() and not _is_usable(task)):
            task = asyncio.get_running_loop().create_task(self.dial(node_id))
            task.add_done_callback(_ignore_exception)
            self._shared[key] = task
        # Other callers wait for the same task, so a cancelled caller must not cancel it.
        return await asyncio.shield(task)

    async def ask(
        self,
        node_id: int,
        request: object,
        answer: type[Answer],
        *,
        channel: str = GENERAL,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """Sends one request and returns the reply. `version`: for APIs not in ApiVersions."""
        connection = await self.connection(node_id, channel)
        return await connection.call(request, answer, version=version, timeout_ms=timeout_ms)

    def client(self, random: Random, workers: Workers) -> Cluster:
        """Client of the whole cluster, with this node's own credentials.

        For work on a user's behalf: the caller must have checked the user's permissions. Fetched
        batches are decoded by `workers`, not on the node's loop.
        """
        brokers = self._watcher.image.brokers.values()
        addresses = [Address(record.host, record.port) for record in brokers]
        if not addresses:
            raise Unreachable("no node is registered")
        return Cluster(
            random, addresses, self._config, authenticate=self._authenticate, workers=workers
        )

    # -- cluster changes --------------------------------------------------------------------

    def follow(self, before: Image, after: Image) -> None:
        """Closes connections to incarnations that have ended; called at every image change."""
        if before.brokers is after.brokers:
            return
        for connection, (node_id, incarnation) in list(self._open.items()):
            record = after.brokers.get(node_id)
            if record is None or record.incarnation != incarnation:
                connection.close()
        self._forget_closed()

    def close_node(self, node_id: int) -> None:
        """Closes the connections to an unreachable node, so no request waits for TCP to notice."""
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


def _ignore_exception(task: "asyncio.Task[Connection]") -> None:
    """Marks the exception as seen: waiting callers got it, and there may be none."""
    if not task.cancelled():
        task.exception()
