"""Replica fetchers: one fetcher per leader, kept in line with the partitions' roles.

Owns: the fetchers and their tasks, and one `ReplicaFollower` for each replica that is not leader.
Invariants: a `ReplicaFollower` belongs to one leader in one leader epoch. When either changes, it
is retired before anything else is done with the partition, and its successor starts after the disk
work of its predecessor has ended. A fetcher without partitions is stopped.
Elsewhere: roles (`partitions`), requests (`fetcher`), the log (`replica_follower`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from penstock.base.errors import PeerError
from penstock.base.ports import Random, WallClock, Workers
from penstock.base.task_set import TaskSet
from penstock.client.errors import check
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import NO_LEADER, Incarnation
from penstock.cluster.replication.fetcher import Fetcher
from penstock.cluster.replication.log_repair import CopyCounters
from penstock.cluster.replication.partition import Partition
from penstock.cluster.replication.peer_connections import PeerConnections
from penstock.cluster.replication.replica_follower import (
    FollowedPartition,
    FollowerStatus,
    ReplicaFollower,
    ReplicationContext,
)
from penstock.cluster.replication.throttle import FollowerThrottle, Throttle
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST = -2


class Replicas(Protocol):
    """The replicas on this node; see `partitions`."""

    def replicas(self) -> Iterable[Partition]: ...


class Fetchers:
    """All replica fetchers of this node. Runs on the event loop."""

    def __init__(
        self,
        node_id: int,
        epoch: Callable[[], int],
        partitions: Replicas,
        peers: PeerConnections,
        watcher: MetadataWatcher,
        configs: BrokerConfigs,
        workers: Workers,
        clock: WallClock,
        random: Random,
    ) -> None:
        """`epoch` is this node's broker epoch, negative before it has one."""
        self._node_id = node_id
        self._epoch = epoch
        self._partitions = partitions
        self._peers = peers
        self._watcher = watcher
        self._configs = configs
        self._throttle = FollowerThrottle(Throttle("follower", node_id, configs, watcher))
        self._tasks = TaskSet()
        self._context = ReplicationContext(
            workers, clock, random, self._tasks.start, self._ask_start, self._ask_end
        )
        self._fetchers: dict[int, tuple[Fetcher, asyncio.Task[None]]] = {}
        """Fetcher and its task by leader."""
        self._replicas: dict[FollowedPartition, ReplicaFollower] = {}
        self._incarnations: dict[int, Incarnation] = {}
        self._is_closed = False

    @property
    def copied(self) -> CopyCounters:
        return self._context.copied

    @property
    def fetchers(self) -> list[Fetcher]:
        return [fetcher for fetcher, _ in self._fetchers.values()]

    def replica_follower(self, partition: Partition) -> ReplicaFollower | None:
        return self._replicas.get((partition.topic_id, partition.index))

    def count(self, status: FollowerStatus) -> int:
        """Number of replicas with this status."""
        return sum(one.status is status for one in self._replicas.values())

    # -- roles ------------------------------------------------------------------------------

    def follow(self) -> None:
        """Brings the fetchers in line with the present roles and brokers."""
        if self._is_closed:
            return
        wanted: dict[FollowedPartition, Partition] = {}
        for partition in self._partitions.replicas():
            if partition.is_leader or partition.record.leader in (NO_LEADER, self._node_id):
                continue
            wanted[partition.topic_id, partition.index] = partition
        retired: dict[FollowedPartition, ReplicaFollower] = {}
        for key, replica in list(self._replicas.items()):
            if wanted.get(key) is not replica.partition or replica.is_over:
                self._fetchers[replica.leader][0].remove(replica)
                del self._replicas[key]
                retired[key] = replica
        for key, partition in wanted.items():
            if key not in self._replicas:
                self._take_on(partition, retired.get(key))
            self._replicas[key].reconsider()  # Its log may have been lost before it started.
        self._end_unneeded()
        self._retry_returned()

    def _take_on(self, partition: Partition, before: ReplicaFollower | None) -> None:
        replica = ReplicaFollower(partition, self._context)
        if before is not None and before.partition is not partition:
            before = None
        self._replicas[replica.key] = replica
        self._fetcher(replica.leader).add(replica, before)

    def _fetcher(self, leader: int) -> Fetcher:
        found = self._fetchers.get(leader)
        if found is not None:
            return found[0]
        fetcher = Fetcher(
            leader, self._peers, self._configs, self._epoch, self._context, self._throttle
        )
        self._fetchers[leader] = fetcher, self._tasks.start(fetcher.run())
        return fetcher

    def _end_unneeded(self) -> None:
        for leader, (fetcher, task) in list(self._fetchers.items()):
            if not fetcher.is_needed:
                task.cancel()
                del self._fetchers[leader]

    def _retry_returned(self) -> None:
        """Ends the backoff for leaders that have registered again."""
        brokers = self._watcher.image.brokers
        incarnations = {node_id: record.incarnation for node_id, record in brokers.items()}
        for leader, (fetcher, _) in self._fetchers.items():
            if incarnations.get(leader) != self._incarnations.get(leader):
                fetcher.retry_now()
            fetcher.recheck()
        self._incarnations = incarnations

    # -- running ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until cancelled; raises the error of a failed task."""
        try:
            await self._tasks.failure()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stops fetching; running changes to logs are finished first."""
        self._is_closed = True
        self._throttle.close()
        fetching = [task for _, task in self._fetchers.values()]
        for replica in self._replicas.values():
            replica.retire()
        self._replicas.clear()
        self._fetchers.clear()
        for task in fetching:
            task.cancel()
        await self._tasks.finish()

    async def _ask_start(self, replica: ReplicaFollower) -> int:
        """Start offset of the leader's log."""
        partition = replica.partition
        cell = ListOffsetsPartition(
            partition_index=partition.index,
            current_leader_epoch=replica.leader_epoch,
            timestamp=EARLIEST,
        )
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[cell])],
        )
        response = await self._peers.ask(replica.leader, request, ListOffsetsResponse)
        answers = {
            (t.name, row.partition_index): row for t in response.topics for row in t.partitions
        }
        return _answer_for(replica, answers, "start").offset

    async def _ask_end(self, replica: ReplicaFollower) -> int:
        """End offset of the leader's log, committed or not."""
        partition, epoch = replica.partition, replica.leader_epoch
        cell = OffsetForLeaderPartition(
            partition=partition.index, current_leader_epoch=epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node_id,
            topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[cell])],
        )
        response = await self._peers.ask(replica.leader, request, OffsetForLeaderEpochResponse)
        answers = {(t.topic, row.partition): row for t in response.topics for row in t.partitions}
        return _answer_for(replica, answers, "end").end_offset


class PartitionAnswer(Protocol):
    """Part of a response for one partition."""

    error_code: int


Answer = TypeVar("Answer", bound=PartitionAnswer)


def _answer_for(
    replica: ReplicaFollower, answers: Mapping[tuple[str, int], Answer], about: str
) -> Answer:
    """Returns the leader's answer for one partition; raises its error."""
    partition = replica.partition
    answer = answers.get((partition.topic, partition.index))
    if answer is None:
        raise PeerError(f"node {replica.leader} does not answer for {partition.topic}")
    check(answer.error_code, about=f"the {about} of {partition.topic}")
    return answer
