"""Fetch (api 1) from followers: replication of the partitions that this node leads.

A follower requests a partition from the end of its durable log, so each request is also an
acknowledgement (`Partition.replica_fetched`). It may read up to the end of the leader's log, synced
or not: both disks work at the same time. An append wakes a parked fetch, once per iteration of the
event loop; a new high watermark does after `STALE_SECONDS`, if nothing else did before.

Fencing: a request with an old broker epoch is refused as a whole (STALE_BROKER_EPOCH). A partition
with another leader epoch is an error in its row; so is one that this node does not lead. A follower
whose log diverges gets the diverging offset (v12), and its request is not an acknowledgement.

Needs CLUSTER_ACTION. Versions as in `fetch`; v18 has the follower's high watermark.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from penstock.base.deferred import Deferred
from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.broker.api.call import Call
from penstock.broker.api.context import FetchContext
from penstock.broker.api.data.fetch_reply import FetchedPartition, Reply, reply_with
from penstock.broker.api.data.fetch_sessions import FULL_NEW_SESSION, FULL_WITHOUT_SESSION
from penstock.broker.api.data.replica_fetch_sessions import Cursor, ReplicaSession
from penstock.broker.api.response_rows import led_partition, may_cluster
from penstock.broker.api.route_row import Operation
from penstock.cluster.controller.leader_elections import may_go_back
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

TOPIC_IDS_SINCE = 13
WAIT_MS_MAX = 300_000
STALE_SECONDS = 0.025
"""Delays a new high watermark, which may then be sent together with records."""
NO_EPOCH = -1
"""Epoch of an empty log, which cannot diverge."""


def replica_fetch(ctx: FetchContext, call: Call, request: FetchRequest, node_id: int) -> Any:
    """Answers a follower at once if there is data or news; otherwise parks its call."""
    state = request.replica_state
    broker_epoch = state.replica_epoch if state is not None else -1
    try:
        if not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        registered = ctx.image.brokers.get(node_id)
        if registered is not None and broker_epoch < registered.epoch:
            raise Refused(ErrorCode.STALE_BROKER_EPOCH)
        attempt = ReplicaAttempt(ctx, call, request, _session(ctx, call, request, node_id))
        attempt.name(broker_epoch)
    except Refused as refused:
        return FetchResponse(error_code=refused.code, responses=[])
    return attempt.start()


def _session(ctx: FetchContext, call: Call, request: FetchRequest, node_id: int) -> ReplicaSession:
    by_id = call.version >= TOPIC_IDS_SINCE
    epoch = request.session_epoch
    if epoch == FULL_NEW_SESSION:
        session = ctx.replicas.sessions.open(node_id)
    elif epoch == FULL_WITHOUT_SESSION:
        session = ReplicaSession(0, node_id)
    else:
        session = ctx.replicas.sessions.resume(node_id, request.session_id, epoch)
    session.begin(
        (TopicId(topic.topic_id) if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    )
    return session


class ReplicaAttempt:
    """One fetch request of a follower, from its arrival to its reply."""

    __slots__ = (
        "_call",
        "_ctx",
        "_is_woken",
        "_reply",
        "_request",
        "_session",
        "_stale_timer",
        "_throttle",
        "_timer",
    )

    def __init__(
        self, ctx: FetchContext, call: Call, request: FetchRequest, session: ReplicaSession
    ) -> None:
        self._ctx = ctx
        self._call = call
        self._request = request
        self._session = session
        self._throttle = ctx.replicas.throttle
        incremental = request.session_epoch not in (FULL_NEW_SESSION, FULL_WITHOUT_SESSION)
        self._reply = Reply(
            ctx, request, session, incremental, ctx.metrics.bytes_replicated, call.caller.listener
        )
        self._timer: asyncio.TimerHandle | None = None  # Set while parked.
        self._stale_timer: asyncio.TimerHandle | None = None
        self._is_woken = False

    # -- request ----------------------------------------------------------------------------

    def name(self, broker_epoch: int) -> None:
        """Applies the offsets of the request and counts them as acknowledgements."""
        by_id = self._call.version >= TOPIC_IDS_SINCE
        for topic in self._request.topics:
            for row in topic.partitions:
                cursor = Cursor(
                    TopicId(topic.topic_id) if by_id else topic.topic,
                    row.partition,
                    row.fetch_offset,
                    row.partition_max_bytes,
                    row.current_leader_epoch,
                    row.last_fetched_epoch,
                    row.high_watermark,
                    row.log_start_offset,
                )
                self._session.put(cursor)
                try:
                    self._bind(cursor, broker_epoch)
                except Refused as refused:
                    cursor.code = refused.code
                    cursor.detach()
                cursor.take_up()
        self._hear_again(broker_epoch)

    def _hear_again(self, broker_epoch: int) -> None:
        """Counts unchanged offsets of partitions whose follower has left the ISR.

        The request does not repeat unchanged partitions (KIP-227), so a follower of a quiet
        partition could otherwise never rejoin the ISR.
        """
        unheard, self._session.unheard = self._session.unheard, {}
        for cursor in unheard:
            if cursor.partition is None or cursor.diverging is not None or cursor.code:
                continue
            try:
                cursor.partition.replica_fetched(
                    self._session.node_id,
                    broker_epoch,
                    cursor.offset,
                    self._call.started,
                    start_offset=cursor.start_offset_sent,
                )
            except Refused as refused:
                cursor.code = refused.code

    def _bind(self, cursor: Cursor, broker_epoch: int) -> None:
        ctx = self._ctx
        if isinstance(cursor.topic, bytes):
            known = ctx.image.topics_by_id.get(cursor.topic)
            if known is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
            cursor.name = known.name
        else:
            cursor.name = cursor.topic
        partition = led_partition(ctx, cursor.name, cursor.index)
        if cursor.leader_epoch != partition.leader_epoch:
            raise Refused(
                ErrorCode.FENCED_LEADER_EPOCH
                if cursor.leader_epoch < partition.leader_epoch
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        partition.log.require_online()
        self._check_whole(partition, cursor)
        cursor.attach(partition)
        cursor.diverging = _diverging(partition, cursor)
        if cursor.diverging is not None:
            return
        if not partition.log.start_offset <= cursor.offset <= partition.log.end_offset:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        node_id = self._session.node_id
        start_offset = cursor.start_offset_sent
        partition.replica_fetched(
            node_id, broker_epoch, cursor.offset, self._call.started, start_offset=start_offset
        )

    def _check_whole(self, partition: Partition, cursor: Cursor) -> None:
        """Gives up leadership if a follower has committed records beyond the end of this log.

        This does not hold for a follower that has not followed an unclean election yet, nor for a
        log from before an election if this log has batches from after it.
        """
        known, end_offset = cursor.high_watermark_sent, partition.log.end_offset
        if not end_offset < known <= cursor.offset:
            return
        record, node_id = partition.record, self._session.node_id
        if may_go_back(record, node_id, cursor.last_fetched_epoch):
            return
        if (
            cursor.last_fetched_epoch
            < record.unclean_epoch
            <= partition.log.epochs.of(end_offset - 1)
        ):
            return
        self._ctx.partitions.lose(
            partition,
            known,
            f"the log ends at {end_offset}, but node {node_id} has committed records up to "
            f"{known}: this node has lost records",
        )
        partition.log.require_online()

    # -- lookup -----------------------------------------------------------------------------

    def start(self) -> Any:
        self._hold_back()
        if self._session.ready or self._request.max_wait_ms <= 0:
            return self._answer(self._look())
        self._park()
        return None

    def _look(self) -> list[FetchedPartition]:
        """Locates the data to send without reading it; answered cursors rest."""
        session, request = self._session, self._request
        bytes_left = min(request.max_bytes, self._ctx.fetch_bytes_max)
        has_data = False
        founds: list[FetchedPartition] = []
        for cursor in tuple(session.ready):
            if has_data and bytes_left <= 0:
                break  # The rest comes first next time.
            found = FetchedPartition(cursor)
            found.name, found.partition = cursor.name, cursor.partition
            try:
                self._find(found, cursor, bytes_left, has_data)
            except Refused as refused:
                found.code = refused.code
            except (Corrupt, OSError) as error:
                self._reply.fail(found, error)
            if found.span is not None:
                has_data = True
                bytes_left -= found.span.size
                self._count(cursor, found.span.size)
            if found.span is not None or found.code or found.diverging is not None:
                session.rest(cursor)
            elif cursor.is_behind():
                continue  # Its first batch exceeds the rest of the reply.
            else:
                del session.ready[cursor]
            founds.append(found)
        return founds + self._look_at_stale()

    def _find(
        self, found: FetchedPartition, cursor: Cursor, bytes_left: int, has_data: bool
    ) -> None:
        partition = cursor.partition
        if partition is None:
            raise Refused(cursor.code)
        log = partition.log
        log.require_online()
        found.diverging = cursor.diverging
        if found.diverging is None:
            allowed = max(min(cursor.bytes_max, bytes_left), 0)
            span = log.locate(cursor.offset, allowed, log.end_offset)
            if span is not None and (not has_data or span.size <= allowed):
                found.span = span

    def _look_at_stale(self) -> list[FetchedPartition]:
        """Adds new high watermarks to the reply."""
        founds = []
        stale, self._session.stale = self._session.stale, {}
        for cursor in stale:
            if cursor.partition is not None and cursor.rests_since < 0:
                found = FetchedPartition(cursor)
                found.name, found.partition = cursor.name, cursor.partition
                founds.append(found)
        return founds

    # -- throttles --------------------------------------------------------------------------

    def _hold_back(self) -> None:
        """Skips partitions that a replication throttle delays (KIP-73)."""
        throttle = self._throttle
        wait_s = throttle.wait_s() if throttle is not None else 0.0
        if wait_s <= 0:
            return
        session = self._session
        held = [cursor for cursor in session.ready if self._is_throttled(cursor)]
        for cursor in held:
            session.hold_back(cursor)
            asyncio.get_running_loop().call_later(wait_s, session.retry, cursor)

    def _count(self, cursor: Cursor, size: int) -> None:
        if self._throttle is not None and self._is_throttled(cursor):
            self._throttle.record(size)

    def _is_throttled(self, cursor: Cursor) -> bool:
        """True if a throttle applies; never for in-sync replicas, since producers wait for them."""
        partition, throttle = cursor.partition, self._throttle
        if partition is None or throttle is None or cursor.diverging is not None:
            return False
        if self._session.node_id in partition.record.isr:
            return False
        return throttle.names(partition.topic, partition.index)

    # -- wait -------------------------------------------------------------------------------

    def _park(self) -> None:
        session = self._session
        loop = asyncio.get_running_loop()
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        self._timer = loop.call_later(wait_ms / 1000, self._conclude)
        session.wake, session.wake_later = self._wake, self._wake_later
        session.conclude = self._conclude
        self._call.when_abandoned(self._leave)
        if session.stale:
            self._wake_later()

    def _wake(self) -> None:
        """Schedules one lookup for all appends of this iteration of the event loop."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _wake_later(self) -> None:
        if self._stale_timer is None:
            loop = asyncio.get_running_loop()
            self._stale_timer = loop.call_later(STALE_SECONDS, self._conclude)

    def _look_again(self) -> None:
        self._is_woken = False
        if self._timer is not None:
            self._hold_back()
            if self._session.ready:
                self._conclude()

    def _leave(self) -> None:
        """Stops waiting, before the reply or when the connection is lost."""
        self._session.unpark()
        for timer in (self._timer, self._stale_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._stale_timer = None

    def _conclude(self) -> None:
        if self._timer is None:
            return
        self._leave()
        reply_with(self._call, self._answer(self._look()))

    # -- reply ------------------------------------------------------------------------------

    def _answer(self, founds: list[FetchedPartition]) -> FetchResponse | Awaitable[FetchResponse]:
        answer = self._reply.answer(founds)
        if isinstance(answer, FetchResponse):
            self._finish()
            return answer
        return Deferred(self._finish_later, answer, founds)

    async def _finish_later(
        self, answer: Awaitable[FetchResponse], founds: list[FetchedPartition]
    ) -> FetchResponse:
        had_data = [found for found in founds if found.span is not None]
        response = await answer
        for found in had_data:
            if found.span is None and found.code is ErrorCode.NONE:
                assert isinstance(found.followed, Cursor)
                self._session.retry(found.followed)
        self._finish()
        return response

    def _finish(self) -> None:
        if self._session.id == 0:
            self._session.close()


def _diverging(partition: Partition, cursor: Cursor) -> tuple[int, int] | None:
    """Returns the epoch and offset where the follower's log diverges, if it does (KIP-595)."""
    last_epoch = cursor.last_fetched_epoch
    if last_epoch < 0:
        return None
    epoch, end = partition.epoch_end(last_epoch)
    if end >= cursor.offset and epoch in (last_epoch, NO_EPOCH):
        return None
    return epoch, end
