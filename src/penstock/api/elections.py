"""ElectLeaders (api 43), versions 0-2; AlterPartitionReassignments (45), 0-1;
ListPartitionReassignments (46), 0.

What these say on one node: every partition is led by the only replica it has, so an election is
not needed, a reassignment to where the replica already is changes nothing, any other names a
broker that is not there, and nothing is ever under way. ElectLeaders v1 adds the type of election,
v2 flexible; with a null list it reports only partitions that need something.
AlterPartitionReassignments v1 can forbid a change of the replication factor.
"""

from penstock.api.context import Call, Context
from penstock.api.route import Operation
from penstock.api.rows import may_cluster
from penstock.base.errors import ErrorCode, Refused
from penstock.cluster import topics
from penstock.cluster.image import Image
from penstock.cluster.keys import PartitionRecord
from penstock.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

PREFERRED = 0
UNCLEAN = 1


# -- ElectLeaders -----------------------------------------------------------------------------


def elect_leaders(ctx: Context, call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not may_cluster(ctx, call, Operation.ALTER):
        return _no_election(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request)
    if request.election_type not in (PREFERRED, UNCLEAN):
        return _no_election(ErrorCode.INVALID_REQUEST, request)
    image = ctx.image
    if request.topic_partitions is None:
        wanted = {name: list(range(len(t.partitions))) for name, t in image.topics.items()}
    else:
        wanted = {row.topic: list(row.partitions) for row in request.topic_partitions}
    results = []
    for name, indexes in wanted.items():
        rows = [_elect(image, name, index, request.election_type) for index in indexes]
        if request.topic_partitions is None:
            rows = [row for row in rows if row.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=name, partition_result=rows))
    return ElectLeadersResponse(replica_election_results=results)


def _no_election(code: ErrorCode, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """v0 has no code for the whole request, so every partition carries it too."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=row.topic,
                partition_result=[
                    ElectLeadersPartitionResult(
                        partition_id=index, error_code=code, error_message=None
                    )
                    for index in row.partitions
                ],
            )
            for row in request.topic_partitions or ()
        ],
    )


def _elect(image: Image, name: str, index: int, election_type: int) -> ElectLeadersPartitionResult:
    record = image.partition(name, index)
    message = None
    if record is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_topic = name in image.topics
        message = f"No such partition as {name}-{index}" if is_topic else f"No such topic as {name}"
    elif _has_leader(image, record, election_type):
        code = ErrorCode.ELECTION_NOT_NEEDED
    elif election_type == PREFERRED:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=message)


def _has_leader(image: Image, record: PartitionRecord, election_type: int) -> bool:
    if election_type == PREFERRED:
        return record.leader == record.replicas[0]
    return record.leader in image.brokers


# -- reassignments ----------------------------------------------------------------------------


def alter_partition_reassignments(
    ctx: Context, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not may_cluster(ctx, call, Operation.ALTER):
        return AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, responses=()
        )
    keep_factor = not request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassign(ctx.image, topic.name, target, keep_factor)
                    for target in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassign(
    image: Image, name: str, target: ReassignablePartition, keep_factor: bool
) -> ReassignablePartitionResponse:
    row = ReassignablePartitionResponse(
        partition_index=target.partition_index, error_code=ErrorCode.NONE, error_message=None
    )
    try:
        _check_reassignment(image, name, target, keep_factor)
    except Refused as refused:
        row.error_code = refused.code
        row.error_message = refused.message
    return row


def _check_reassignment(
    image: Image, name: str, target: ReassignablePartition, keep_factor: bool
) -> None:
    index = target.partition_index
    record = image.partition(name, index)
    if record is None:
        what = f"partition {name}:{index}" if name in image.topics else f"a topic named {name}"
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {what}.")
    if target.replicas is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    topics.assign(target.replicas, image, index, None)
    if keep_factor and len(target.replicas) != len(record.replicas):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is {len(record.replicas)} and was not to be changed.",
        )
    if tuple(target.replicas) != record.replicas:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "This version does not move replicas between brokers.",
        )


def list_partition_reassignments(
    ctx: Context, call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, topics=()
        )
    image = ctx.image
    if request.topics is None:
        wanted = {name: list(range(len(t.partitions))) for name, t in image.topics.items()}
    else:
        wanted = {row.name: list(row.partition_indexes) for row in request.topics}
    ongoing = []
    for name, indexes in wanted.items():
        rows = [row for index in indexes if (row := _ongoing(image, name, index)) is not None]
        if rows:
            ongoing.append(OngoingTopicReassignment(name=name, partitions=rows))
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=ongoing
    )


def _ongoing(image: Image, name: str, index: int) -> OngoingPartitionReassignment | None:
    record = image.partition(name, index)
    if record is None or not (record.adding or record.removing):
        return None
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=record.replicas,
        adding_replicas=record.adding,
        removing_replicas=record.removing,
    )
