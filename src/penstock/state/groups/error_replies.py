"""Error responses of group requests, each in its own API's form.

The shard raises `Refused` for a request as a whole; the connection's handler turns it into the
response here. Refusals by the host, such as NOT_COORDINATOR, are answered the same way.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.classic.member import for_version, join_error, sync_error
from penstock.state.groups.descriptions import missing_classic, missing_consumer, missing_share
from penstock.wire.messages.classic_groups import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    HeartbeatResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from penstock.wire.messages.share import (
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatResponse,
)
from penstock.wire.messages.transactions import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def refusal(name: str, request: Any, refused: Refused, api_version: int) -> Any:
    """Response to the named request that refuses all of it."""
    return _ANSWERS[name](request, refused, api_version)


def _join(request: Any, refused: Refused, api_version: int) -> Any:
    member_id = "" if refused.code == ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
    return for_version(join_error(refused.code, member_id), api_version)


def _sync(request: Any, refused: Refused, api_version: int) -> Any:
    return sync_error(refused.code)


def _heartbeat(request: Any, refused: Refused, api_version: int) -> Any:
    return HeartbeatResponse(error_code=int(refused.code))


def _leave(request: Any, refused: Refused, api_version: int) -> Any:
    return LeaveGroupResponse(error_code=int(refused.code))


def _consumer_heartbeat(request: Any, refused: Refused, api_version: int) -> Any:
    return ConsumerGroupHeartbeatResponse(
        error_code=int(refused.code),
        error_message=refused.message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _share_heartbeat(request: Any, refused: Refused, api_version: int) -> Any:
    return ShareGroupHeartbeatResponse(
        error_code=int(refused.code),
        error_message=refused.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _commit(request: Any, refused: Refused, api_version: int) -> Any:
    code = int(refused.code)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _txn_commit(request: Any, refused: Refused, api_version: int) -> Any:
    code = int(refused.code)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch(request: Any, refused: Refused, api_version: int) -> Any:
    """OffsetFetch; version 1 can carry an error code only in its rows."""
    code = int(refused.code)
    if request.groups:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)
                for group in request.groups
            ]
        )
    rows = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=rows, error_code=code)


def _offset_delete(request: Any, refused: Refused, api_version: int) -> Any:
    return OffsetDeleteResponse(error_code=int(refused.code), topics=())


def _list(request: Any, refused: Refused, api_version: int) -> Any:
    return ListGroupsResponse(error_code=int(refused.code), groups=())


def _describe(request: Any, refused: Refused, api_version: int) -> Any:
    rows = [missing_classic(group_id, str(refused), api_version) for group_id in request.groups]
    for row in rows:
        row.error_code, row.group_state = int(refused.code), ""
    return DescribeGroupsResponse(groups=rows)


def _consumer_describe(request: Any, refused: Refused, api_version: int) -> Any:
    rows = [missing_consumer(group_id, str(refused)) for group_id in request.group_ids]
    for row in rows:
        row.error_code = int(refused.code)
    return ConsumerGroupDescribeResponse(groups=rows)


def _share_describe(request: Any, refused: Refused, api_version: int) -> Any:
    rows = [missing_share(group_id, str(refused)) for group_id in request.group_ids]
    for row in rows:
        row.error_code = int(refused.code)
    return ShareGroupDescribeResponse(groups=rows)


def _delete(request: Any, refused: Refused, api_version: int) -> Any:
    code = int(refused.code)
    rows = [DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    return DeleteGroupsResponse(results=rows)


_ANSWERS: Final[dict[str, Callable[[Any, Refused, int], Any]]] = {
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": _heartbeat,
    "LeaveGroup": _leave,
    "ConsumerGroupHeartbeat": _consumer_heartbeat,
    "OffsetCommit": _commit,
    "TxnOffsetCommit": _txn_commit,
    "OffsetFetch": _fetch,
    "OffsetDelete": _offset_delete,
    "ListGroups": _list,
    "DescribeGroups": _describe,
    "ConsumerGroupDescribe": _consumer_describe,
    "DeleteGroups": _delete,
    "ShareGroupHeartbeat": _share_heartbeat,
    "ShareGroupDescribe": _share_describe,
}
