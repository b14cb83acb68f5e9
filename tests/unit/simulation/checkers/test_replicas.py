"""`ReplicaChecker`: finds violations inside of nodes, and only those."""

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
from tests.unit.simulation.checkers.fake_context import FakeContext

OVERRIDES = {"min.insync.replicas": "2"}


class ClusterFixture:
    """Three nodes that have replicated three records and were inspected."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.context = FakeContext()
        metadata = MetadataChecker(self.context, cluster.etcd.space)
        self.checker = ReplicaChecker(self.context, cluster, metadata, 2)

    def replicas(self) -> list[Partition]:
        """Replicas, the leader's first."""
        found = [node.partitions.replica("t", 0) for node in self.cluster.nodes()]
        return sorted((one for one in found if one), key=lambda one: not one.is_leader)

    def found(self) -> list[str]:
        self.checker.step()
        return self.context.found


def with_cluster(act: Callable[[ClusterFixture], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimCluster(loop, 1, (1, 2, 3), OVERRIDES)
        await cluster.start()
        fixture = ClusterFixture(cluster)
        async with Cluster(SimRandom(1), cluster.addresses) as client:
            await Admin(client).create_topic("t", 1, 3)
            async with Producer(SimClock(loop), SimRandom(2), client) as producer:
                for value in (b"a", b"b", b"c"):
                    await (await producer.send("t", value, partition=0))
            await asyncio.sleep(1)
            assert fixture.found() == []
            await act(fixture)
        cluster.close()

    loop = SimLoop(1, time_max=600)
    loop.run(main())


@run_with(with_cluster)
async def test_idle_cluster_has_equal_replicas(fixture: ClusterFixture) -> None:
    assert fixture.checker.unsettled() is None
    fixture.checker.check_equal()
    assert fixture.context.found == []
    fixture.cluster.hosts[2].kill()
    assert fixture.checker.unsettled() == "node-2 is down"


@run_with(with_cluster)
async def test_two_leaders_in_one_epoch_are_a_violation(fixture: ClusterFixture) -> None:
    leader, follower, _ = fixture.replicas()
    follower.leader_state = leader.leader_state
    assert fixture.found() == ["two-leaders"]


@run_with(with_cluster)
async def test_undurable_commit_is_a_violation(fixture: ClusterFixture) -> None:
    leader, one, other = fixture.replicas()
    one.log.durable_offset = other.log.durable_offset = 1
    leader.high_watermark = 2
    fixture.checker._ends.clear()
    fixture.checker._seen[leader.node_id].clear()
    assert "undurable" in fixture.found()


@run_with(with_cluster)
async def test_in_sync_replica_without_committed_records_is_a_violation(
    fixture: ClusterFixture,
) -> None:
    follower = fixture.replicas()[1]
    follower.log.durable_offset = 1
    assert fixture.found() == ["truncated"]


@run_with(with_cluster)
async def test_decreasing_high_watermark_is_a_violation_without_a_new_unclean_election(
    fixture: ClusterFixture,
) -> None:
    follower, other = fixture.replicas()[1:]
    unclean = replace(follower.record, is_recovering=True, unclean_epoch=0)
    follower.record = replace(unclean, isr=(follower.record.leader,))
    assert fixture.found() == []
    follower.high_watermark = 2
    assert fixture.found() == [], "the replica follows that election now"
    other.record = unclean
    assert fixture.found() == []
    other.high_watermark = 2
    assert fixture.found() == ["went-back"], "the replica was in sync since"


@run_with(with_cluster)
async def test_different_batches_below_the_high_watermark_are_a_violation(
    fixture: ClusterFixture,
) -> None:
    batches = next(iter(fixture.checker._batches.values()))
    batches[1] = batches[1]._replace(crc=0)
    fixture.checker._seen[fixture.replicas()[1].node_id].clear()
    assert fixture.found() == ["log-matching"]
