"""Disturbances of a cluster in use: one function for each kind.

Every one of them undoes its effects before it returns, in a bounded time, and waits in between
until writes continue wherever the disturbance leaves enough nodes for that. The affected node
follows from the seed and from the roles at that moment.
"""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka.admin import AdminClient

from tests.chaos.cluster_view import View, wait_whole
from tests.chaos.load import Load
from tests.chaos.writers import PATIENT
from tests.clusters import NodeProcess, Nodes

PAUSE_S = 8.0
"""Longer than a session lasts: the paused node has to be replaced."""


class Progress(Protocol):
    """Progress of the clients, as a nemesis must know it: that what they do goes on."""

    def wait_progress(self) -> None: ...


@dataclass
class Arena:
    """Processes that a nemesis may disturb."""

    cluster: Nodes
    topic: str
    load: Progress
    random: random.Random

    def whole(self) -> View:
        """Before anything is done, everything is well."""
        seen = wait_whole(self.cluster, self.topic)
        self.load.wait_progress()
        return seen

    def node(self, node_id: int) -> NodeProcess:
        return self.cluster.nodes[node_id]

    def kill(self, node_id: int) -> None:
        """One node dies; it is started again when writes go on without it."""
        self.node(node_id).kill()
        self.load.wait_progress()
        self.node(node_id).start()


Nemesis = Callable[[Arena], None]


def kill_leader(arena: Arena) -> None:
    arena.kill(arena.random.choice(arena.whole().leaders))


def kill_follower(arena: Arena) -> None:
    leader = arena.whole().leader
    arena.kill(arena.random.choice([node for node in arena.cluster.nodes if node != leader]))


def kill_controller(arena: Arena) -> None:
    arena.kill(arena.whole().controller)


def kill_coordinator(arena: Arena) -> None:
    """The node that keeps the offsets and the members of the readers' group."""
    assert isinstance(arena.load, Load)
    arena.whole()
    admin = AdminClient({"bootstrap.servers": arena.cluster.bootstrap, **PATIENT})
    group = arena.random.choice(arena.load.readers).group
    described = admin.describe_consumer_groups([group], request_timeout=30)[group].result(30)
    arena.kill(described.coordinator.id)


def kill_while_starting(arena: Arena) -> None:
    """A node that dies again and again before it is ready."""
    arena.whole()
    node = arena.node(arena.random.choice(list(arena.cluster.nodes)))
    node.kill()
    for _ in range(2):
        node.spawn()
        time.sleep(arena.random.uniform(0.2, 2.0))
        node.kill()
    arena.load.wait_progress()
    node.start()


def pause_leader(arena: Arena) -> None:
    leader = arena.node(arena.whole().leader)
    leader.send(signal.SIGSTOP)
    try:
        arena.load.wait_progress()
        time.sleep(arena.random.uniform(0.0, PAUSE_S / 4))
    finally:
        leader.send(signal.SIGCONT)


def pause_briefly(arena: Arena) -> None:
    """Shorter than a session: the node is hardly ever replaced."""
    node = arena.node(arena.random.choice([arena.whole().leader, *arena.cluster.nodes]))
    node.send(signal.SIGSTOP)
    try:
        time.sleep(arena.random.uniform(0.5, PAUSE_S))
    finally:
        node.send(signal.SIGCONT)
    arena.load.wait_progress()


def kill_all_nodes(arena: Arena) -> None:
    """All at once: nothing is left but what is on disk."""
    arena.whole()
    for node in arena.cluster.nodes.values():
        node.send(signal.SIGKILL)
    _start_all(arena)


def kill_everything(arena: Arena) -> None:
    """All nodes and etcd at once."""
    arena.whole()
    for node in arena.cluster.nodes.values():
        node.send(signal.SIGKILL)
    etcd = arena.cluster.etcd
    for member in etcd.members:
        member.kill()
    for member in etcd.members:
        member.spawn()
    for member in etcd.members:
        member.wait_ready()
    _start_all(arena)


def _start_all(arena: Arena) -> None:
    nodes = list(arena.cluster.nodes.values())
    arena.random.shuffle(nodes)
    for node in nodes:
        node.wait()
        node.spawn()
    for node in nodes:
        node.wait_ready()
    arena.load.wait_progress()


def restart_one_by_one(arena: Arena) -> None:
    """As for a new version: each is asked to stop, and started when the cluster is whole."""
    for node_id, node in arena.cluster.nodes.items():
        arena.whole()
        assert node.stop() == 0, f"node {node_id} did not stop cleanly:\n{node.log()[-3000:]}"
        arena.load.wait_progress()
        node.start()


ALL: tuple[Nemesis, ...] = (
    kill_leader,
    kill_follower,
    kill_controller,
    kill_coordinator,
    kill_while_starting,
    pause_leader,
    pause_briefly,
    kill_all_nodes,
    kill_everything,
    restart_one_by_one,
)
