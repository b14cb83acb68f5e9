"""Common behaviour of group and transaction APIs: the fields that carry their errors."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.broker.api.routes import ROUTES
from penstock.wire.messages import classic_groups, consumer_groups, offset_commit, transactions
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, error_codes, on_node

HANDLERS = {route.request: route.handler for route in ROUTES}

EXAMPLES: tuple[Any, ...] = (
    offset_commit.OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=None
                    )
                ],
            )
        ],
    ),
    offset_commit.OffsetDeleteRequest(group_id="g", topics=[]),
    offset_commit.OffsetFetchRequest(
        group_id="g",
        topics=[offset_commit.OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        groups=[offset_commit.OffsetFetchRequestGroup(group_id="g", topics=None)],
    ),
    consumer_groups.ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=False
    ),
    consumer_groups.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, topic_partitions=None
    ),
    classic_groups.DeleteGroupsRequest(groups_names=["g"]),
    classic_groups.DescribeGroupsRequest(groups=["g"]),
    classic_groups.FindCoordinatorRequest(key="g", coordinator_keys=["g"]),
    classic_groups.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
    classic_groups.JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    ),
    classic_groups.LeaveGroupRequest(group_id="g", member_id="m"),
    classic_groups.ListGroupsRequest(),
    classic_groups.SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]),
    transactions.AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"
    ),
    transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        transactions=[
            transactions.AddPartitionsToTxnTransaction(
                transactional_id="x",
                producer_id=1,
                producer_epoch=0,
                topics=[transactions.AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
        ],
    ),
    transactions.DescribeTransactionsRequest(transactional_ids=["x"]),
    transactions.EndTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=0, committed=True
    ),
    transactions.ListTransactionsRequest(),
    transactions.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            transactions.TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    transactions.TxnOffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1, committed_metadata=None
                    )
                ],
            )
        ],
    ),
)


LISTS = (classic_groups.ListGroupsRequest, transactions.ListTransactionsRequest)
"""Without a coordinator there is nothing to list, which is not an error."""

CASES = [
    pytest.param(example, version, id=f"{type(example).__name__}-v{version}")
    for example in EXAMPLES
    for version in range(type(example).WIRE.versions[0], type(example).WIRE.versions[1] + 1)
    if not isinstance(example, classic_groups.FindCoordinatorRequest)
]


@pytest.mark.parametrize(("request_", "version"), CASES)
@run_with(on_node)
async def test_error_is_where_the_version_carries_it(
    node: Node, *, request_: Any, version: int
) -> None:
    """No client has asked for a coordinator yet, so there is none."""

    await node.create("t", 1)
    if isinstance(request_, offset_commit.OffsetCommitRequest):
        request_.topics[0].topic_id = node.ctx.image.topics["t"].id
    answer = await node.ask(HANDLERS[type(request_)], version, request_)
    codes = set(error_codes(answer)) - {0}
    expected = set() if isinstance(request_, LISTS) else {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert codes == expected
