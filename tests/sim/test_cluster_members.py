"""Nodes that come, go, die and are mistaken for each other: real ones on simulated machines."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.metadata import topics
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.membership import leads_what_others_could
from penstock.node.node import Node, NodeFailed
from simulation.cluster import SimCluster
from simulation.disk import SimDisk
from simulation.host import SimHost
from simulation.loop import SimLoop, run
from simulation.store import SimStore
from tests.run_with import run_with

SESSION_S = 6.0
PATIENCE_S = 60.0
Scene = Callable[[SimCluster], Awaitable[None]]


def play(scene: Scene, seed: int = 0, **settings: str) -> None:
    configs = {name.replace("_", "."): value for name, value in settings.items()}

    async def main(loop: SimLoop) -> None:
        cluster = SimCluster(loop, seed, (1, 2, 3), {"min.insync.replicas": "2", **configs})
        await cluster.start()
        try:
            await scene(cluster)
        finally:
            cluster.close()

    run(main, seed)


async def until(cluster: SimCluster, condition: Callable[[], bool], within_s: float) -> float:
    """Waits until `condition` is true; returns the seconds that took."""
    began_s = cluster.loop.time()
    while not condition():
        assert cluster.loop.time() - began_s < within_s, "it did not come to that in time"
        await asyncio.sleep(0.02)
    return cluster.loop.time() - began_s


def node_of(cluster: SimCluster, node_id: int) -> Node:
    node = cluster.hosts[node_id].node
    assert node is not None
    return node


async def create(cluster: SimCluster, partitions: int = 6) -> None:
    node = node_of(cluster, 1)
    new = topics.NewTopic("t", partitions, 3)
    plan = topics.plan_topic(new, node.ctx.image, node.configs, node.random)
    revision = await topics.create_topic(node.store, plan)
    for each in cluster.nodes():
        await each.ctx.reached(revision)


def leaders(image: Image) -> list[int]:
    return [state.leader for state in image.topics["t"].partitions]


def is_whole(image: Image) -> bool:
    return all(len(state.isr) == 3 for state in image.topics["t"].partitions)


@run_with(play)
async def test_three_nodes_are_connected_and_elect_one_controller(cluster: SimCluster) -> None:
    nodes = cluster.nodes()
    await until(
        cluster,
        lambda: all(node.links.connected == _others(node) for node in nodes),
        within_s=5,
    )
    await until(cluster, lambda: sum(node.controller.is_active for node in nodes) == 1, within_s=5)
    assert not any(node.membership.is_fenced for node in nodes)
    assert len({node.ctx.image.cluster_id for node in nodes}) == 1


def _others(node: Node) -> list[int]:
    return [node_id for node_id in (1, 2, 3) if node_id != node.config.node_id]


@pytest.mark.parametrize("seed", range(5))
@run_with(play, fixtures=["seed"])
async def test_clean_stop_hands_over_leadership_first(cluster: SimCluster) -> None:
    await create(cluster)
    images: list[Image] = []
    witness = node_of(cluster, 2)
    witness.watcher.on_change(lambda before, after: images.append(after))
    assert 1 in leaders(witness.ctx.image)
    await cluster.hosts[1].stop()
    await until(cluster, lambda: 1 not in witness.ctx.image.brokers, within_s=5)
    for image in images:
        if 1 not in image.brokers:
            assert 1 not in leaders(image), "it was gone before it had handed over"
        assert -1 not in leaders(image)
    # It left in good order, so it comes back as it went, and is soon in sync again.
    assert await cluster.hosts[1].start()
    await until(cluster, lambda: is_whole(witness.ctx.image), within_s=PATIENCE_S)


@run_with(play, controlled_shutdown_enable="false")
async def test_node_without_controlled_shutdown_stops_without_handing_over(
    cluster: SimCluster,
) -> None:
    await create(cluster)
    images: list[Image] = []
    witness = node_of(cluster, 2)
    witness.watcher.on_change(lambda before, after: images.append(after))
    await cluster.hosts[1].stop()
    await until(cluster, lambda: 1 not in leaders(witness.ctx.image), within_s=5)
    gone = next(image for image in images if 1 not in image.brokers)
    assert 1 in leaders(gone)


@run_with(play)
async def test_hurried_stop_does_not_wait_for_other_nodes(cluster: SimCluster) -> None:
    await create(cluster)
    await until(cluster, lambda: len(node_of(cluster, 1).links.connected) == 2, within_s=5)
    for node_id in (2, 3):  # Without a controller, so that nothing can be handed over.
        for task in node_of(cluster, node_id)._tasks:
            if task.get_name() == "controller":
                task.remove_done_callback(node_of(cluster, node_id)._task_ended)
                task.cancel()
    node = node_of(cluster, 1)
    for task in node._tasks:
        if task.get_name() == "controller":
            task.remove_done_callback(node._task_ended)
            task.cancel()
    stopping = asyncio.ensure_future(cluster.hosts[1].stop())
    await asyncio.sleep(10)
    assert not stopping.done()
    assert leads_what_others_could(node.ctx.image, 1)
    node.hurry()
    began_s = cluster.loop.time()
    await stopping
    assert cluster.loop.time() - began_s < 8


@pytest.mark.parametrize("victim", [1, 2, 3])
@run_with(play)
async def test_killed_process_is_replaced_within_a_second(
    cluster: SimCluster, *, victim: int
) -> None:
    await create(cluster)
    await asyncio.sleep(2)
    cluster.hosts[victim].kill()
    witness = cluster.nodes()[0]
    took_s = await until(
        cluster,
        lambda: (
            victim not in witness.ctx.image.brokers
            and victim not in leaders(witness.ctx.image)
            and all(victim not in s.isr for s in witness.ctx.image.topics["t"].partitions)
        ),
        within_s=5,
    )
    assert took_s < 1


@run_with(play)
async def test_silent_machine_is_replaced_before_its_lease_ends(
    cluster: SimCluster,
) -> None:
    await create(cluster)
    await asyncio.sleep(2)
    cluster.hosts[2].cut_power()
    for other in (1, 3):  # Nor is there a node to refuse a connection.
        cluster.loop.net.cut("node-2", f"node-{other}")
    witness = node_of(cluster, 1)
    took_s = await until(cluster, lambda: 2 not in leaders(witness.ctx.image), within_s=20)
    assert SESSION_S / 2 < took_s < SESSION_S
    assert 2 in witness.ctx.image.brokers
    await until(cluster, lambda: 2 not in witness.ctx.image.brokers, within_s=20)


@run_with(play)
async def test_nodes_survive_a_store_outage_under_new_epochs(
    cluster: SimCluster,
) -> None:
    await create(cluster)
    nodes = cluster.nodes()
    epochs = [node.membership.epoch for node in nodes]
    cluster.etcd.down = True
    await asyncio.sleep(SESSION_S / 2)
    assert not any(node.membership.is_fenced for node in nodes)
    await asyncio.sleep(SESSION_S)
    assert all(node.membership.is_fenced for node in nodes)
    cluster.etcd.down = False
    await until(cluster, lambda: not any(node.membership.is_fenced for node in nodes), PATIENCE_S)
    assert all(node.membership.epoch > before for node, before in zip(nodes, epochs, strict=True))
    await until(
        cluster,
        lambda: (
            all(-1 not in leaders(node.ctx.image) for node in nodes)
            and is_whole(nodes[0].ctx.image)
        ),
        within_s=PATIENCE_S,
    )
    assert not any(node.failed.done() for node in nodes)


@run_with(play)
async def test_second_node_with_the_same_id_is_refused(
    cluster: SimCluster,
) -> None:
    first = node_of(cluster, 1)
    epoch = first.membership.epoch
    disk = SimDisk(77)
    double = SimHost(
        cluster.loop, 77, 1, {}, lambda: SimStore(cluster.etcd), disk, is_store_shared=True
    )
    assert not await double.start()
    assert isinstance(double.failed, NodeFailed)
    assert "node id 1 is taken" in str(double.failed)
    assert "clean-shutdown" not in disk.listdir("data")
    assert "logs" not in disk.listdir("data")
    assert not first.failed.done()
    assert (first.membership.epoch, first.membership.is_fenced) == (epoch, False)


@run_with(play)
async def test_new_disk_under_a_dead_node_id_is_filled_from_its_peers(
    cluster: SimCluster,
) -> None:
    await create(cluster)
    host = cluster.hosts[2]
    host.cut_power()
    disk = SimDisk(78)
    again = SimHost(
        cluster.loop, 78, 2, {}, lambda: SimStore(cluster.etcd), disk, is_store_shared=True
    )
    assert await again.start(), again.failed
    witness = node_of(cluster, 1)
    for image in (witness.ctx.image,):
        assert all(2 not in s.isr for s in image.topics["t"].partitions)
    await until(cluster, lambda: is_whole(witness.ctx.image), within_s=PATIENCE_S)
    disk.on_cut = None
    disk.dead = True
