"""A member of a consumer group whose partitions the coordinator assigns."""

import asyncio

import pytest

from penstock.base.errors import Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import committed_offsets
from penstock.client.consumer.group_member import GroupListener, GroupMember
from penstock.client.metadata import TopicPartition
from simulation.random import SimRandom
from tests.run_with import run_with
from tests.unit.app.simulated import Sim, on_broker


class Holder:
    """Records the assignments of its member."""

    def __init__(self, cluster: Cluster, group: str = "g") -> None:
        self.held: set[TopicPartition] = set()
        self.lost = 0
        self.failures: list[Exception] = []
        listener = GroupListener(self._assigned, self._revoked, self._lose, self.failures.append)
        self.member = GroupMember(cluster, group, ["log"], listener)

    async def _assigned(self, added: list[TopicPartition]) -> None:
        self.held |= set(added)

    async def _revoked(self, gone: list[TopicPartition]) -> None:
        self.held -= set(gone)

    def _lose(self) -> None:
        self.lost += 1
        self.held.clear()


async def new_cluster(sim: Sim, seed: int) -> Cluster:
    cluster = Cluster(SimRandom(seed), sim.cluster.addresses)
    await cluster.bootstrap()
    return cluster


@run_with(on_broker)
async def test_members_share_partitions_and_hand_them_over(sim: Sim) -> None:
    clusters = [await new_cluster(sim, seed) for seed in (1, 2)]
    await Admin(clusters[0]).create_topic("log", 4)
    await clusters[1].topic("log")
    first, second = (Holder(cluster) for cluster in clusters)
    await first.member.join()
    await asyncio.sleep(5)
    assert len(first.held) == 4
    await second.member.join()
    for _ in range(300):
        await asyncio.sleep(0.1)
        assert not first.held & second.held
    assert (len(first.held), len(second.held)) == (2, 2)
    await first.member.leave()
    await asyncio.sleep(20)
    assert len(second.held) == 4
    await second.member.leave()
    for cluster in clusters:
        await cluster.close()


@run_with(on_broker)
async def test_only_members_commit_under_their_epoch(sim: Sim) -> None:
    cluster = await new_cluster(sim, 1)
    await Admin(cluster).create_topic("log", 1)
    holder = Holder(cluster)
    where = TopicPartition("log", 0)
    await holder.member.join()
    await asyncio.sleep(3)
    await holder.member.commit({where: 5})
    assert (await committed_offsets(cluster, "g"))[where].offset == 5
    outsider = Holder(cluster)
    with pytest.raises(Refused):
        await outsider.member.commit({where: 9})
    assert (await committed_offsets(cluster, "g", is_stable=True))[where].offset == 5
    await holder.member.leave()
    await cluster.close()


@run_with(on_broker)
async def test_member_that_was_away_too_long_rejoins_without_partitions(
    sim: Sim,
) -> None:
    cluster = await new_cluster(sim, 1)
    await Admin(cluster).create_topic("log", 2)
    holder = Holder(cluster)
    await holder.member.join()
    await asyncio.sleep(3)
    assert len(holder.held) == 2
    # Its beats do not get through for longer than the session lasts.
    beats = holder.member._heartbeats
    assert beats._task is not None
    beats._task.cancel()
    await asyncio.sleep(120)
    beats._task = asyncio.ensure_future(beats._run())
    await asyncio.sleep(20)
    assert holder.lost == 1
    assert len(holder.held) == 2
    assert holder.failures == []
    await holder.member.leave()
    await cluster.close()
