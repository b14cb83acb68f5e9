"""Administration of replicas and leaders: reassignments and elections (KIP-455, KIP-460).

All requests are idempotent: starting a started reassignment, or electing the current leader,
changes nothing. Each partition has its own result; a refused one does not affect the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.errors import Refused
from penstock.client.cluster import Cluster
from penstock.client.errors import check, refusal
from penstock.client.metadata import TopicPartition, by_topic
from penstock.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

PREFERRED = 0
UNCLEAN = 1

Answers = dict[TopicPartition, Refused | None]
"""Error of each partition; None: accepted."""


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """Ongoing reassignment of a partition."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Reassignments:
    """Reassignments and elections of one cluster."""

    def __init__(self, cluster: Cluster, timeout_ms: int = 30_000) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def elect(self, places: Iterable[TopicPartition], *, unclean: bool = False) -> Answers:
        """Elects preferred leaders; with `unclean`, any live replica, which may lose records."""
        grouped = by_topic((place, place.partition) for place in places)
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=[
                ElectLeadersTopicPartitions(topic=name, partitions=indexes)
                for name, indexes in grouped.items()
            ],
            timeout_ms=self._timeout_ms,
        )

        async def ask() -> Answers:
            reply = await self._cluster.call(request, ElectLeadersResponse)
            check(reply.error_code)
            return {
                TopicPartition(topic.topic, row.partition_id): _answer(
                    row.error_code, row.error_message
                )
                for topic in reply.replica_election_results
                for row in topic.partition_result
            }

        return await self._cluster.retrying(ask)

    async def reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        keep_factor: bool = False,
    ) -> Answers:
        """Starts reassignments to these replicas; None cancels an ongoing one."""
        grouped = by_topic(
            (place, ReassignablePartition(partition_index=place.partition, replicas=replicas))
            for place, replicas in targets.items()
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name=name, partitions=rows) for name, rows in grouped.items()
            ],
            allow_replication_factor_change=not keep_factor,
            timeout_ms=self._timeout_ms,
        )

        async def ask() -> Answers:
            reply = await self._cluster.call(request, AlterPartitionReassignmentsResponse)
            check(reply.error_code, reply.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): _answer(
                    row.error_code, row.error_message
                )
                for topic in reply.responses
                for row in topic.partitions
            }

        return await self._cluster.retrying(ask)

    async def ongoing(self) -> dict[TopicPartition, ReplicaMove]:
        """Returns all ongoing reassignments."""
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=self._timeout_ms)

        async def ask() -> dict[TopicPartition, ReplicaMove]:
            reply = await self._cluster.call(request, ListPartitionReassignmentsResponse)
            check(reply.error_code, reply.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): ReplicaMove(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in reply.topics
                for row in topic.partitions
            }

        return await self._cluster.retrying(ask)


def _answer(code: int, message: str | None) -> Refused | None:
    return refusal(code, message) if code else None
