"""Reassignment of replicas and leaders.

ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46).
ElectLeaders v1 adds unclean elections (KIP-460). AlterPartitionReassignments v1 may forbid a change
of the replication factor (KIP-860).
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int8, int16, int32, message, string, struct


@struct()
class ElectLeadersTopicPartitions:
    """Partitions of one topic to elect leaders for."""

    topic: str = string()
    partitions: Sequence[int] = array(int32, default=())


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    """Elects preferred (0) or, with possible data loss, unclean (1) leaders; null means all."""

    election_type: int = int8(since=1, default=0)
    topic_partitions: Sequence[ElectLeadersTopicPartitions] | None = array(
        ElectLeadersTopicPartitions, nullable=True
    )
    timeout_ms: int = int32(default=60000)


@struct()
class ElectLeadersPartitionResult:
    """Result of one election."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@struct()
class ReplicaElectionResult:
    """Results of one topic."""

    topic: str = string()
    partition_result: Sequence[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    """Results of the elections."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=1, default=0)
    replica_election_results: Sequence[ReplicaElectionResult] = array(ReplicaElectionResult)


@struct()
class ReassignablePartition:
    """Target replicas of a partition; null cancels a reassignment."""

    partition_index: int = int32()
    replicas: Sequence[int] | None = array(int32, nullable=True, default=None)


@struct()
class ReassignableTopic:
    """Part of the request for one topic."""

    name: str = string()
    partitions: Sequence[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    """Starts or cancels reassignments."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: Sequence[ReassignableTopic] = array(ReassignableTopic)


@struct()
class ReassignablePartitionResponse:
    """Result of starting or cancelling one reassignment."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@struct()
class ReassignableTopicResponse:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    """Results of the reassignments."""

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    responses: Sequence[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@struct()
class ListPartitionReassignmentsTopics:
    """Requested partitions of one topic."""

    name: str = string()
    partition_indexes: Sequence[int] = array(int32, default=())


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    """Requests the reassignments in progress; null topics means all."""

    timeout_ms: int = int32(default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=True
    )


@struct()
class OngoingPartitionReassignment:
    """Replicas of a partition that is being reassigned."""

    partition_index: int = int32()
    replicas: Sequence[int] = array(int32, default=())
    adding_replicas: Sequence[int] = array(int32, default=())
    removing_replicas: Sequence[int] = array(int32, default=())


@struct()
class OngoingTopicReassignment:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    """Reassignments in progress."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    topics: Sequence[OngoingTopicReassignment] = array(OngoingTopicReassignment)
