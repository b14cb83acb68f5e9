"""Groups, transactions and share groups: declared, and answered with the right error.

APIs 8-16, 24-26, 28, 42, 47, 65, 66, 68, 69, 76-79, 90-92. This broker has no coordinators yet.
Their APIs say COORDINATOR_NOT_AVAILABLE, which clients know how to wait for, in the place where
each API has its errors: for the whole request, or in a row for each thing it named. Reading
through a share group has no such error and says UNSUPPORTED_VERSION, as a Kafka does in which
share groups are switched off. The table below is the whole module: one line for each request.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.api.context import Call, Context
from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_TOPIC_ID
from penstock.wire.messages import committed, consumer_groups, groups, share, share_offsets, txns

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE
MESSAGE = "this broker has no coordinators yet"
OFF = ErrorCode.UNSUPPORTED_VERSION
OFF_MESSAGE = "share groups are not available on this broker yet"
COORDINATOR_KEYS_SINCE = 4
OFFSET_FETCH_GROUPS_SINCE = 8
OFFSET_FETCH_CODE_SINCE = 2
NO_NODE = -1


def not_yet(ctx: Context, call: Call, request: Any) -> Any:
    """The handler of every API in `ANSWERS`."""
    return ANSWERS[type(request)](call.version, request)


# -- groups -----------------------------------------------------------------------------------


def _find_coordinator(version: int, request: groups.FindCoordinatorRequest) -> Any:
    if version < COORDINATOR_KEYS_SINCE:
        return groups.FindCoordinatorResponse(
            error_code=CODE, error_message=MESSAGE, node_id=NO_NODE, host="", port=NO_NODE
        )
    return groups.FindCoordinatorResponse(
        coordinators=[
            groups.Coordinator(
                key=key,
                node_id=NO_NODE,
                host="",
                port=NO_NODE,
                error_code=CODE,
                error_message=MESSAGE,
            )
            for key in request.coordinator_keys
        ]
    )


def _join_group(version: int, request: groups.JoinGroupRequest) -> Any:
    return groups.JoinGroupResponse(
        error_code=CODE,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=request.member_id,
        members=(),
    )


def _heartbeat(version: int, request: groups.HeartbeatRequest) -> Any:
    return groups.HeartbeatResponse(error_code=CODE)


def _leave_group(version: int, request: groups.LeaveGroupRequest) -> Any:
    return groups.LeaveGroupResponse(error_code=CODE)


def _sync_group(version: int, request: groups.SyncGroupRequest) -> Any:
    return groups.SyncGroupResponse(error_code=CODE, assignment=b"")


def _describe_groups(version: int, request: groups.DescribeGroupsRequest) -> Any:
    return groups.DescribeGroupsResponse(
        groups=[
            groups.DescribedGroup(
                error_code=CODE,
                error_message=MESSAGE,
                group_id=group,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=(),
            )
            for group in request.groups
        ]
    )


def _list_groups(version: int, request: groups.ListGroupsRequest) -> Any:
    return groups.ListGroupsResponse(error_code=CODE, groups=())


def _delete_groups(version: int, request: groups.DeleteGroupsRequest) -> Any:
    return groups.DeleteGroupsResponse(
        results=[
            groups.DeletableGroupResult(group_id=group, error_code=CODE)
            for group in request.groups_names
        ]
    )


def _consumer_group_heartbeat(
    version: int, request: consumer_groups.ConsumerGroupHeartbeatRequest
) -> Any:
    return consumer_groups.ConsumerGroupHeartbeatResponse(
        error_code=CODE, error_message=MESSAGE, member_epoch=0, heartbeat_interval_ms=0
    )


def _consumer_group_describe(
    version: int, request: consumer_groups.ConsumerGroupDescribeRequest
) -> Any:
    return consumer_groups.ConsumerGroupDescribeResponse(
        groups=[
            consumer_groups.DescribedConsumerGroup(
                error_code=CODE,
                error_message=MESSAGE,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
            for group in request.group_ids
        ]
    )


# -- committed offsets ------------------------------------------------------------------------


def _offset_commit(version: int, request: committed.OffsetCommitRequest) -> Any:
    return committed.OffsetCommitResponse(
        topics=[
            committed.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    committed.OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=CODE
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(version: int, request: committed.OffsetFetchRequest) -> Any:
    if version >= OFFSET_FETCH_GROUPS_SINCE:
        return committed.OffsetFetchResponse(
            groups=[
                committed.OffsetFetchResponseGroup(
                    group_id=group.group_id, topics=(), error_code=CODE
                )
                for group in request.groups
            ]
        )
    if version >= OFFSET_FETCH_CODE_SINCE:
        return committed.OffsetFetchResponse(error_code=CODE)
    return committed.OffsetFetchResponse(
        topics=[
            committed.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    committed.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=CODE
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _offset_delete(version: int, request: committed.OffsetDeleteRequest) -> Any:
    return committed.OffsetDeleteResponse(error_code=CODE, topics=())


# -- transactions -----------------------------------------------------------------------------


def _add_partitions_to_txn(version: int, request: txns.AddPartitionsToTxnRequest) -> Any:
    return txns.AddPartitionsToTxnResponse(
        error_code=CODE,
        results_by_topic_v3_and_below=[
            txns.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    txns.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=CODE
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ],
    )


def _add_offsets_to_txn(version: int, request: txns.AddOffsetsToTxnRequest) -> Any:
    return txns.AddOffsetsToTxnResponse(error_code=CODE)


def _end_txn(version: int, request: txns.EndTxnRequest) -> Any:
    return txns.EndTxnResponse(error_code=CODE)


def _txn_offset_commit(version: int, request: txns.TxnOffsetCommitRequest) -> Any:
    return txns.TxnOffsetCommitResponse(
        topics=[
            txns.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    txns.TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=CODE
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_transactions(version: int, request: txns.DescribeTransactionsRequest) -> Any:
    return txns.DescribeTransactionsResponse(
        transaction_states=[
            txns.DescribeTransactionsTransactionState(
                error_code=CODE,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=(),
            )
            for transactional_id in request.transactional_ids
        ]
    )


def _list_transactions(version: int, request: txns.ListTransactionsRequest) -> Any:
    return txns.ListTransactionsResponse(error_code=CODE, transaction_states=())


# -- share groups -----------------------------------------------------------------------------


def _share_group_heartbeat(version: int, request: share.ShareGroupHeartbeatRequest) -> Any:
    return share.ShareGroupHeartbeatResponse(
        error_code=CODE, error_message=MESSAGE, member_epoch=0, heartbeat_interval_ms=0
    )


def _share_group_describe(version: int, request: share.ShareGroupDescribeRequest) -> Any:
    return share.ShareGroupDescribeResponse(
        groups=[
            share.DescribedShareGroup(
                error_code=CODE,
                error_message=MESSAGE,
                group_id=group,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
            for group in request.group_ids
        ]
    )


def _share_fetch(version: int, request: share.ShareFetchRequest) -> Any:
    return share.ShareFetchResponse(
        error_code=OFF,
        error_message=OFF_MESSAGE,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


def _share_acknowledge(version: int, request: share.ShareAcknowledgeRequest) -> Any:
    return share.ShareAcknowledgeResponse(
        error_code=OFF, error_message=OFF_MESSAGE, responses=(), node_endpoints=()
    )


def _describe_share_group_offsets(
    version: int, request: share_offsets.DescribeShareGroupOffsetsRequest
) -> Any:
    return share_offsets.DescribeShareGroupOffsetsResponse(
        groups=[
            share_offsets.DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, topics=(), error_code=CODE, error_message=MESSAGE
            )
            for group in request.groups
        ]
    )


def _alter_share_group_offsets(
    version: int, request: share_offsets.AlterShareGroupOffsetsRequest
) -> Any:
    return share_offsets.AlterShareGroupOffsetsResponse(
        error_code=CODE, error_message=MESSAGE, responses=()
    )


def _delete_share_group_offsets(
    version: int, request: share_offsets.DeleteShareGroupOffsetsRequest
) -> Any:
    return share_offsets.DeleteShareGroupOffsetsResponse(
        error_code=CODE,
        error_message=MESSAGE,
        responses=[
            share_offsets.DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=NO_TOPIC_ID, error_code=CODE
            )
            for topic in request.topics
        ],
    )


ANSWERS: Mapping[type, Callable[[int, Any], Any]] = {
    committed.OffsetCommitRequest: _offset_commit,
    committed.OffsetDeleteRequest: _offset_delete,
    committed.OffsetFetchRequest: _offset_fetch,
    consumer_groups.ConsumerGroupDescribeRequest: _consumer_group_describe,
    consumer_groups.ConsumerGroupHeartbeatRequest: _consumer_group_heartbeat,
    groups.DeleteGroupsRequest: _delete_groups,
    groups.DescribeGroupsRequest: _describe_groups,
    groups.FindCoordinatorRequest: _find_coordinator,
    groups.HeartbeatRequest: _heartbeat,
    groups.JoinGroupRequest: _join_group,
    groups.LeaveGroupRequest: _leave_group,
    groups.ListGroupsRequest: _list_groups,
    groups.SyncGroupRequest: _sync_group,
    share.ShareAcknowledgeRequest: _share_acknowledge,
    share.ShareFetchRequest: _share_fetch,
    share.ShareGroupDescribeRequest: _share_group_describe,
    share.ShareGroupHeartbeatRequest: _share_group_heartbeat,
    share_offsets.AlterShareGroupOffsetsRequest: _alter_share_group_offsets,
    share_offsets.DeleteShareGroupOffsetsRequest: _delete_share_group_offsets,
    share_offsets.DescribeShareGroupOffsetsRequest: _describe_share_group_offsets,
    txns.AddOffsetsToTxnRequest: _add_offsets_to_txn,
    txns.AddPartitionsToTxnRequest: _add_partitions_to_txn,
    txns.DescribeTransactionsRequest: _describe_transactions,
    txns.EndTxnRequest: _end_txn,
    txns.ListTransactionsRequest: _list_transactions,
    txns.TxnOffsetCommitRequest: _txn_offset_commit,
}
