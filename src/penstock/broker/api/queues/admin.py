"""Administration of queues: InspectQueues (api 30005), ChangeQueues (30006) and ListPositions
(30007), version 0; Penstock's own APIs.

Only the leader of a partition answers the first two; other nodes answer NOT_LEADER_OR_FOLLOWER.
Inspection needs DESCRIBE on the group and the topic, changes need READ on both, like
acknowledgements. ListPositions is for other nodes, and for tools with DESCRIBE on the cluster.
"""

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import QueueContext
from penstock.broker.api.coordinator_calls import may_group
from penstock.broker.api.response_rows import ROWS_MAX, may, may_cluster
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.groups_by_topic import response_of
from penstock.coordinator.queues import inspection
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queue_admin import (
    ChangedPartition,
    ChangeQueuesRequest,
    ChangeQueuesResponse,
    InspectedPartition,
    InspectQueuesRequest,
    InspectQueuesResponse,
    ListPositionsRequest,
    ListPositionsResponse,
    QueueChange,
    QueueReport,
    QueueRun,
)

CHANGES = {0: inspection.finish, 1: inspection.offer_again, 2: inspection.withdraw}
"""Functions by the kind of change in a request."""


def _require(
    ctx: QueueContext, call: Call, operation: Operation, group: str, topic: str
) -> TopicImage:
    """Returns the topic if the caller may perform `operation` on it and the group."""
    if not may_group(ctx, call, operation, group):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not may(ctx, call, operation, topic):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not group:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    found = ctx.image.topics.get(topic)
    if found is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} does not exist.")
    return found


# -- inspection -------------------------------------------------------------------------------


async def inspect_queues(
    ctx: QueueContext, call: Call, request: InspectQueuesRequest
) -> InspectQueuesResponse:
    rows = [await _inspect(ctx, call, request, asked) for asked in request.partitions[:ROWS_MAX]]
    return InspectQueuesResponse(partitions=rows)


async def _inspect(
    ctx: QueueContext, call: Call, request: InspectQueuesRequest, asked: InspectedPartition
) -> QueueReport:
    row = QueueReport(partition=asked.partition, error_code=ErrorCode.NONE)
    try:
        topic = _require(ctx, call, Operation.DESCRIBE, request.group_id, request.topic)
        key = QueueKey(request.group_id, topic.id, asked.partition)
        found = await inspection.inspect(
            ctx.queues, key, max(asked.from_offset, 0), max(asked.runs_max, 0)
        )
    except Refused as refused:
        row.error_code, row.error_message = refused.code, refused.message
        return row
    except (Corrupt, OSError) as error:
        row.error_code, row.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        return row
    return _report(asked.partition, found)


def _report(partition: int, found: inspection.Inspection) -> QueueReport:
    return QueueReport(
        partition=partition,
        error_code=ErrorCode.NONE,
        log_start_offset=found.log_start,
        high_watermark=found.high_watermark,
        start_offset=found.start,
        is_open=found.is_open,
        ready=found.ready,
        leased=found.leased,
        delayed=found.delayed,
        given_up=found.given_up,
        unfinished=found.unfinished,
        oldest_ms=found.oldest_ms,
        runs=[
            QueueRun(
                first=run.first,
                last=run.last,
                state=run.state,
                delivery_count=run.delivery_count,
                until_ms=run.until_ms,
                member=run.member,
            )
            for run in found.runs
        ],
        next_offset=found.next_offset,
        ready_by_priority=found.ready_by_priority,
    )


# -- changes ----------------------------------------------------------------------------------


async def change_queues(
    ctx: QueueContext, call: Call, request: ChangeQueuesRequest
) -> ChangeQueuesResponse:
    rows = [await _change(ctx, call, request, asked) for asked in request.partitions[:ROWS_MAX]]
    return ChangeQueuesResponse(partitions=rows)


async def _change(
    ctx: QueueContext, call: Call, request: ChangeQueuesRequest, asked: ChangedPartition
) -> QueueChange:
    row = QueueChange(partition=asked.partition, error_code=ErrorCode.NONE)
    try:
        topic = _require(ctx, call, Operation.READ, request.group_id, request.topic)
        key = QueueKey(request.group_id, topic.id, asked.partition)
        runs = [(run.first, run.last) for run in asked.runs]
        change = CHANGES.get(request.kind)
        if change is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"unknown kind {request.kind}")
        row.changed = await change(ctx.queues, key, runs)
        row.start_offset = (await inspection.inspect(ctx.queues, key)).start
    except Refused as refused:
        row.error_code, row.error_message = refused.code, refused.message
    except (Corrupt, OSError) as error:
        row.error_code, row.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    return row


# -- positions --------------------------------------------------------------------------------


async def list_positions(
    ctx: QueueContext, call: Call, request: ListPositionsRequest
) -> ListPositionsResponse:
    if not may_cluster(ctx, call, Operation.DESCRIBE):
        return ListPositionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return response_of(await ctx.positions.here(request.topics))
    except Refused as refused:
        return ListPositionsResponse(error_code=refused.code, error_message=refused.message)
