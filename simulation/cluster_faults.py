"""Faults of a whole cluster, in addition to those of machines (`faults`).

Network partitions between nodes (one way or both), with clients, or from the metadata store; paused
processes; a store that is slow, unavailable, compacted or leaves the outcome of changes unknown;
leases that end early; administrators who move leaders and replicas; power cuts of all machines.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from penstock.base.errors import PeerError, Refused
from penstock.client.admin.reassignments import Reassignments
from penstock.client.metadata import TopicPartition
from simulation.client import NO_REPLY
from simulation.faults import KINDS, Cause, FaultPlan, calm_store
from simulation.host import SimHost

MOVE_TIMEOUT_S = 10.0
FACTOR = 3


async def isolate(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Isolates one node from the others; clients reach all of them."""
    net = plan.world.loop.net
    others = [other.name for other in plan.world.cluster.hosts.values() if other is not host]
    net.isolate(host.name, others)
    await asyncio.sleep(rng.uniform(1, 15))
    for other in others:
        net.mend(host.name, other)


async def isolate_one_way(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Drops packets from one node to the others, or from the others to it."""
    net = plan.world.loop.net
    others = [other.name for other in plan.world.cluster.hosts.values() if other is not host]
    is_deaf = rng.random() < 0.5
    for other in others:
        ends = (other, host.name) if is_deaf else (host.name, other)
        net.cut(*ends, both=False)
    await asyncio.sleep(rng.uniform(1, 15))
    for other in others:
        net.mend(host.name, other)


async def isolate_with_clients(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Isolates one node with some clients from the other nodes and the store."""
    world = plan.world
    others = [other.name for other in world.cluster.hosts.values() if other is not host]
    clients = [name for name in world.clients if rng.random() < 0.5]
    world.cluster.etcd.cut_off[host.name] = None
    world.loop.net.isolate(host.name, others)
    for name in clients:
        world.loop.net.isolate(name, others)
    await asyncio.sleep(rng.uniform(1, 15))
    world.cluster.etcd.cut_off.pop(host.name, None)
    for other in others:
        for name in (host.name, *clients):
            world.loop.net.mend(name, other)


async def pause(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Pauses the process for a while, as SIGSTOP does."""
    host.pause()
    await asyncio.sleep(rng.choice((0.2, 1.0, 4.0, 8.0, 12.0, 20.0)))
    host.resume()


async def trouble_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Slows down the metadata store and leaves the outcome of some changes unknown."""
    etcd = plan.world.cluster.etcd
    etcd.delay_s, etcd.unknown_ratio = (0.0, rng.uniform(0.01, 0.5)), rng.choice((0.0, 0.1, 0.4))
    await asyncio.sleep(rng.uniform(1, 8))
    calm_store(plan)


async def silence_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Makes the metadata store unavailable."""
    plan.world.cluster.etcd.down = True
    await asyncio.sleep(rng.uniform(0.5, 12))
    calm_store(plan)


async def cut_off_from_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Cuts one node off from the metadata store; all others reach both."""
    etcd = plan.world.cluster.etcd
    etcd.cut_off[host.name] = None
    await asyncio.sleep(rng.uniform(1, 20))
    etcd.cut_off.pop(host.name, None)


async def delay_watches(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Delays watch events, differently for each node."""
    etcd = plan.world.cluster.etcd
    etcd.watch_delay_s = (0.0, rng.uniform(0.05, 1.0))
    await asyncio.sleep(rng.uniform(1, 10))
    etcd.watch_delay_s = (0.0, 0.0)


async def compact_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Compacts the store: a node whose watch is behind must read everything again."""
    plan.world.cluster.etcd.compact()


async def end_lease(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Ends the lease of a healthy node."""
    node = host.node
    etcd = plan.world.cluster.etcd
    if node is not None and node.membership.lease in etcd.space.leases:
        etcd.expire(node.membership.lease)


async def cut_all_power(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    for one in plan.world.cluster.hosts.values():
        if one.is_up:
            one.cut_power()


async def elect_preferred(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Elects preferred leaders of some partitions."""
    places = _places(plan)
    if places:
        chosen = rng.sample(places, rng.randint(1, len(places)))
        await _ask(plan, lambda moves: moves.elect(chosen))


async def move_replicas(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Reassigns partitions to other nodes, or to another order of their replicas."""
    places = _places(plan)
    node_ids = sorted(plan.world.cluster.hosts)
    if places:
        chosen = rng.sample(places, rng.randint(1, min(3, len(places))))
        factor = min(FACTOR, len(node_ids))
        targets = {place: rng.sample(node_ids, factor) for place in chosen}
        await _ask(plan, lambda moves: moves.reassign(targets))


def _places(plan: FaultPlan) -> list[TopicPartition]:
    """All partitions in the newest image of any node."""
    nodes = plan.world.cluster.nodes()
    if not nodes:
        return []
    image = max((node.watcher.image for node in nodes), key=lambda image: image.revision)
    return [
        TopicPartition(name, index)
        for name, topic in sorted(image.topics.items())
        for index in range(len(topic.partitions))
    ]


async def _ask(plan: FaultPlan, ask: Callable[[Reassignments], Awaitable[object]]) -> None:
    client = plan.world.client("administrator")
    try:
        async with asyncio.timeout(MOVE_TIMEOUT_S):
            await client.cluster.bootstrap()
            await ask(Reassignments(client.cluster))
    except (*NO_REPLY, TimeoutError, Refused, PeerError, OSError):
        plan.world.reached("administrator gives up")
    finally:
        client.kill(silent=False)


CLUSTER_KINDS: Mapping[str, Cause] = {
    **KINDS,
    "node cut off": isolate,
    "node cut off one way": isolate_one_way,
    "node and clients cut off": isolate_with_clients,
    "node paused": pause,
    "store in trouble": trouble_store,
    "store silent": silence_store,
    "node cut off from the store": cut_off_from_store,
    "watches late": delay_watches,
    "store compacted": compact_store,
    "lease ends early": end_lease,
    "power cut everywhere": cut_all_power,
    "preferred leaders elected": elect_preferred,
    "replicas moved": move_replicas,
}
"""Faults of runs with several nodes; the store of a single node is embedded and never fails."""
