"""ShareFetch (api 78), versions 1-2: leases records to a member of a share group.

Acknowledgements in the request are applied first. Then records are acquired from the partitions of
the session in round-robin order. Without records, the request waits up to `max_wait_ms`, or until
`min_bytes` are acquired, or until the reply to the session's next request is ready, since replies
are sent in order. The reply is sent when the leases are persisted. It has whole batches and the
acquired ranges of offsets in them. Records that exceed `max_bytes` are returned; all are returned
if the connection is lost before the reply.

`max_records` is exact in every acquire mode (v2), and so are ranges. So `batch_size`, a hint for
brokers that track whole batches, is ignored. Records of one reply have one priority, because
clients read them in log order. A request that only renews (v2) acquires no records, nor does one
with `max_bytes` 0.

Counters of deliveries by queues, for every protocol: bytes, age, and time until the ack.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.broker.api.call import Call
from penstock.broker.api.context import ShareContext
from penstock.broker.api.queues.share_acknowledge import (
    MOVED,
    NO_LEADER,
    Acknowledging,
    check_caller,
    check_rights,
    end_session,
)
from penstock.broker.api.queues.share_sessions import FINAL, INITIAL, BrokerShareSession, Place
from penstock.broker.api.response_rows import leader_elsewhere
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.queues.receive import ReceiveRequest, take
from penstock.coordinator.queues.record_reader import LeasedBatches
from penstock.state.queues.delivery_state import LeaseState
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from penstock.wire.messages.share import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from penstock.wire.records import age_seconds


def count_delivery(
    ctx: ShareContext, topic: TopicImage | None, key: QueueKey, leased: LeasedBatches
) -> None:
    """Counts one delivery of a queue, with constant cost for any number of records."""
    if not leased.leases:
        return
    now_ms = ctx.clock.now_ms()
    records = sum(lease.last - lease.first + 1 for lease in leased.leases)
    age_s = age_seconds(leased.parts[0], now_ms) if leased.parts else None
    ctx.metrics.count_delivery(topic, leased.size, records, age_s)
    # Records of another leader are acknowledged there, so this node cannot time them.
    if ctx.queues.find_quietly(key) is not None:
        ctx.queues.counts.sample(key, leased.leases[0].first, now_ms, age_s or 0.0)


WAIT_MS_MAX = 300_000
RECORDS_MAX = 100_000


def share_fetch(
    ctx: ShareContext, call: Call, request: ShareFetchRequest
) -> ShareFetchResponse | Coroutine[Any, Any, ShareFetchResponse]:
    """Does the work that depends on the order of requests at once, and the rest in a coroutine."""
    try:
        group, member = check_caller(ctx, call, request.group_id, request.member_id)
        _check_request(request)
        session = _session(ctx, call, request, group, member)
    except Refused as refused:
        return ShareFetchResponse(
            error_code=refused.code,
            error_message=refused.message,
            acquisition_lock_timeout_ms=0,
            responses=(),
            node_endpoints=(),
        )
    can_renew = request.is_renew_ack and ctx.queues.lease_settings(group).can_renew
    acknowledging = Acknowledging(ctx, call, group, member, can_renew)
    answers = [
        (place, acknowledging.start(place, row.acknowledgement_batches))
        for topic in request.topics
        for row in topic.partitions
        if row.acknowledgement_batches and (place := (topic.topic_id, row.partition_index))
    ]
    # Replies are sent in order, so a waiting fetch of this session is answered first.
    session.wait(call.caller)
    return _fetch(ctx, call, request, session, answers)


async def _fetch(
    ctx: ShareContext,
    call: Call,
    request: ShareFetchRequest,
    session: BrokerShareSession,
    answers: "list[tuple[Place, asyncio.Future[Refused | None]]]",
) -> ShareFetchResponse:
    rows = _Rows(ctx, call.caller.listener)
    if request.share_session_epoch != FINAL and not request.is_renew_ack:
        await _acquire(ctx, call, request, session, rows)
        if ctx.share_sessions.is_gone(session):
            # The session ended meanwhile: records acquired after that are returned.
            end_session(ctx, session)
    for place, answer in answers:
        rows.acknowledged(place, await answer)
    if request.share_session_epoch == FINAL:
        ctx.share_sessions.close(session)
        end_session(ctx, session)
    return rows.response(ctx.queues.lease_settings(session.group).lock_ms)


def _check_request(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise Refused(
            ErrorCode.INVALID_REQUEST, "a request that renews leases cannot fetch records"
        )


def _session(
    ctx: ShareContext, call: Call, request: ShareFetchRequest, group: str, member: str
) -> BrokerShareSession:
    epoch, sessions = request.share_session_epoch, ctx.share_sessions
    wanted = [
        (topic.topic_id, row.partition_index)
        for topic in request.topics
        for row in topic.partitions
    ]
    if epoch == FINAL:
        return sessions.find(group, member)
    if epoch == INITIAL:
        if any(row.acknowledgement_batches for topic in request.topics for row in topic.partitions):
            raise Refused(
                ErrorCode.INVALID_REQUEST, "a new share session has acquired nothing to acknowledge"
            )
        sessions_max = ctx.configs.integer("group.share.max.share.sessions")
        session = sessions.open(
            group, member, call.caller, sessions_max, lambda ended: _lost(ctx, ended)
        )
        forgotten: list[Place] = []
    else:
        session = sessions.resume(group, member, epoch)
        forgotten = [
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
    session.update(wanted, forgotten)
    return session


async def _acquire(
    ctx: ShareContext,
    call: Call,
    request: ShareFetchRequest,
    session: BrokerShareSession,
    rows: "_Rows",
) -> None:
    """Acquires records from the partitions of the session in round-robin order."""
    if request.max_bytes <= 0:
        return  # The reply may have no bytes.
    keys = []
    for place in session.partitions:
        try:
            check_rights(ctx, call, place[0])
            keys.append(QueueKey(session.group, *place))
        except Refused as refused:
            rows.refused(place, refused)
    wanted = ReceiveRequest(
        session.member,
        max(0, min(request.max_records, RECORDS_MAX)),
        max(1, min(request.max_bytes, ctx.fetch_bytes_max)),
        max(1, min(request.min_bytes, request.max_bytes, ctx.fetch_bytes_max)),
        # Refusals are answered at once.
        0 if rows else max(0, min(request.max_wait_ms, WAIT_MS_MAX)),
    )
    taken = await take(ctx.queues, keys, wanted, session.waiting)
    for key, found in taken.found.items():
        place = (TopicId(key.topic_id), key.partition)
        rows.acquired(place, found.parts, found.leases)
        session.served(place)
        count_delivery(ctx, ctx.image.topics_by_id.get(place[0]), key, found)
    for key, why in taken.refused.items():
        rows.refused((TopicId(key.topic_id), key.partition), why)


def _lost(ctx: ShareContext, session: BrokerShareSession) -> None:
    """Handles a lost connection: returns unsent records first, whose delivery does not count."""
    asyncio.get_running_loop().call_soon(end_session, ctx, session)


class _Rows:
    """Rows of the response, one for each partition with records or news."""

    def __init__(self, ctx: ShareContext, listener: str) -> None:
        self._ctx = ctx
        self._listener = listener
        self._rows: dict[Place, ShareFetchPartitionData] = {}
        self._endpoints: dict[int, NodeEndpoint] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def _row(self, place: Place) -> ShareFetchPartitionData:
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = ShareFetchPartitionData(
                partition_index=place[1],
                error_code=ErrorCode.NONE,
                acknowledge_error_code=ErrorCode.NONE,
                current_leader=LeaderIdAndEpoch(leader_id=NO_LEADER, leader_epoch=NO_LEADER),
                records=b"",
                acquired_records=(),
            )
        return row

    def acquired(self, place: Place, parts: list[memoryview], leases: list[LeaseState]) -> None:
        row = self._row(place)
        row.records = b"".join(parts)
        row.acquired_records = [
            AcquiredRecords(
                first_offset=lease.first,
                last_offset=lease.last,
                delivery_count=lease.delivery_count,
            )
            for lease in leases
        ]

    def refused(self, place: Place, refused: Refused) -> None:
        row = self._row(place)
        row.error_code, row.error_message = refused.code, refused.message
        row.records, row.acquired_records = b"", ()
        self._show_leader(place, row, refused)

    def acknowledged(self, place: Place, refused: Refused | None) -> None:
        row = self._row(place)
        if refused is not None:
            row.acknowledge_error_code = refused.code
            row.acknowledge_error_message = refused.message
            self._show_leader(place, row, refused)

    def _show_leader(self, place: Place, row: ShareFetchPartitionData, refused: Refused) -> None:
        """Names the leader of another node's partition, which saves a Metadata request."""
        topic = self._ctx.image.topics_by_id.get(place[0])
        if refused.code not in MOVED or topic is None:
            return
        leader = leader_elsewhere(self._ctx, topic.name, place[1], self._listener, self._endpoints)
        row.current_leader = leader or row.current_leader

    def response(self, lock_ms: int) -> ShareFetchResponse:
        topics: dict[TopicId, list[ShareFetchPartitionData]] = {}
        for (topic_id, _), row in self._rows.items():
            topics.setdefault(topic_id, []).append(row)
        return ShareFetchResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=lock_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=rows)
                for topic_id, rows in topics.items()
            ],
            node_endpoints=list(self._endpoints.values()),
        )
