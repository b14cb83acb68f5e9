"""What happens to a cluster as a whole, on top of what happens to machines (`faults`).

Nodes are cut off from each other, one way or both, from clients, or from the metadata store; they
are stopped in the middle of what they do and go on later; the store is slow, silent, forgetful or
does not say what it did; leases end early; administrators move leaders and replicas meanwhile; and
now and then the power goes everywhere at once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from penstock.base.errors import PeerError, Refused
from penstock.client.admin.reassignments import Reassignments
from penstock.client.metadata import TopicPartition
from simulation.client import LOST
from simulation.faults import KINDS, Cause, FaultPlan, calm_store
from simulation.host import SimHost

MOVE_TIMEOUT_S = 10.0
FACTOR = 3


async def isolate(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """One node and the others do not hear each other; clients reach all of them."""
    net = plan.world.loop.net
    others = [other.name for other in plan.world.cluster.hosts.values() if other is not host]
    net.isolate(host.name, others)
    await asyncio.sleep(rng.uniform(1, 15))
    for other in others:
        net.mend(host.name, other)


async def isolate_one_way(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """What one node sends to the others does not arrive, or what they send to it."""
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
    """One node and some clients are alone together: neither sees the others or the store."""
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
    """The process is stopped, and goes on later as if nothing had happened."""
    host.pause()
    await asyncio.sleep(rng.choice((0.2, 1.0, 4.0, 8.0, 12.0, 20.0)))
    host.resume()


async def trouble_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """The metadata store is slow, and sometimes does not say what it did."""
    etcd = plan.world.cluster.etcd
    etcd.delay_s, etcd.unknown_ratio = (0.0, rng.uniform(0.01, 0.5)), rng.choice((0.0, 0.1, 0.4))
    await asyncio.sleep(rng.uniform(1, 8))
    calm_store(plan)


async def silence_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Nobody gets an answer from the metadata store."""
    plan.world.cluster.etcd.down = True
    await asyncio.sleep(rng.uniform(0.5, 12))
    calm_store(plan)


async def cut_off_from_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """One node does not reach the metadata store; everybody else reaches both."""
    etcd = plan.world.cluster.etcd
    etcd.cut_off[host.name] = None
    await asyncio.sleep(rng.uniform(1, 20))
    etcd.cut_off.pop(host.name, None)


async def delay_watches(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Nodes hear late of what changed, each at its own time."""
    etcd = plan.world.cluster.etcd
    etcd.watch_delay_s = (0.0, rng.uniform(0.05, 1.0))
    await asyncio.sleep(rng.uniform(1, 10))
    etcd.watch_delay_s = (0.0, 0.0)


async def compact_store(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """Whoever is behind with its watch has to read everything again."""
    plan.world.cluster.etcd.compact()


async def end_lease(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """A node that is well is declared dead."""
    node = host.node
    etcd = plan.world.cluster.etcd
    if node is not None and node.membership.lease in etcd.space.leases:
        etcd.expire(node.membership.lease)


async def cut_all_power(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    for one in plan.world.cluster.hosts.values():
        if one.is_up:
            one.cut_power()


async def elect_preferred(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """An administrator asks for the leaders that the partitions were placed with."""
    places = _places(plan)
    if places:
        chosen = rng.sample(places, rng.randint(1, len(places)))
        await _ask(plan, lambda moves: moves.elect(chosen))


async def move_replicas(plan: FaultPlan, host: SimHost, rng: random.Random) -> None:
    """An administrator moves partitions to other nodes, or only to another order of them."""
    places = _places(plan)
    node_ids = sorted(plan.world.cluster.hosts)
    if places:
        chosen = rng.sample(places, rng.randint(1, min(3, len(places))))
        factor = min(FACTOR, len(node_ids))
        targets = {place: rng.sample(node_ids, factor) for place in chosen}
        await _ask(plan, lambda moves: moves.reassign(targets))


def _places(plan: FaultPlan) -> list[TopicPartition]:
    """All partitions, as the node that knows most has them."""
    nodes = plan.world.cluster.nodes()
    if not nodes:
        return []
    image = max((node.follower.image for node in nodes), key=lambda image: image.revision)
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
    except (*LOST, TimeoutError, Refused, PeerError, OSError):
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
"""For runs with several nodes; the store of a single one is part of it, and does not fail."""
