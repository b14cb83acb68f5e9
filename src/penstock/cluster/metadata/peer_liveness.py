"""Liveness of peers: a connection to every other registered node, as evidence of a death.

A lease tells of a dead process only when it expires, seconds later. The kernel of its machine tells
at once: its connections are reset, and a new one is refused, because nothing listens there any
more. So every node keeps one connection (the link) to every other one. When it ends, it is opened
again without delay; if that is refused, `report` is called with the node and the epoch of the dead
incarnation. It is called again from time to time, as long as the registration stays.

Owns: the links, one task per registered incarnation.
Invariants: only a refused connection is evidence. A hanging node, or a network that loses packets,
refuses nothing; then the lease decides. A link may be reset by an overloaded or stopping node: it
is opened again, and a dead process's port refuses sooner or later. Evidence names an incarnation,
so it says nothing about the next one at the same address. An open link proves little: a small
request is sent over it all the time, and a link without an answer is closed, whatever TCP still
expects.
Elsewhere: acting on it (`controller`), answers to clients meanwhile (`recent_failures`), and
conclusions from answers and silence (`peer_reachability`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from penstock import __version__
from penstock.base.errors import PeerError, Refused
from penstock.base.ports import Random
from penstock.base.retry import Retry
from penstock.client.connection import Address, Connection, ConnectionConfig, connect
from penstock.client.errors import ConnectionLost, RequestTimeout, Unreachable
from penstock.cluster.controller.recent_failures import RecentFailures
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import BrokerRecord
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CONNECT_TIMEOUT_MS = 3_000
PAUSE_SECONDS = 0.005
"""First limit of the pause after a link that did not last; doubles up to the maximum."""
PAUSE_SECONDS_MAX = 1.0
PROBES_PER_ANSWER = 4
"""Time for an answer, in probe intervals, until the link is closed."""
STEADY_SECONDS = 1.0
"""A link that lasted this long was stable: the next one is opened at once."""

Report = Callable[[int, int], None]


class ProbeListener(Protocol):
    """Receiver of the other nodes' answers; see `peer_reachability`."""

    def answered(self, node_id: int, broker_epoch: int) -> None: ...

    def probe_seconds(self) -> float:
        """Interval between two probes, in seconds."""
        ...


class PeerLiveness:
    """Connections that watch the other nodes, kept in line with the image."""

    def __init__(
        self,
        node_id: int,
        report: Report,
        failures: RecentFailures,
        probes: ProbeListener,
        random: Random,
        config: ConnectionConfig | None = None,
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        """`config` and `authenticate` are for listeners that require authentication."""
        self._node_id = node_id
        self._report = report
        self._failures = failures
        self._tasks: dict[int, tuple[BrokerRecord, asyncio.Task[None]]] = {}
        self._connected: dict[int, None] = {}
        self._random = random
        self._authenticate = authenticate
        self._probes = probes
        self._config = replace(
            config or ConnectionConfig(),
            client_id=f"penstock-link-{node_id}",
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
        )

    @property
    def connected(self) -> list[int]:
        """Nodes with an open link."""
        return sorted(self._connected)

    def follow(self, before: Image, after: Image) -> None:
        """Opens and closes links; called at every change of the image."""
        if before.brokers is not after.brokers:
            self.watch(after)

    def watch(self, image: Image) -> None:
        for node_id, (record, task) in list(self._tasks.items()):
            now = image.brokers.get(node_id)
            if now is None or now.incarnation != record.incarnation:
                task.cancel()
                del self._tasks[node_id]
        for node_id, record in image.brokers.items():
            if node_id != self._node_id and node_id not in self._tasks:
                loop = asyncio.get_running_loop()
                task = loop.create_task(self._keep(record), name=f"link-{node_id}")
                self._tasks[node_id] = (record, task)

    async def close(self) -> None:
        tasks = [task for _, task in self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self) -> None:
        """Keeps the links until cancelled; raises the error of a failed task."""
        try:
            while True:
                await asyncio.sleep(PAUSE_SECONDS_MAX)
                for _, task in self._tasks.values():
                    if task.done():
                        task.result()
        finally:
            await self.close()

    async def _keep(self, record: BrokerRecord) -> None:
        """Watches one incarnation of one node until cancelled."""
        loop = asyncio.get_running_loop()
        address = Address(record.host, record.port)
        retry = Retry(self._random, PAUSE_SECONDS, PAUSE_SECONDS_MAX)
        while True:
            began_s = loop.time()
            try:
                connection = await connect(address, self._probe_config(), self._authenticate)
                await self._watch(record, connection)
            except Unreachable as unreachable:
                if isinstance(unreachable.__cause__, ConnectionRefusedError):
                    self._failures.record_failure(record.node_id)
                    self._report(record.node_id, record.epoch)
            except (ConnectionLost, RequestTimeout, PeerError, Refused, OSError):
                pass  # Not evidence of death: only a refused connection is.
            if loop.time() - began_s >= STEADY_SECONDS:
                retry.succeeded()
                continue
            await retry.pause()

    def _probe_config(self) -> ConnectionConfig:
        """Connection config with a request timeout much shorter than for clients."""
        timeout_ms = int(self._probes.probe_seconds() * PROBES_PER_ANSWER * 1000)
        return replace(self._config, request_timeout_ms=timeout_ms)

    async def _watch(self, record: BrokerRecord, connection: Connection) -> None:
        node_id = record.node_id
        self._connected[node_id] = None
        self._failures.record_recovery(node_id)
        try:
            await self._probe(record, connection)
        except (ConnectionLost, RequestTimeout):
            pass
        finally:
            self._connected.pop(node_id, None)
            connection.close()
        self._failures.record_failure(node_id)

    async def _probe(self, record: BrokerRecord, connection: Connection) -> None:
        """Sends probes until the link ends, or an answer does not come."""
        request = ApiVersionsRequest(
            client_software_name="penstock", client_software_version=__version__
        )
        while True:
            self._probes.answered(record.node_id, record.epoch)
            try:
                async with asyncio.timeout(self._probes.probe_seconds()):
                    await connection.wait_closed()
                return
            except TimeoutError:
                await connection.call(request, ApiVersionsResponse)
