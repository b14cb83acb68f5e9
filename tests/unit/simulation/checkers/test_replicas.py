"""`ReplicaChecker`: what is wrong inside of nodes is found, and what is well is not."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.producer.producer import Producer
from penstock.cluster.replication.partition import Partition
from simulation.checkers.metadata import MetadataChecker
from simulation.checkers.replicas import ReplicaChecker
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.loop import SimLoop
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.unit.simulation.checkers.stage import Stage

OVERRIDES = {"min.insync.replicas": "2"}


class Scene:
    """Three nodes that have copied three records, and have been looked at."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.stage = Stage()
        metadata = MetadataChecker(self.stage, cluster.etcd.space)
        self.checker = ReplicaChecker(self.stage, cluster, metadata, 2)

    def replicas(self) -> list[Partition]:
        """The leader's first."""
        found = [node.partitions.replica("t", 0) for node in self.cluster.nodes()]
        return sorted((one for one in found if one), key=lambda one: not one.is_leader)

    def found(self) -> list[str]:
        self.checker.step()
        return self.stage.found


def play(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimCluster(loop, 1, (1, 2, 3), OVERRIDES)
        await cluster.start()
        scene = Scene(cluster)
        async with Cluster(SimRandom(1), cluster.addresses) as client:
            await Admin(client).create_topic("t", 1, 3)
            async with Producer(SimClock(loop), SimRandom(2), client) as producer:
                for value in (b"a", b"b", b"c"):
                    await (await producer.send("t", value, partition=0))
            await asyncio.sleep(1)
            assert scene.found() == []
            await act(scene)
        cluster.close()

    loop = SimLoop(1, time_max=600)
    loop.run(main())


@run_with(play)
async def test_a_cluster_at_rest_is_well_and_the_same_everywhere(scene: Scene) -> None:
    assert scene.checker.unsettled() is None
    scene.checker.check_equal()
    assert scene.stage.found == []
    scene.cluster.hosts[2].kill()
    assert scene.checker.unsettled() == "node-2 is down"


@run_with(play)
async def test_two_leaders_in_one_epoch_are_found(scene: Scene) -> None:
    leader, follower, _ = scene.replicas()
    follower.leader_state = leader.leader_state
    assert scene.found() == ["two-leaders"]


@run_with(play)
async def test_a_commit_beyond_what_is_on_disk_is_found(scene: Scene) -> None:
    leader, one, other = scene.replicas()
    one.log.durable_offset = other.log.durable_offset = 1
    leader.high_watermark = 2
    scene.checker._ends.clear()
    scene.checker._seen[leader.node_id].clear()
    assert "undurable" in scene.found()


@run_with(play)
async def test_a_replica_in_sync_that_lost_what_was_committed_is_found(scene: Scene) -> None:
    follower = scene.replicas()[1]
    follower.log.durable_offset = 1
    assert scene.found() == ["truncated"]


@run_with(play)
async def test_a_replica_that_goes_back_is_found_unless_an_unclean_election_is_new_to_it(
    scene: Scene,
) -> None:
    follower, other = scene.replicas()[1:]
    unclean = replace(follower.record, is_recovering=True, unclean_epoch=0)
    follower.record = replace(unclean, isr=(follower.record.leader,))
    assert scene.found() == []
    follower.high_watermark = 2
    assert scene.found() == [], "it follows that election now"
    other.record = unclean
    assert scene.found() == []
    other.high_watermark = 2
    assert scene.found() == ["went-back"], "it was in sync since"


@run_with(play)
async def test_other_batches_below_the_high_watermark_are_found(scene: Scene) -> None:
    batches = next(iter(scene.checker._batches.values()))
    batches[1] = batches[1]._replace(crc=0)
    scene.checker._seen[scene.replicas()[1].node_id].clear()
    assert scene.found() == ["log-matching"]
