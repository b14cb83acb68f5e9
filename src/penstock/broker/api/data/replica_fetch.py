"""Fetch (api 1) from other nodes of the cluster: how followers copy what this node leads.

A follower names a partition from the offset where its own disk ends, so each naming is an
acknowledgement (`Partition.replica_fetched`). It may read up to the end of our log, synced or not:
both disks work at the same time. An append wakes a parked fetch, once for all that one turn of the
loop appends; a new high watermark does after `STALE_SECONDS`, if nothing else did before.

Fencing: a request of a node's past life is refused as a whole (STALE_BROKER_EPOCH); a partition
named under another leader epoch than ours is an error in its row, and so is one that this node does
not lead. A follower whose log departs from ours is told where (v12), and is not counted.

Needs CLUSTER_ACTION. Versions as in `fetch`; v18 carries the follower's high watermark.
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
from penstock.cluster.controller.elections import may_go_back
from penstock.cluster.replication.partition import Partition
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

TOPIC_IDS_SINCE = 13
WAIT_MS_MAX = 300_000
STALE_SECONDS = 0.025
"""How long news of the high watermark waits for something to travel with."""
NO_EPOCH = -1
"""Of a log that has no batch, and so no history to depart from."""


def replica_fetch(ctx: FetchContext, call: Call, request: FetchRequest, node_id: int) -> Any:
    """Answers a follower now if there is something to say; else parks its call."""
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
    """One fetch request of a follower, until its reply."""

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
        self._timer: asyncio.TimerHandle | None = None  # Armed for as long as it is parked.
        self._stale_timer: asyncio.TimerHandle | None = None
        self._is_woken = False

    # -- what the request names -------------------------------------------------------------

    def name(self, broker_epoch: int) -> None:
        """Takes over what the follower says of itself, and counts it."""
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
        """A partition that the request does not name is where it was (KIP-227). That is news if
        the follower has left the ISR since: quiet partitions would never let it back."""
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
        """A follower that holds committed records beyond our end shows that we have lost them:
        then we lead no longer. A follower that has yet to follow an unclean election shows nothing
        of the kind, nor does a log of before the election where ours has a batch of after it."""
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
            f"the log ends at {end_offset}, but node {node_id} has what was committed up to "
            f"{known}: records were lost here",
        )
        partition.log.require_online()

    # -- looking ----------------------------------------------------------------------------

    def start(self) -> Any:
        self._hold_back()
        if self._session.ready or self._request.max_wait_ms <= 0:
            return self._answer(self._look())
        self._park()
        return None

    def _look(self) -> list[FetchedPartition]:
        """Finds what is to be sent, without reading it; who is answered rests."""
        session, request = self._session, self._request
        room = min(request.max_bytes, self._ctx.fetch_bytes_max)
        has_data = False
        founds: list[FetchedPartition] = []
        for cursor in tuple(session.ready):
            if has_data and room <= 0:
                break  # Those that are left are first in line next time.
            found = FetchedPartition(cursor)
            found.name, found.partition = cursor.name, cursor.partition
            try:
                self._find(found, cursor, room, has_data)
            except Refused as refused:
                found.code = refused.code
            except (Corrupt, OSError) as error:
                self._reply.fail(found, error)
            if found.span is not None:
                has_data = True
                room -= found.span.size
                self._count(cursor, found.span.size)
            if found.span is not None or found.code or found.diverging is not None:
                session.rest(cursor)
            elif cursor.is_behind():
                continue  # Its first batch is larger than the room that is left.
            else:
                del session.ready[cursor]
            founds.append(found)
        return founds + self._look_at_stale()

    def _find(self, found: FetchedPartition, cursor: Cursor, room: int, has_data: bool) -> None:
        partition = cursor.partition
        if partition is None:
            raise Refused(cursor.code)
        log = partition.log
        log.require_online()
        found.diverging = cursor.diverging
        if found.diverging is None:
            allowed = max(min(cursor.bytes_max, room), 0)
            span = log.locate(cursor.offset, allowed, log.end_offset)
            if span is not None and (not has_data or span.size <= allowed):
                found.span = span

    def _look_at_stale(self) -> list[FetchedPartition]:
        """News of high watermarks go with whatever is sent."""
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
        """Takes those out of turn that a replication throttle keeps waiting (KIP-73)."""
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
        """A replica in sync is never held back: producers wait for it."""
        partition, throttle = cursor.partition, self._throttle
        if partition is None or throttle is None or cursor.diverging is not None:
            return False
        if self._session.node_id in partition.record.isr:
            return False
        return throttle.names(partition.topic, partition.index)

    # -- waiting ----------------------------------------------------------------------------

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
        """Looks again: once for all that this turn of the loop appends."""
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
        """No longer waits: for the reply is on its way, or its connection is gone."""
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

    # -- answering --------------------------------------------------------------------------

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
    """Where the follower's log departs from ours, by the epoch of its last batch (KIP-595)."""
    last_epoch = cursor.last_fetched_epoch
    if last_epoch < 0:
        return None
    epoch, end = partition.epoch_end(last_epoch)
    if end >= cursor.offset and epoch in (last_epoch, NO_EPOCH):
        return None
    return epoch, end
