"""Seven kinds of faults, each in some shapes. Every one undoes what it did before it returns.

Which nodes a fault meets follows from the seed and from who leads at that moment. Faults that leave
a majority wait until what clients do goes on before they end; those that do not, only afterwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from signal import SIGCONT, SIGKILL, SIGSTOP

from tests.chaos import nemeses
from tests.chaos.network import HERE
from tests.histories.damage import STATE
from tests.histories.stage import ETCD, Stage

Fault = Callable[[Stage], None]
Cuts = Sequence[tuple[str, str]]
STEPS_S = (-1_800, -300, -30, 30, 300, 1_800)
"""Less than an hour: as in Kafka, timestamps that are further in the future are refused."""


# -- cuts -------------------------------------------------------------------------------------


@contextmanager
def cut(stage: Stage, cuts: Cuts) -> Iterator[None]:
    for source, target in cuts:
        stage.network.cut(source, target)
    try:
        yield
    finally:
        stage.network.heal()


def both(places: Sequence[object], others: Sequence[object]) -> list[tuple[str, str]]:
    """Nothing gets from either side to the other."""
    return [(str(a), str(b)) for x in places for y in others for a, b in ((x, y), (y, x))]


def one_way(places: Sequence[object], others: Sequence[object]) -> list[tuple[str, str]]:
    return [(str(a), str(b)) for a in places for b in others]


def leader_alone(stage: Stage) -> None:
    """Clients reach it still."""
    leader = stage.whole().leader
    with cut(stage, both([leader], [*stage.others(leader), ETCD])):
        stage.load.wait_progress()
        stage.hold(1, 8)


def leader_alone_from_all(stage: Stage) -> None:
    leader = stage.whole().leader
    with cut(stage, both([leader], [*stage.others(leader), ETCD, HERE])):
        stage.load.wait_progress()
        stage.hold(1, 8)


def follower_alone(stage: Stage) -> None:
    leader = stage.whole().leader
    node = stage.random.choice(stage.others(leader))
    with cut(stage, both([node], [*stage.others(node), ETCD])):
        stage.load.wait_progress()
        stage.hold(1, 8)


def minority_has_etcd(stage: Stage) -> None:
    """Most nodes are on the side without etcd: no leader may be elected there."""
    leader = stage.whole().leader
    with cut(stage, both(stage.others(leader), [leader, ETCD])):
        stage.hold(2, 8)


def ring(stage: Stage) -> None:
    """Each node hears the one before, and is heard by the one after."""
    nodes = list(stage.cluster.nodes)
    stage.whole()
    stage.random.shuffle(nodes)
    turned = [*nodes[1:], *nodes[:1]]
    with cut(stage, [(str(a), str(b)) for a, b in zip(nodes, turned, strict=True)]):
        stage.hold(2, 8)


def leader_is_not_heard(stage: Stage) -> None:
    leader = stage.whole().leader
    with cut(stage, one_way([leader], [*stage.others(leader), ETCD])):
        stage.load.wait_progress()
        stage.hold(1, 8)


def leader_receives_nothing(stage: Stage) -> None:
    leader = stage.whole().leader
    with cut(stage, one_way([*stage.others(leader), ETCD], [leader])):
        stage.load.wait_progress()
        stage.hold(1, 8)


# -- cuts that spare etcd and clients ---------------------------------------------------------


def leader_without_followers(stage: Stage) -> None:
    leader = stage.whole().leader
    with cut(stage, both([leader], stage.others(leader))):
        stage.load.wait_progress()
        stage.hold(1, 8)


def leader_not_heard_by_followers(stage: Stage) -> None:
    leader = stage.whole().leader
    with cut(stage, one_way([leader], stage.others(leader))):
        stage.load.wait_progress()
        stage.hold(1, 8)


def leader_does_not_hear_followers(stage: Stage) -> None:
    leader = stage.whole().leader
    with cut(stage, one_way(stage.others(leader), [leader])):
        stage.load.wait_progress()
        stage.hold(1, 8)


def two_without_each_other(stage: Stage) -> None:
    """A third reaches both."""
    stage.whole()
    first, second = stage.random.sample(list(stage.cluster.nodes), 2)
    with cut(stage, both([first], [second])):
        stage.load.wait_progress()
        stage.hold(1, 8)


def all_nodes_are_isolated(stage: Stage) -> None:
    """No node reaches another: nothing may be acknowledged."""
    stage.whole()
    nodes = list(stage.cluster.nodes)
    with cut(stage, [(str(a), str(b)) for a in nodes for b in nodes if a != b]):
        stage.hold(2, 8)


# -- pauses -----------------------------------------------------------------------------------


def pause_two(stage: Stage) -> None:
    stage.whole()
    nodes = stage.random.sample(list(stage.cluster.nodes.values()), 2)
    for node in nodes:
        node.send(SIGSTOP)
    try:
        stage.hold(1, 9)
    finally:
        for node in nodes:
            node.send(SIGCONT)


def stutter(stage: Stage) -> None:
    """A node that runs for moments only."""
    node = stage.node(stage.whole().leader)
    for _ in range(8):
        node.send(SIGSTOP)
        try:
            stage.hold(0.1, 1.0)
        finally:
            node.send(SIGCONT)
        stage.hold(0.01, 0.2)


# -- etcd -------------------------------------------------------------------------------------


def kill_etcd(stage: Stage) -> None:
    stage.whole()
    stage.etcd.kill()
    stage.hold(0, 9)
    stage.etcd.start()


def pause_etcd(stage: Stage) -> None:
    stage.whole()
    stage.etcd.pause()
    try:
        stage.hold(1, 9)
    finally:
        stage.etcd.resume()


def etcd_is_not_reached(stage: Stage) -> None:
    stage.whole()
    with cut(stage, both(list(stage.cluster.nodes), [ETCD])):
        stage.hold(1, 9)


def kill_etcd_and_leader(stage: Stage) -> None:
    """Kills etcd and the leader: the other nodes decide later about what the leader did last."""
    leader = stage.node(stage.whole().leader)
    stage.etcd.kill()
    leader.kill()
    stage.hold(0, 5)
    stage.etcd.start()
    stage.load.wait_progress()
    leader.start()


# -- clocks -----------------------------------------------------------------------------------


def step_leader(stage: Stage) -> None:
    """Forward or back, and again to the time of the other nodes."""
    _step(stage, [stage.whole().leader])


def step_follower(stage: Stage) -> None:
    leader = stage.whole().leader
    _step(stage, [stage.random.choice(stage.others(leader))])


def step_all(stage: Stage) -> None:
    stage.whole()
    _step(stage, list(stage.cluster.nodes))


def step_and_kill(stage: Stage) -> None:
    """Steps the other nodes' clocks and kills the leader: its successor has another time."""
    leader = stage.whole().leader
    _step(stage, stage.others(leader), then=lambda: stage.kill(leader))


