"""A cluster in memory: real nodes on simulated machines, and the metadata store they share.

`SimCluster(loop, seed, node_ids=(1, 2, 3))`, then `await start()`. Machines are `hosts[node_id]`
and are hurt one by one (`simulation.host`), the network through `loop.net`, the store through
`etcd`. One node is a cluster, too: its store then stands for the embedded one, so it never fails.
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
    """Nodes by id."""

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
        """`keeps_metadata`: for runs in which the store is put back."""
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
        """The nodes that serve now, by id."""
        found = [host.node for _, host in sorted(self.hosts.items()) if host.is_up]
        return [node for node in found if node is not None]

    async def start(self) -> None:
        """Starts every node that is not running; raises what keeps one from it."""
        down = [host for host in self.hosts.values() if host.node is None]
        await asyncio.gather(*(host.start() for host in down))
        for host in down:
            if host.failed is not None:
                raise host.failed

    async def stop(self) -> None:
        await asyncio.gather(*(host.stop() for host in self.hosts.values()))

    def close(self) -> None:
        """The end of the run: nothing works any more, so that nothing is written on the way out."""
        for host in self.hosts.values():
            host.disk.on_cut = None
            host.disk.dead = True
        self.etcd.close()
