"""Moving replicas and leaders: one answer for each partition, and asking again is harmless."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.reassignments import PREFERRED, UNCLEAN, Reassignments, ReplicaMove
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicPartition
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
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from simulation.loop import SimLoop
from tests.run_with import run_with
from tests.unit.client.model import CLOSE, ModelBroker, with_model

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@run_with(with_model)
async def test_each_reassignment_has_its_own_result(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    asked: list[AlterPartitionReassignmentsRequest] = []

    def answer(request: AlterPartitionReassignmentsRequest) -> Any:
        asked.append(request)
        if len(asked) == 1:
            return CLOSE  # To begin a move that has begun changes nothing.
        return AlterPartitionReassignmentsResponse(
            error_code=0,
            error_message=None,
            responses=[
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=row.partition_index,
                            error_code=39 if topic.name == "b" else 0,
                            error_message="no such broker" if topic.name == "b" else None,
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    broker.answers[AlterPartitionReassignmentsRequest] = answer
    targets = {A0: (1, 2), A1: None, B0: (9,)}
    answers = await Reassignments(cluster).reassign(targets, keep_factor=True)
    assert (answers[A0], answers[A1]) == (None, None)
    refused = answers[B0]
    assert isinstance(refused, Refused)
    assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert str(refused) == "no such broker"
    assert not asked[1].allow_replication_factor_change
    rows = [row for topic in asked[1].topics for row in topic.partitions]
    assert [row.replicas and list(row.replicas) for row in rows] == [[1, 2], None, [9]]


@run_with(with_model)
async def test_ongoing_reassignments_are_listed(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    row = OngoingPartitionReassignment(
        partition_index=1, replicas=[3, 1], adding_replicas=[3], removing_replicas=[1]
    )
    broker.answers[ListPartitionReassignmentsRequest] = lambda request: (
        ListPartitionReassignmentsResponse(
            error_code=0,
            error_message=None,
            topics=[OngoingTopicReassignment(name="a", partitions=[row])],
        )
    )
    assert await Reassignments(cluster).ongoing() == {A1: ReplicaMove((3, 1), (3,), (1,))}


@pytest.mark.parametrize(("unclean", "kind"), [(False, PREFERRED), (True, UNCLEAN)])
@run_with(with_model)
async def test_elections_are_requested_by_type(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster, *, unclean: bool, kind: int
) -> None:
    def answer(request: ElectLeadersRequest) -> Any:
        assert request.election_type == kind
        assert request.topic_partitions is not None
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[
                        ElectLeadersPartitionResult(
                            partition_id=index,
                            error_code=84 if index else 0,
                            error_message=None,
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.topic_partitions
            ]
        )

    broker.answers[ElectLeadersRequest] = answer
    answers = await Reassignments(cluster).elect([A0, A1], unclean=unclean)
    assert answers[A0] is None
    refused = answers[A1]
    assert refused is not None
    assert refused.code is ErrorCode.ELECTION_NOT_NEEDED


@run_with(with_model)
async def test_refusal_of_the_whole_request_is_raised(
    loop: SimLoop, broker: ModelBroker, cluster: Cluster
) -> None:
    broker.answers[ElectLeadersRequest] = lambda request: ElectLeadersResponse(
        error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), replica_election_results=[]
    )
    with pytest.raises(Refused):
        await Reassignments(cluster).elect([A0])
