"""ListOffsets (api 2), versions 1-11; OffsetForLeaderEpoch (23), 2-4; DeleteRecords (21), 0-2.

ListOffsets answers for led partitions: -1 latest (the last stable offset for read_committed), -2
earliest, -3 the largest timestamp (v7), -4 earliest local (v8), -5 latest tiered (v9) and -6
earliest pending upload (v11), else by time. Nothing is tiered here: -4 is -2, and -5 and -6 have no
result (offset -1). v4 fences by leader epoch, v6 flexible. A search by time reads files and is done
by a worker; it does not find records above the end that the caller may read. A new leader whose
high watermark has not reached the start of its epoch does not know the latest offset yet (KIP-207).
A node that may be fenced from the cluster returns no offsets.

OffsetForLeaderEpoch: v3 names the replica, v4 flexible (KIP-320).
DeleteRecords: -1 is the high watermark. The reply is sent when the new start offset is durable here
and every live replica starts there, too: a new leader does not bring deleted records back.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.fair_scheduler import Steps, do_piece
from penstock.broker.api.call import Call
from penstock.broker.api.context import MetadataContext
from penstock.broker.api.large_replies import answered, holder_of
from penstock.broker.api.response_rows import (
    WAIT_MS_MAX,
    duplicates,
    led_partition,
    may,
    may_cluster,
    storage_failure,
)
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata.image import INTERNAL_TOPICS
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.list_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SPOKEN_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1
NOT_AVAILABLE_SINCE = 5
POLL_SECONDS = 0.01

Search = tuple[ListOffsetsPartitionResponse, Partition, int, int]
"""Row that waits for a worker: its partition, the timestamp, and the end of visible records."""


def list_offsets(
    ctx: MetadataContext, call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    steps = _listed(ctx, call, request)
    found = do_piece(steps)
    if found is None:
        return _list_many(ctx, call, steps)
    response, searches = found[0]
    return _search_all(ctx, call, searches, response) if searches else response


async def _list_many(
    ctx: MetadataContext, call: Call, steps: Steps[tuple[ListOffsetsResponse, list[Search]]]
) -> ListOffsetsResponse:
    response, searches = await ctx.scheduler.run(holder_of(call), steps)
    await _search_all(ctx, call, searches, response)
    rows = sum(len(topic.partitions) for topic in response.topics)
    return await answered(ctx, call, response, rows)


def _listed(
    ctx: MetadataContext, call: Call, request: ListOffsetsRequest
) -> Steps[tuple[ListOffsetsResponse, list[Search]]]:
    twice: dict[str, set[int]] = {}
    asked_of: dict[str, list[int]] = {}
    for topic in request.topics:
        yield
        asked_of.setdefault(topic.name, []).extend(row.partition_index for row in topic.partitions)
    for name, indexes in asked_of.items():
        yield
        if len(set(indexes)) < len(indexes):
            twice[name] = duplicates(indexes)
    searches: list[Search] = []
    topics = []
    for topic in request.topics:
        is_allowed = may(ctx, call, Operation.DESCRIBE, topic.name)
        rows = []
        yield
        for asked in topic.partitions:
            yield
            row = ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, error_code=ErrorCode.NONE
            )
            rows.append(row)
            try:
                if not is_allowed:
                    raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if asked.partition_index in twice.get(topic.name, ()):
                    raise Refused(ErrorCode.INVALID_REQUEST)
                search = _list_offset(ctx, call, request, topic.name, asked, row)
                if search is not None:
                    searches.append(search)
            except Refused as refused:
                row.error_code = refused.code
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=topics), searches


def _list_offset(
    ctx: MetadataContext,
    call: Call,
    request: ListOffsetsRequest,
    name: str,
    asked: ListOffsetsPartition,
    row: ListOffsetsPartitionResponse,
) -> Search | None:
    """Fills the row, or returns the search that a worker must do for it."""
    timestamp = asked.timestamp
    if timestamp < 0 and call.version < SPOKEN_SINCE.get(timestamp, call.version + 1):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    partition = led_partition(ctx, name, asked.partition_index)
    if call.started >= ctx.membership.valid_until:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.check_epoch(asked.current_leader_epoch)
    log = partition.log
    if log.offline is not None:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR)
    is_committed = request.isolation_level == READ_COMMITTED
    end = partition.last_stable_offset if is_committed else partition.high_watermark
    if timestamp == LATEST:
        _require_settled(call, partition)
        row.offset = end
        row.leader_epoch = partition.leader_epoch
        return None
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        row.offset = log.start_offset
        row.leader_epoch = log.epochs.of(log.start_offset)
        return None
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    return row, partition, timestamp, end


def _require_settled(call: Call, partition: Partition) -> None:
    if not partition.is_settled:
        raise Refused(
            ErrorCode.OFFSET_NOT_AVAILABLE
            if call.version >= NOT_AVAILABLE_SINCE
            else ErrorCode.LEADER_NOT_AVAILABLE
        )


async def _search_all(
    ctx: MetadataContext, call: Call, searches: Sequence[Search], response: ListOffsetsResponse
) -> ListOffsetsResponse:
    for row, partition, timestamp, end in searches:
        log = partition.log
        try:
            if timestamp == MAX_TIMESTAMP:
                found = await ctx.workers.run(log.max_timestamp)
            else:
                found = await ctx.workers.run(log.offset_for_time, timestamp)
        except Refused as refused:
            row.error_code = refused.code
            continue
        except (Corrupt, OSError) as error:
            row.error_code = storage_failure(ctx, partition, error)
            continue
        if found is not None and found[0] < end:
            row.offset, row.timestamp, row.leader_epoch = found
            continue
        try:
            _require_settled(call, partition)  # The record may be committed after all.
        except Refused as refused:
            row.error_code = refused.code
    return response


# -- OffsetForLeaderEpoch ---------------------------------------------------------------------


def offset_for_leader_epoch(
    ctx: MetadataContext, call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    is_broker = may_cluster(ctx, call, Operation.CLUSTER_ACTION)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _epoch_end(
                        ctx,
                        topic.topic,
                        asked,
                        is_broker or may(ctx, call, Operation.DESCRIBE, topic.topic),
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    ctx: MetadataContext, name: str, asked: OffsetForLeaderPartition, is_allowed: bool
) -> OffsetForLeaderEpochEndOffset:
    row = OffsetForLeaderEpochEndOffset(error_code=ErrorCode.NONE, partition=asked.partition)
    try:
        if not is_allowed:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = led_partition(ctx, name, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        row.leader_epoch, row.end_offset = partition.epoch_end(asked.leader_epoch)
    except Refused as refused:
        row.error_code = refused.code
    return row


# -- DeleteRecords ----------------------------------------------------------------------------


async def delete_records(
    ctx: MetadataContext, call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    topics = []
    deadline_s = call.started + min(max(request.timeout_ms, 0), WAIT_MS_MAX) / 1000
    for topic in request.topics:
        is_allowed = may(ctx, call, Operation.DELETE, topic.name)
        rows = [
            await _delete_records(ctx, topic.name, asked, is_allowed, deadline_s)
            for asked in topic.partitions
        ]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    return DeleteRecordsResponse(topics=topics)


async def _delete_records(
    ctx: MetadataContext,
    name: str,
    asked: DeleteRecordsPartition,
    is_allowed: bool,
    deadline_s: float,
) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index,
        low_watermark=NO_LOW_WATERMARK,
        error_code=ErrorCode.NONE,
    )
    try:
        if not is_allowed:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = led_partition(ctx, name, asked.partition_index)
        offset = _deletable_offset(name, partition, asked.offset)
        if offset > partition.log.start_offset:
            await partition.delete_before(offset)
        row.low_watermark = await _everywhere(ctx, partition, offset, deadline_s)
    except Refused as refused:
        row.error_code = refused.code
    return row


async def _everywhere(
    ctx: MetadataContext, partition: Partition, offset: int, deadline_s: float
) -> int:
    """Waits until no live replica has records below `offset`; returns their lowest start."""
    loop = asyncio.get_running_loop()
    while True:
        leader_state = partition.leader_state
        if leader_state is None:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        low = leader_state.low_watermark(partition.log.start_offset, ctx.image.brokers)
        if low >= offset:
            return low
        if loop.time() >= deadline_s:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT)
        await asyncio.sleep(POLL_SECONDS)


def _deletable_offset(name: str, partition: Partition, offset: int) -> int:
    if name in INTERNAL_TOPICS:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not partition.log.config.cleanup_delete:
        raise Refused(ErrorCode.POLICY_VIOLATION)
    if offset == HIGH_WATERMARK:
        return partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    return offset
