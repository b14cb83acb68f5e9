"""Replicas that lose their files between two runs of a node: none follows them, and nothing is
lost.

Each scene: records are acknowledged by all in-sync replicas, every node is stopped or killed, and
something happens to one data directory. In any start order, every record is there in the end.
"""

import asyncio
from collections.abc import Callable

import pytest

from penstock.base.errors import ErrorCode
from penstock.client.admin.admin import Admin
from penstock.client.admin.reassignments import Reassignments
from penstock.client.metadata import TopicPartition
from penstock.cluster.metadata import accepted_losses
from penstock.cluster.metadata.store_keys import NO_LEADER
from penstock.cluster.replication.high_watermark_checkpoint import HighWatermarkFile, name_of
from penstock.cluster.replication.partitions import RETRY_SECONDS
from simulation.host import SimHost
from simulation.store import SimStore
from tests.run_with import run_with, with_seeds
from tests.sim.test_cluster_leaders import Scene, play

pytestmark = pytest.mark.usefixtures("quiet")

RECORDS = 30
SAVED_S = 6.0
"""After that the high watermarks are on disk."""


async def write(scene: Scene, count: int = RECORDS) -> None:
    leader = scene.leader().config.node_id
    for number in range(count):
        assert await scene.send(leader, b"%d" % number) is ErrorCode.NONE


async def end_all(scene: Scene, *, clean: bool) -> int:
    """Ends every node at once; answers who led."""
    leader = scene.leader().config.node_id
    hosts = list(scene.nodes.hosts.values())
    for host in hosts:  # A connection to the store ends with its process.
        host._open_store = lambda: SimStore(scene.nodes.etcd)
    if clean:
        for host in hosts:
            assert host.node is not None
            host.node.hurry()  # Without handing over: the previous leader is still named.
        await asyncio.gather(*(host.stop() for host in hosts))
    else:
        for host in hosts:
            host.kill()
    return leader


def directory(host: SimHost) -> str:
    """Directory of the scene's partition on that machine."""
    path = next(p for p in host.disk.files() if "/logs/t." in p and p.endswith(".log"))
    return path.strip("/").rpartition("/")[0]


def take_partition(host: SimHost) -> None:
    host.disk.remove_path(directory(host))


def take_topic(host: SimHost) -> None:
    host.disk.remove_path(directory(host).rpartition("/")[0])


def take_logs(host: SimHost) -> None:
    host.disk.remove_path("data/logs")


def take_segments(host: SimHost) -> None:
    ours = directory(host)
    for path in host.disk.files():
        if ours in path:
            host.disk.unlink(path)


