"""Cluster in memory: real nodes on simulated machines, and their shared metadata store.

`SimCluster(loop, seed, node_ids=(1, 2, 3))`, then `await start()`. Faults of single machines are
injected through `hosts[node_id]` (`simulation.host`), of the network through `loop.net`, of the
store through `etcd`. A single node is a cluster, too: its store represents the embedded one and
never fails.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from penstock.client.connection import Address
from penstock.node.node import Node
from simulation.disk import SimDisk
from simulation.host import KAFKA_PORT, SimHost
from simulation.loop import SimLoop
from simulation.store import SimEtcd, SimStore

MakeDisk = Callable[[int], SimDisk]


class SimCluster:
    """Hosts by node id, with the shared store."""

    def __init__(
        self,
        loop: SimLoop,
        seed: int,
        node_ids: Sequence[int] = (1,),
        overrides: Mapping[str, str] | None = None,
        make_disk: MakeDisk = SimDisk,
        *,
        keeps_metadata: bool = False,
    ) -> None:
        """`keeps_metadata`: nodes save metadata, for runs that restore the store from a backup."""
        self.loop = loop
        self.etcd = SimEtcd(seed)
        self.hosts = {
            node_id: SimHost(
                loop,
                seed,
                node_id,
                dict(overrides or {}),
                lambda: SimStore(self.etcd),
                make_disk(seed * 1_000 + node_id),
                is_store_shared=len(node_ids) > 1,
                keeps_metadata=keeps_metadata,
            )
            for node_id in node_ids
        }

    @property
    def addresses(self) -> list[Address]:
        return [Address(host.name, KAFKA_PORT) for host in self.hosts.values()]

    def nodes(self) -> list[Node]:
        """Nodes that serve now, ordered by id."""
        found = [host.node for _, host in sorted(self.hosts.items()) if host.is_up]
        return [node for node in found if node is not None]

    async def start(self) -> None:
        """Starts every stopped node; raises the exception of a node that fails to start."""
        down = [host for host in self.hosts.values() if host.node is None]
        await asyncio.gather(*(host.start() for host in down))
        for host in down:
            if host.failed is not None:
                raise host.failed

    async def stop(self) -> None:
        await asyncio.gather(*(host.stop() for host in self.hosts.values()))

    def close(self) -> None:
        """Ends the run: disables disks and store, so that nothing is written during cleanup."""
        for host in self.hosts.values():
            host.disk.on_cut = None
            host.disk.dead = True
        self.etcd.close()
