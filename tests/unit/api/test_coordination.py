"""What the APIs of groups and transactions share: where they carry their errors."""

from typing import Any

import pytest

from penstock.api.routes import ROUTES
from penstock.base.errors import ErrorCode
from penstock.wire.messages import committed, consumer_groups, groups, txns
from tests.unit.api.harness import Node, error_codes, on_node

HANDLERS = {route.request: route.handler for route in ROUTES}

EXAMPLES: tuple[Any, ...] = (
    committed.OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            committed.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    committed.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=None
                    )
                ],
            )
        ],
    ),
    committed.OffsetDeleteRequest(group_id="g", topics=[]),
    committed.OffsetFetchRequest(
        group_id="g",
        topics=[committed.OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        groups=[committed.OffsetFetchRequestGroup(group_id="g", topics=None)],
    ),
    consumer_groups.ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=False
    ),
    consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, topic_partitions=None
    ),
    groups.DeleteGroupsRequest(groups_names=["g"]),
    groups.DescribeGroupsRequest(groups=["g"]),
    groups.FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
    groups.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
    groups.JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    ),
    groups.LeaveGroupRequest(group_id="g", member_id="m"),
    groups.ListGroupsRequest(),
    groups.SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
    txns.AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"
    ),
    txns.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[txns.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        transactions=[
            txns.AddPartitionsToTxnTransaction(
                transactional_id="x",
                producer_id=1,
                producer_epoch=0,
                topics=[txns.AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
        ],
    ),
    txns.DescribeTransactionsRequest(transactional_ids=["x"]),
    txns.EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True),
    txns.ListTransactionsRequest(),
    txns.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            txns.TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    txns.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=None
                    )
                ],
            )
        ],
    ),
)


LISTS = (groups.ListGroupsRequest, txns.ListTransactionsRequest)
"""Where nothing is coordinated yet, there is nothing to list, and that is no error."""

CASES = [
    pytest.param(example, version, id=f"{type(example).__name__}-v{version}")
    for example in EXAMPLES
    for version in range(type(example).WIRE.versions[0], type(example).WIRE.versions[1] + 1)
    if not isinstance(example, groups.FindCoordinatorRequest)
]


@pytest.mark.parametrize(("request_", "version"), CASES)
def test_the_error_is_where_the_version_carries_it(request_: Any, version: int) -> None:
    """Nobody has asked for a coordinator yet, so there is none."""

    async def test(node: Node) -> None:
        await node.create("t", 1)
        if isinstance(request_, committed.OffsetCommitRequest):
            request_.topics[0].topic_id = node.ctx.image.topics["t"].id
        answer = await node.ask(HANDLERS[type(request_)], version, request_)
        codes = set(error_codes(answer)) - {0}
        expected = set() if isinstance(request_, LISTS) else {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert codes == expected

    on_node(test)
