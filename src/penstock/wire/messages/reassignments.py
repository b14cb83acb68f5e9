"""Moving replicas and leaders.

ElectLeaders (43), AlterPartitionReassignments (45), ListPartitionReassignments (46).
ElectLeaders v1 adds unclean elections (KIP-460). AlterPartitionReassignments v1 may forbid a change
of the replication factor (KIP-860).

What holds what:

- ElectLeadersRequest > ElectLeadersTopicPartitions
- ElectLeadersResponse > ReplicaElectionResult > ElectLeadersPartitionResult
- AlterPartitionReassignmentsRequest > ReassignableTopic > ReassignablePartition
- AlterPartitionReassignmentsResponse > ReassignableTopicResponse > ReassignablePartitionResponse
- ListPartitionReassignmentsRequest > ListPartitionReassignmentsTopics
- ListPartitionReassignmentsResponse > OngoingTopicReassignment > OngoingPartitionReassignment
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
    """Elects preferred (0) or, at the cost of data, any (1) leaders; null means all."""

    election_type: int = int8(since=1, default=0)
    topic_partitions: Sequence[ElectLeadersTopicPartitions] | None = array(
        ElectLeadersTopicPartitions, nullable=True
    )
    timeout_ms: int = int32(default=60000)


@struct()
class ElectLeadersPartitionResult:
    """Whether one election was held."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@struct()
class ReplicaElectionResult:
    """A topic's part of the answer."""

    topic: str = string()
    partition_result: Sequence[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    """Which elections were held."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=1, default=0)
    replica_election_results: Sequence[ReplicaElectionResult] = array(ReplicaElectionResult)


@struct()
class ReassignablePartition:
    """The replicas a partition shall have; null cancels a move."""

    partition_index: int = int32()
    replicas: Sequence[int] | None = array(int32, nullable=True, default=None)


@struct()
class ReassignableTopic:
    """A topic's part of the request."""

    name: str = string()
    partitions: Sequence[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    """Starts or cancels moves of replicas."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: Sequence[ReassignableTopic] = array(ReassignableTopic)


@struct()
class ReassignablePartitionResponse:
    """Whether one move was started or cancelled."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


@struct()
class ReassignableTopicResponse:
    """A topic's part of the answer."""

    name: str = string()
    partitions: Sequence[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    """Which moves were started or cancelled."""

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    responses: Sequence[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@struct()
class ListPartitionReassignmentsTopics:
    """Partitions of one topic asked about."""

    name: str = string()
    partition_indexes: Sequence[int] = array(int32, default=())


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    """Asks for the moves under way; null topics means all."""

    timeout_ms: int = int32(default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=True
    )


@struct()
class OngoingPartitionReassignment:
    """The replicas of a partition that is moving."""

    partition_index: int = int32()
    replicas: Sequence[int] = array(int32, default=())
    adding_replicas: Sequence[int] = array(int32, default=())
    removing_replicas: Sequence[int] = array(int32, default=())


@struct()
class OngoingTopicReassignment:
    """A topic's part of the answer."""

    name: str = string()
    partitions: Sequence[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    """The moves under way."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    topics: Sequence[OngoingTopicReassignment] = array(OngoingTopicReassignment)