def flip_bit(host: SimHost) -> None:
    path = f"{directory(host)}/{0:020d}.log"
    host.disk.flip_bit(path, host.disk.size(path) * 8 // 2)


def shorten(host: SimHost) -> None:
    path = f"{directory(host)}/{0:020d}.log"
    host.disk.shorten(path, host.disk.size(path) // 2)


def known_end(host: SimHost) -> int:
    """End of the scene's log according to the file of high watermarks."""
    known = HighWatermarkFile(host.disk, "data").read()
    return known.get(directory(host).removeprefix("data/logs/"), 0)


DAMAGES = (take_partition, take_topic, take_logs, take_segments, flip_bit, shorten)


async def start_in_turn(scene: Scene, *order: int, pause_s: float = 10.0) -> None:
    for node_id in order:
        await scene.nodes.hosts[node_id].start()
        await asyncio.sleep(pause_s)


async def check_whole(scene: Scene, count: int = RECORDS) -> None:
    """All replicas are in sync and have every record, including the leader."""

    def is_whole() -> bool:
        found = scene.replicas()
        return len(found) == 3 and all(
            len(one.record.isr) == 3 and one.log.offline is None and one.high_watermark == count
            for one in found
        )

    await scene.until(is_whole)
    leader = scene.leader()
    held = leader.partitions.replica("t", 0)
    assert held is not None
    try:
        found = await scene.read(leader.config.node_id, held.leader_epoch)
    except AssertionError:
        # Only a read reveals what its disk did to durable bytes; then another replica leads.
        ours = leader.config.node_id
        await scene.until(lambda: held.record.leader not in (ours, NO_LEADER) and is_whole())
        await check_whole(scene, count)
        return
    assert found == list(range(count))
    assert {one.log.end_offset for one in scene.replicas()} == {count}


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", DAMAGES)
@run_with(play)
async def test_leader_that_lost_its_log_does_not_lead_in_any_start_order(
    scene: Scene, *, damage: Callable[[SimHost], None], clean: bool
) -> None:
    await write(scene)
    await asyncio.sleep(SAVED_S)
    leader = await end_all(scene, clean=clean)
    await asyncio.sleep(10)  # Every lease has ended.
    damage(scene.nodes.hosts[leader])
    others = [node for node in scene.nodes.hosts if node != leader]
    await start_in_turn(scene, leader, *others)
    await check_whole(scene)


def flip_last_batch(host: SimHost) -> None:
    path = f"{directory(host)}/{0:020d}.log"
    host.disk.flip_bit(path, host.disk.size(path) * 8 - 3)


@pytest.mark.parametrize("damage", [flip_bit, flip_last_batch])
@pytest.mark.parametrize("is_killed_again", [False, True])
@run_with(play)
async def test_leader_damaged_above_its_checkpoint_does_not_lead_first(
    scene: Scene, *, damage: Callable[[SimHost], None], is_killed_again: bool
) -> None:
    await asyncio.sleep(SAVED_S)
    await write(scene)
    leader = await end_all(scene, clean=False)
    await asyncio.sleep(10)  # Every lease has ended.
    host = scene.nodes.hosts[leader]
    assert known_end(host) < RECORDS // 2, "its checkpoint does not cover the damage"
    damage(host)
    others = [node for node in scene.nodes.hosts if node != leader]
    if is_killed_again:
        await host.start()
        host.kill()
    await start_in_turn(scene, leader, *others)
    await check_whole(scene)


@pytest.mark.parametrize("damage", [take_partition, take_logs])
@run_with(play)
async def test_lost_log_stays_lost_over_restarts(
    scene: Scene, *, damage: Callable[[SimHost], None]
) -> None:
    await write(scene)
    await asyncio.sleep(SAVED_S)
    leader = await end_all(scene, clean=True)
    damage(scene.nodes.hosts[leader])
    host = scene.nodes.hosts[leader]
    for _ in range(2):
        await host.start()
        await asyncio.sleep(8)
        assert scene.replicas()[0].log.is_lost
        host.kill()
        await asyncio.sleep(1)
    others = [node for node in scene.nodes.hosts if node != leader]
    await start_in_turn(scene, *others, leader)
    await check_whole(scene)


@run_with(play)
async def test_only_in_sync_replica_does_not_lead_from_a_lost_log(scene: Scene) -> None:
    leader = scene.leader().config.node_id
    others = [node for node in scene.nodes.hosts if node != leader]
    for node in others:
        scene.nodes.hosts[node].kill()
    await scene.until(lambda: scene.replicas()[0].record.isr == (leader,))
    scene.nodes.hosts[leader].kill()
    take_partition(scene.nodes.hosts[leader])
    await start_in_turn(scene, leader)
    (replica,) = scene.replicas()
    assert (replica.record.leader, replica.record.isr) == (NO_LEADER, ())
    assert replica.log.is_lost
    # Eligible replicas have everything: both, unless one left the ISR before the other.
    eligible = replica.record.elr[0]
    await start_in_turn(scene, eligible)
    await scene.until(lambda: scene.replicas()[0].record.leader == eligible)
    await start_in_turn(scene, *(node for node in others if node != eligible))
    await check_whole(scene, 0)


@run_with(play)
async def test_partition_that_lost_every_replica_needs_an_unclean_election(
    scene: Scene,
) -> None:
    await write(scene)
    await asyncio.sleep(SAVED_S)
    await end_all(scene, clean=True)
    for host in scene.nodes.hosts.values():
        take_partition(host)
    await start_in_turn(scene, 1, 2, 3)
    for replica in scene.replicas():
        assert replica.record.leader == NO_LEADER
        assert replica.log.is_lost
    # The one that is chosen leads once its loss is accepted, and offsets go on.
    await Reassignments(scene.client).elect([TopicPartition("t", 0)], unclean=True)
    await scene.until(lambda: scene.replicas()[0].record.leader != NO_LEADER)
    await asyncio.sleep(RETRY_SECONDS)
    chosen = scene.leader()
    held = chosen.partitions.replica("t", 0)
    assert held is not None
    assert held.log.is_lost
    accepted_losses.ask(chosen.ports.disk, "data", name_of(held))
    await scene.until(lambda: all(len(one.record.isr) == 3 for one in scene.replicas()))
    assert await scene.send(chosen.config.node_id, b"next") is ErrorCode.NONE
    await scene.until(lambda: all(one.high_watermark == RECORDS + 1 for one in scene.replicas()))


@run_with(play)
async def test_leader_with_an_old_copy_stops_leading_when_shown_its_loss(scene: Scene) -> None:
    """Its own disk does not reveal the loss: the copy is whole, only old."""

    await write(scene, 10)
    leader = scene.leader().config.node_id
    held = scene.node(leader).partitions.replica("t", 0)
    assert held is not None
    await write(scene, 20)
    await asyncio.sleep(SAVED_S)
    await scene.node(leader).workers.run(held.log.truncate_to, 10, 0)
    others = [node for node in scene.nodes.hosts if node != leader]
    for node in others:
        scene.nodes.hosts[node].kill()
    await asyncio.sleep(1)
    await start_in_turn(scene, *others, pause_s=3)
    await check_whole(scene)
    assert _restored(scene) == 1


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
@run_with(play)
async def test_directory_restored_from_an_older_copy_is_not_trusted(
    scene: Scene, *, is_leader: bool, clean: bool
) -> None:
    await write(scene, 10)
    leader = await end_all(scene, clean=clean)
    await asyncio.sleep(10)
    host = scene.nodes.hosts[leader if is_leader else leader % 3 + 1]
    copy = host.disk.copy()
    others = [node for node in scene.nodes.hosts if node != leader]
    await start_in_turn(scene, leader, *others, pause_s=2)
    await scene.until(lambda: len(scene.replicas()) == 3)
    await scene.until(lambda: scene.replicas()[0].record.leader == leader)
    await write(scene, 20)
    await end_all(scene, clean=False)  # No checkpoint of high watermarks covers these.
    await asyncio.sleep(10)
    host.disk.restore_copy(copy)
    rest = [node for node in scene.nodes.hosts if node != host.node_id]
    await start_in_turn(scene, host.node_id, *rest)
    await check_whole(scene)


@run_with(play)
async def test_logs_restored_from_an_older_copy_are_not_trusted(scene: Scene) -> None:
    await write(scene, 10)
    leader = await end_all(scene, clean=True)
    host = scene.nodes.hosts[leader]
    ours = directory(host)
    copy = {p: host.disk.open(p).read(0, 1 << 20) for p in host.disk.files() if ours in p}
    await start_in_turn(scene, 1, 2, 3, pause_s=2)
    await scene.until(lambda: len(scene.replicas()) == 3)
    await write(scene, 20)
    await end_all(scene, clean=True)
    host.disk.remove_path(ours)
    host.disk.mkdir(ours)
    for path, content in copy.items():
        host.disk.open(path, create=True).append([content])
    others = [node for node in scene.nodes.hosts if node != leader]
    await start_in_turn(scene, leader, *others)
    await check_whole(scene)


@run_with(play)
async def test_missing_log_is_lost_even_without_the_checkpoint_file(
    scene: Scene,
) -> None:
    await write(scene)
    leader = await end_all(scene, clean=False)
    await asyncio.sleep(10)
    host = scene.nodes.hosts[leader]
    take_partition(host)
    host.disk.remove_path("data/high-watermarks")
    others = [node for node in scene.nodes.hosts if node != leader]
    await start_in_turn(scene, leader, *others)
    await check_whole(scene)


@run_with(play)
async def test_unclean_election_allows_no_truncation_once_it_was_followed(
    scene: Scene,
) -> None:
    """One replica never returns, so the partition is never whole again."""

    await write(scene, 20)
    gone = scene.leader().config.node_id
    eligible, chosen = (node for node in scene.nodes.hosts if node != gone)
    scene.nodes.hosts[chosen].kill()
    await scene.until(lambda: chosen not in scene.replicas()[0].record.isr)
    scene.nodes.hosts[eligible].kill()
    await scene.until(lambda: scene.replicas()[0].record.isr == (gone,))
    assert scene.replicas()[0].record.elr == (eligible,)
    scene.nodes.hosts[gone].kill()
    await start_in_turn(scene, chosen)
    held = scene.replicas()[0]
    assert held.record.leader == NO_LEADER
    await Reassignments(scene.client).elect([TopicPartition("t", 0)], unclean=True)
    await scene.until(lambda: held.is_leader)
    await start_in_turn(scene, eligible)
    await scene.until(lambda: set(held.record.isr) == {chosen, eligible})

    await scene.node(chosen).workers.run(held.log.truncate_to, 10, 0)
    scene.nodes.hosts[eligible].kill()
    await asyncio.sleep(1)
    await start_in_turn(scene, eligible)
    await scene.until(lambda: all(len(one.record.isr) == 2 for one in scene.replicas()))
    assert [one.log.end_offset for one in scene.replicas()] == [20, 20]
    assert [one.high_watermark for one in scene.replicas()] == [20, 20]
    assert _restored(scene) == 1


@run_with(play)
async def test_accepted_loss_of_one_replica_costs_no_records(
    scene: Scene,
) -> None:
    await write(scene)
    await asyncio.sleep(SAVED_S)
    leader = await end_all(scene, clean=True)
    host = scene.nodes.hosts[leader]
    name = directory(host).partition("/logs/")[2]
    take_partition(host)
    await start_in_turn(scene, leader)
    accepted_losses.ask(host.disk, "data", name)
    await asyncio.sleep(2 * RETRY_SECONDS)
    assert scene.replicas()[0].log.is_lost, "others have what it lost"
    await start_in_turn(scene, *(node for node in scene.nodes.hosts if node != leader))
    await check_whole(scene)
    await Reassignments(scene.client).elect([TopicPartition("t", 0)])
    await scene.until(lambda: scene.replicas()[0].record.leader == leader)
    await check_whole(scene)
    assert {one.log.start_offset for one in scene.replicas()} == {0}


def _restored(scene: Scene) -> int:
    return sum(node.fetchers.copied.restored for node in scene.nodes.nodes())


@run_with(with_seeds, 8, play)
async def test_new_topic_is_not_taken_for_lost(scene: Scene) -> None:
    async def make() -> None:
        await Admin(scene.client).create_topic("u", 3, 3)

    making = asyncio.ensure_future(make())
    await asyncio.sleep(0.05)
    for host in scene.nodes.hosts.values():
        host.cut_power()
    await asyncio.gather(making, return_exceptions=True)
    await start_in_turn(scene, 1, 2, 3, pause_s=0.1)
    await scene.until(lambda: len(scene.replicas()) == 3)
    for node in scene.nodes.nodes():
        for _, one in node.partitions.items():
            assert not one.log.is_lost
