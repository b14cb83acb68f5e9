"""Elections and reassignments, as any node answers them."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.admin.elections import (
    PREFERRED,
    UNCLEAN,
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node


async def make(node: Node, name: str = "t") -> None:
    ctx = node.ctx
    plan = plan_topic(NewTopic(name, 2), ctx.image, ctx.configs, ctx.random)
    await ctx.reached(await create_topic(ctx.admin.store, plan))


async def move(node: Node, record: PartitionRecord, index: int = 0) -> None:
    await node.put(store_keys.partition_key(node.ctx.image.topics["t"].id, index), record)


def deny_cluster(node: Node, operation: Operation) -> None:
    node.rights.deny(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def election(*rows: tuple[str, list[int]], kind: int = PREFERRED) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            ElectLeadersTopicPartitions(topic=name, partitions=indexes) for name, indexes in rows
        ],
    )


@pytest.mark.parametrize("version", range(3))
@run_with(on_node)
async def test_partition_with_its_preferred_leader_needs_no_election(
    node: Node, *, version: int
) -> None:
    await make(node)
    asked = election(("t", [0, 1, 5]), ("gone", [0]))
    answer = await node.ask(elect_leaders, version, asked)
    known, unknown = answer.replica_election_results
    assert [row.error_code for row in known.partition_result] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert known.partition_result[2].error_message == "No such partition as t-5"
    assert unknown.partition_result[0].error_message == "No such topic as gone"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
@run_with(on_node)
async def test_partition_without_an_eligible_leader_is_an_error(
    node: Node, *, kind: int, code: ErrorCode
) -> None:
    await make(node)
    await move(node, PartitionRecord(replicas=(8, 9), leader=9, isr=(9,)))
    answer = await node.ask(elect_leaders, 2, election(("t", [0]), kind=kind))
    assert answer.replica_election_results[0].partition_result[0].error_code == code
    # Asking for all shows only what needs something.
    asked = ElectLeadersRequest(election_type=kind, topic_partitions=None)
    answer = await node.ask(elect_leaders, 2, asked)
    [topic] = answer.replica_election_results
    assert [(row.partition_id, row.error_code) for row in topic.partition_result] == [(0, code)]


@run_with(on_node)
async def test_preferred_replica_is_elected(node: Node) -> None:
    await make(node)
    await node.put(store_keys.broker_key(2), BrokerRecord(2, "h", 1))
    await move(node, PartitionRecord(replicas=(1, 2), leader=2, isr=(1, 2), leader_epoch=3))
    answer = await node.ask(elect_leaders, 2, election(("t", [0])))
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE
    record = node.ctx.image.topics["t"].partitions[0]
    assert (record.leader, record.leader_epoch) == (1, 4)


@run_with(on_node)
async def test_unclean_election_happens_on_request_and_is_counted(node: Node) -> None:
    await make(node)
    await move(node, PartitionRecord(replicas=(9, 1), leader=9, isr=(9,)))
    asked = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None)
    answer = await node.ask(elect_leaders, 2, asked)
    [topic] = answer.replica_election_results
    rows = [(row.partition_id, row.error_code) for row in topic.partition_result]
    assert rows == [(0, ErrorCode.NONE)]
    record = node.ctx.image.topics["t"].partitions[0]
    assert (record.leader, record.isr, record.leader_epoch) == (1, (1,), 1)
    family = node.ctx.metrics.catalogue.families["penstock_elections_total"]
    assert family.counter("unclean").value == 1


@pytest.mark.parametrize("version", range(3))
@run_with(on_node)
async def test_elections_require_the_permission(node: Node, *, version: int) -> None:
    deny_cluster(node, Operation.ALTER)
    answer = await node.ask(elect_leaders, version, election(("t", [0])))
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.replica_election_results[0].partition_result[0].error_code == code
    if version >= 1:
        assert answer.error_code == code


@run_with(on_node)
async def test_unknown_election_type_is_refused(node: Node) -> None:
    answer = await node.ask(elect_leaders, 2, election(("t", [0]), kind=5))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# Reassignments.


async def reassign(
    node: Node,
    replicas: list[int] | None,
    *,
    name: str = "t",
    index: int = 0,
    keep_factor: bool = False,
) -> int:
    target = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[target])],
        allow_replication_factor_change=not keep_factor,
    )
    answer = await node.ask(alter_partition_reassignments, 1, request)
    assert answer.error_code == ErrorCode.NONE
    code: int = answer.responses[0].partitions[0].error_code
    return code


@run_with(on_node)
async def test_reassignment_to_the_current_replicas_succeeds(node: Node) -> None:
    await make(node)
    assert await reassign(node, [1]) == ErrorCode.NONE
    assert await reassign(node, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    for wrong in ([], [9], [1, 1]):
        assert await reassign(node, wrong) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for name, index in (("gone", 0), ("t", 7)):
        code = await reassign(node, [1], name=name, index=index)
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def state(node: Node, index: int = 0) -> PartitionRecord:
    return node.ctx.image.topics["t"].partitions[index]


@run_with(on_node)
async def test_reassignment_starts_at_once_and_can_be_cancelled(node: Node) -> None:
    await make(node)
    await node.put(store_keys.broker_key(2), BrokerRecord(2, "h", 1))
    assert await reassign(node, [2]) == ErrorCode.NONE
    moving = state(node)
    assert (moving.replicas, moving.adding, moving.removing) == ((2, 1), (2,), (1,))
    assert (moving.leader, moving.isr, moving.partition_epoch) == (1, (1,), 1)
    # The same again changes nothing.
    assert await reassign(node, [2]) == ErrorCode.NONE
    assert state(node) == moving
    assert await reassign(node, None) == ErrorCode.NONE
    assert (state(node).replicas, state(node).adding) == ((1,), ())
    assert state(node, 1).partition_epoch == 0


@run_with(on_node)
async def test_replication_factor_changes_only_if_allowed(node: Node) -> None:
    await make(node)
    await node.put(store_keys.broker_key(2), BrokerRecord(2, "h", 1))
    code = await reassign(node, [1, 2], keep_factor=True)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert await reassign(node, [1, 2]) == ErrorCode.NONE
    assert (state(node).replicas, state(node).adding) == ((1, 2), (2,))


@run_with(on_node)
async def test_every_partition_of_a_large_request_is_answered(node: Node) -> None:
    ctx = node.ctx
    plan = plan_topic(NewTopic("t", 300), ctx.image, ctx.configs, ctx.random)
    await ctx.reached(await create_topic(ctx.admin.store, plan))
    await node.put(store_keys.broker_key(2), BrokerRecord(2, "h", 1))
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name="t",
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=[1, 2])
                    for index in range(302)
                ],
            )
        ]
    )
    answer = await node.ask(alter_partition_reassignments, 1, request)
    codes = [row.error_code for row in answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE] * 300 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert all(record.adding == (2,) for record in ctx.image.topics["t"].partitions)


@pytest.mark.parametrize("version", range(2))
@run_with(on_node)
async def test_reassignment_requires_the_permission(node: Node, *, version: int) -> None:
    deny_cluster(node, Operation.ALTER)
    request = AlterPartitionReassignmentsRequest(topics=[])
    answer = await node.ask(alter_partition_reassignments, version, request)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@run_with(on_node)
async def test_ongoing_reassignments_are_listed(node: Node) -> None:
    await make(node)
    await make(node, "u")
    everything = ListPartitionReassignmentsRequest(topics=None)
    answer = await node.ask(list_partition_reassignments, 0, everything)
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.NONE, [])
    moving = PartitionRecord(replicas=(1, 2), leader=1, isr=(1,), adding=(2,), removing=(1,))
    await move(node, moving, 1)
    answer = await node.ask(list_partition_reassignments, 0, everything)
    [topic] = answer.topics
    [row] = topic.partitions
    assert (topic.name, row.partition_index) == ("t", 1)
    assert (list(row.adding_replicas), list(row.removing_replicas)) == ([2], [1])
    named = [
        ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 9]),
        ListPartitionReassignmentsTopics(name="gone", partition_indexes=[0]),
    ]
    answer = await node.ask(
        list_partition_reassignments, 0, ListPartitionReassignmentsRequest(topics=named)
    )
    assert list(answer.topics) == []
    deny_cluster(node, Operation.DESCRIBE)
    answer = await node.ask(list_partition_reassignments, 0, everything)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
