"""ShareAcknowledge (api 79), versions 1-2; and acknowledgements in a ShareFetch.

Types: accept (1), release for redelivery (2), reject (3), and from v2 on, if the request allows it,
renew the lease (4); 0 is for offsets without record. Acknowledgements of one partition are applied
together or not at all: if the member does not hold one of the records, all are refused
(INVALID_RECORD_STATE). They are answered when they are persisted.

Penstock's own clients add tagged fields: the delay of the redelivery, the reason of a failure, the
duration of a lease, and a flag for records that were never delivered to the application.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.broker.api.call import Call, ClientConnection
from penstock.broker.api.context import ShareContext
from penstock.broker.api.coordinator_calls import may_group
from penstock.broker.api.queues.share_sessions import FINAL, INITIAL, BrokerShareSession, Place
from penstock.broker.api.response_rows import leader_elsewhere, may
from penstock.broker.api.route_row import Operation
from penstock.coordinator.queues.settle import SettleAction, SettleCommand, settle_together
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from penstock.wire.messages.share import (
    AcknowledgementBatch,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
VERDICTS = (
    SettleAction.ACCEPT,
    SettleAction.ACCEPT,
    SettleAction.RELEASE,
    SettleAction.REJECT,
    SettleAction.EXTEND,
)
"""Settle actions by Kafka's acknowledge type."""
NO_LEADER = -1
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors with which the reply names the current leader (KIP-951)."""
DELAY_MS_MAX = 365 * 86_400_000
LOCK_MS_MAX = 12 * 3_600_000


@dataclass(frozen=True, slots=True)
class Acknowledging:
    """Member that acknowledges, and its permission to renew leases."""

    ctx: ShareContext
    call: Call
    group: str
    member: str
    can_renew: bool

    def start(
        self, place: Place, batches: Sequence[AcknowledgementBatch]
    ) -> "asyncio.Future[Refused | None]":
        """Acknowledges records of one partition; done when persisted, or with the refusal."""
        key = QueueKey(self.group, place[0], place[1])
        try:
            check_rights(self.ctx, self.call, place[0])
            rulings = list(rulings_of(key, self.member, batches, self.can_renew))
        except Refused as refused:
            refusal: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
            refusal.set_result(refused)
            return refusal
        return settle_together(self.ctx.queues, key, rulings)


def rulings_of(
    key: QueueKey, member: str, batches: Iterable[AcknowledgementBatch], can_renew: bool
) -> Iterator[SettleCommand]:
    """Yields runs of records with the same action. Raises Refused for invalid batches."""
    following = -1
    for batch in batches:
        first, last = batch.first_offset, batch.last_offset
        kinds = batch.acknowledge_types
        if first <= following or last < first:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"invalid offset range {first}..{last}: send ranges in ascending order",
            )
        following = last
        if len(kinds) not in (1, last - first + 1):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{len(kinds)} types do not match {last - first + 1} records",
            )
        kind_max = RENEW if can_renew else REJECT
        if any(not GAP <= kind <= kind_max for kind in kinds):
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"invalid acknowledge types {sorted(set(kinds))}"
            )
        _check_note(batch)
        if len(kinds) == 1:
            yield _ruling(key, member, first, last, kinds[0], batch)
            continue
        offset = first
        for kind, run in groupby(kinds):
            count = len(list(run))
            yield _ruling(key, member, offset, offset + count - 1, kind, batch)
            offset += count


def _check_note(batch: AcknowledgementBatch) -> None:
    """Refuses a delay or a lease that is too long; both are -1 for other clients."""
    if not -1 <= batch.delay_ms <= DELAY_MS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"invalid delay of {batch.delay_ms} ms: must be 0 to {DELAY_MS_MAX} ms",
        )
    if not -1 <= batch.lock_ms <= LOCK_MS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"invalid lease of {batch.lock_ms} ms: must be 0 to {LOCK_MS_MAX} ms",
        )


def _ruling(
    key: QueueKey, member: str, first: int, last: int, kind: int, batch: AcknowledgementBatch
) -> SettleCommand:
    verdict = VERDICTS[kind]
    if verdict is SettleAction.RELEASE and batch.is_unseen:
        verdict = SettleAction.GIVE_BACK
    return SettleCommand(
        key,
        member,
        first,
        last,
        verdict,
        None if batch.delay_ms < 0 else batch.delay_ms,
        None if batch.lock_ms < 0 else batch.lock_ms,
        batch.error_class or "",
        batch.error_message or "",
        batch.is_patient,
        batch.traceback or "",
    )


def check_rights(ctx: ShareContext, call: Call, topic_id: TopicId) -> None:
    topic = ctx.image.topics_by_id.get(topic_id)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    if not may(ctx, call, Operation.READ, topic.name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def check_caller(
    ctx: ShareContext, call: Call, group_id: str | None, member_id: str | None
) -> tuple[str, str]:
    """Checks and returns the group and the member of a request."""
    if not group_id or not may_group(ctx, call, Operation.READ, group_id):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member_id:
        raise Refused(ErrorCode.INVALID_REQUEST, "missing member id: join the share group first")
    return group_id, member_id


def end_session(ctx: ShareContext, session: BrokerShareSession) -> None:
    """Releases all records of a member whose session has ended."""
    for topic_id, index in session.partitions:
        queue = ctx.queues.find(QueueKey(session.group, topic_id, index))
        if queue is not None and not queue.is_closed:
            queue.change(
                lambda machine, now_ms: machine.release_member(session.member, now_ms),
                lambda refused: None,
            )


# -- ShareAcknowledge -------------------------------------------------------------------------


def share_acknowledge(
    ctx: ShareContext, call: Call, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Coroutine[Any, Any, ShareAcknowledgeResponse]:
    """Does the work that depends on the order of requests at once, and the rest in a coroutine."""
    try:
        group, member = check_caller(ctx, call, request.group_id, request.member_id)
        session = _session(ctx, call, request, group, member)
    except Refused as refused:
        return ShareAcknowledgeResponse(
            error_code=refused.code,
            error_message=refused.message,
            responses=(),
            node_endpoints=(),
        )
    can_renew = request.is_renew_ack and ctx.queues.lease_settings(group).can_renew
    acknowledging = Acknowledging(ctx, call, group, member, can_renew)
    answers = [
        (place, acknowledging.start(place, row.acknowledgement_batches))
        for topic in request.topics
        for row in topic.partitions
        if (place := (topic.topic_id, row.partition_index))
    ]
    is_last = request.share_session_epoch == FINAL
    return _acknowledge(ctx, session, call.caller, answers, is_last=is_last)


async def _acknowledge(
    ctx: ShareContext,
    session: BrokerShareSession,
    caller: ClientConnection,
    answers: "list[tuple[Place, asyncio.Future[Refused | None]]]",
    *,
    is_last: bool,
) -> ShareAcknowledgeResponse:
    results = [(place, await answer) for place, answer in answers]
    if is_last:
        ctx.share_sessions.close(session)
        end_session(ctx, session)
    # An earlier fetch that waits for records would delay this reply.
    session.end_wait(caller)
    return _response(ctx, session.group, caller.listener, results)


def _session(
    ctx: ShareContext, call: Call, request: ShareAcknowledgeRequest, group: str, member: str
) -> BrokerShareSession:
    epoch = request.share_session_epoch
    if epoch == INITIAL:
        raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL:
        return ctx.share_sessions.find(group, member)
    return ctx.share_sessions.resume(group, member, epoch)


def _response(
    ctx: ShareContext, group: str, listener: str, results: Sequence[tuple[Place, Refused | None]]
) -> ShareAcknowledgeResponse:
    topics: dict[TopicId, list[ShareAcknowledgePartitionData]] = {}
    endpoints: dict[int, NodeEndpoint] = {}
    for (topic_id, index), refused in results:
        leader = LeaderIdAndEpoch(leader_id=NO_LEADER, leader_epoch=NO_LEADER)
        topic = ctx.image.topics_by_id.get(topic_id)
        if refused is not None and refused.code in MOVED and topic is not None:
            leader = leader_elsewhere(ctx, topic.name, index, listener, endpoints) or leader
        topics.setdefault(topic_id, []).append(
            ShareAcknowledgePartitionData(
                partition_index=index,
                error_code=ErrorCode.NONE if refused is None else refused.code,
                error_message=None if refused is None else refused.message,
                current_leader=leader,
            )
        )
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=ctx.queues.lease_settings(group).lock_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics.items()
        ],
        node_endpoints=list(endpoints.values()),
    )