def step_and_restart(stage: Stage) -> None:
    """Each node comes back at another time."""
    stage.whole()
    nodes = list(stage.cluster.nodes)

    def restart() -> None:
        for node in nodes:
            stage.node(node).send(SIGKILL)
        for node in nodes:
            stage.node(node).wait()
            stage.node(node).spawn()
        for node in nodes:
            stage.node(node).wait_ready()

    _step(stage, nodes, then=restart)


def strobe(stage: Stage) -> None:
    """A clock that jumps there and back."""
    assert stage.clocks is not None
    node = stage.whole().leader
    for _ in range(4):
        stage.clocks.step(node, stage.random.choice(STEPS_S))
        stage.hold(0.5, 2)
    stage.clocks.step(node, 0)


def _step(stage: Stage, nodes: Sequence[int], then: Callable[[], None] | None = None) -> None:
    assert stage.clocks is not None
    seconds = stage.random.choice(STEPS_S)
    for node in nodes:
        stage.clocks.step(node, seconds)
    stage.hold(1.5, 3)
    if then is not None:
        then()
    stage.load.wait_progress()
    for node in nodes:
        stage.clocks.step(node, 0)
    stage.hold(1.5, 3)
    stage.load.wait_progress()


KINDS: Mapping[str, Sequence[Fault]] = {
    "kills": (
        nemeses.kill_leader,
        nemeses.kill_follower,
        nemeses.kill_controller,
        nemeses.kill_all_nodes,
        nemeses.kill_while_starting,
        nemeses.kill_everything,
    ),
    "pauses": (nemeses.pause_leader, nemeses.pause_briefly, pause_two, stutter),
    "partitions": (
        leader_alone,
        ring,
        leader_is_not_heard,
        minority_has_etcd,
        leader_receives_nothing,
        follower_alone,
        leader_alone_from_all,
    ),
    "spared": (
        leader_without_followers,
        two_without_each_other,
        leader_not_heard_by_followers,
        leader_does_not_hear_followers,
        all_nodes_are_isolated,
    ),
    "etcd": (kill_etcd, pause_etcd, kill_etcd_and_leader, etcd_is_not_reached),
    "clocks": (step_leader, step_all, step_and_kill, step_follower, step_and_restart, strobe),
    "state": STATE,
}
"""By name: the shapes, in the order in which a cell goes through them."""
