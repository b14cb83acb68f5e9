"""Share groups: declared, and answered with the right error.

APIs 76-79 and 90-92. This broker has no coordinators of share groups yet. Their APIs say
COORDINATOR_NOT_AVAILABLE, which clients know how to wait for, in the place where each API has its
errors: for the whole request, or in a row for each thing it named. Reading through a share group
has no such error and says UNSUPPORTED_VERSION, as a Kafka does in which share groups are switched
off. The table below is the whole module: one line for each request.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.api.context import Call, Context
from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_TOPIC_ID
from penstock.wire.messages import share, share_offsets

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE
MESSAGE = "this broker has no coordinators of share groups yet"
OFF = ErrorCode.UNSUPPORTED_VERSION
OFF_MESSAGE = "share groups are not available on this broker yet"


def not_yet(ctx: Context, call: Call, request: Any) -> Any:
    """The handler of every API in `ANSWERS`."""
    return ANSWERS[type(request)](call.version, request)


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
    share.ShareAcknowledgeRequest: _share_acknowledge,
    share.ShareFetchRequest: _share_fetch,
    share.ShareGroupDescribeRequest: _share_group_describe,
    share.ShareGroupHeartbeatRequest: _share_group_heartbeat,
    share_offsets.AlterShareGroupOffsetsRequest: _alter_share_group_offsets,
    share_offsets.DeleteShareGroupOffsetsRequest: _delete_share_group_offsets,
    share_offsets.DescribeShareGroupOffsetsRequest: _describe_share_group_offsets,
}
