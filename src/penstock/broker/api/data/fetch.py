"""Fetch (api 1), versions 4-18.

Returns whole stored batches from the log, committed ones only. Waits until `min_bytes` are
available or `max_wait_ms` have passed; an error or a closed session is answered at once. The first
partition with data returns at least one batch, however large; apart from that, `max_bytes`,
`partition_max_bytes` and the broker's `fetch.max.bytes` limit the reply.

v7 sessions (KIP-227, `fetch_sessions`); v11 racks; v12 flexible, detects diverging epochs; v13
topic ids; v15 moves the replica id into a tagged field; v16 names new leaders; v17 and v18 add
fields of replicas, which `replica_fetch` handles.

A consumer that names its rack is sent to an in-sync follower in that rack, if
`replica.selector.class` says so (KIP-392). A follower serves offsets that
it knows to be committed. It serves only consumers that name a rack or an epoch, so that no consumer
stays with a replica that has lost its leader unnoticed.

Preferred read replica of a consumer (KIP-392): one in its own rack, if there is one.
`replica.selector.class` selects the policy: none, or Kafka's RackAwareReplicaSelector by its full
name. Among the live in-sync replicas in the consumer's rack that have the requested offset, the
leader is preferred, otherwise the one with the highest end offset. The leader replies with that
choice instead of records, and clients ask the leader again from time to time.
"""

import asyncio
from typing import Any

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.broker.api.call import Call
from penstock.broker.api.context import FetchContext
from penstock.broker.api.data.fetch_reply import READ_COMMITTED, FetchedPartition, Reply, reply_with
from penstock.broker.api.data.fetch_sessions import (
    FULL_NEW_SESSION,
    FULL_WITHOUT_SESSION,
    ConsumerFetchSession,
    Followed,
)
from penstock.broker.api.data.replica_fetch import replica_fetch
from penstock.broker.api.quota import exempt
from penstock.broker.api.response_rows import led_partition
from penstock.cluster.replication.partition import Partition
from penstock.log.read_span import ReadSpan
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NO_REPLICA = -1


def selects(name: str | None) -> bool:
    """True if `replica.selector.class` selects replicas by rack."""
    return name == RACK_AWARE


def nearest(ctx: FetchContext, partition: Partition, offset: int, rack: str) -> int:
    """Returns the node to read from instead of this one, or -1."""
    leader_state = partition.leader_state
    if leader_state is None:
        return NO_REPLICA
    brokers = ctx.image.brokers
    own = brokers.get(ctx.node_id)
    if own is not None and own.rack == rack:
        return NO_REPLICA
    best, best_end = NO_REPLICA, -1
    for node in leader_state.record.isr:
        broker, copy = brokers.get(node), leader_state.copies.get(node)
        if broker is None or copy is None or broker.rack != rack or broker.is_draining:
            continue
        if copy.start_offset <= offset <= copy.end_offset and copy.end_offset > best_end:
            best, best_end = node, copy.end_offset
    return best


TOPIC_IDS_SINCE = 13
FOLLOWERS_SINCE = 11
WAIT_MS_MAX = 300_000


def fetch(ctx: FetchContext, call: Call, request: FetchRequest) -> Any:
    """Answers at once if possible; otherwise parks the call until `min_bytes` or the timeout."""
    state = request.replica_state
    replica = state.replica_id if state is not None else request.replica_id
    if replica >= 0:
        exempt(call)
        return replica_fetch(ctx, call, request, replica)
    by_id = call.version >= TOPIC_IDS_SINCE
    wanted = _wanted(request, by_id)
    now = call.started
    session: ConsumerFetchSession | None = None
    sessions = ctx.fetch_sessions
    epoch = request.session_epoch
    incremental = epoch not in (FULL_NEW_SESSION, FULL_WITHOUT_SESSION)
    try:
        if incremental:
            session = sessions.resume(request.session_id, epoch, by_id, now, call.principal)
            forgotten = [
                (TopicId(topic.topic_id) if by_id else topic.topic, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ]
            sessions.update(session, wanted, forgotten)
            if not session.partitions:
                # The session has no partitions left: closed, and the reply says so.
                sessions.close(session.id)
                session, wanted = None, []
        else:
            if request.session_id:
                sessions.end(request.session_id, call.principal)
            if epoch == FULL_NEW_SESSION:
                session = sessions.open(wanted, by_id, now, call.principal)
    except Refused as refused:
        return FetchResponse(error_code=refused.code, responses=[])
    return Attempt(ctx, call, request, session, incremental, wanted).start()


def _wanted(request: FetchRequest, by_id: bool) -> list[Followed]:
    return [
        Followed(
            TopicId(topic.topic_id) if by_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


class Attempt:
    """One fetch request, from its first lookup in the logs to its reply."""

    __slots__ = (
        "_call",
        "_ctx",
        "_is_guarded",
        "_is_woken",
        "_reply",
        "_request",
        "_session",
        "_timer",
        "_topics_by_id",
        "_wanted",
        "_watched",
    )

    def __init__(
        self,
        ctx: FetchContext,
        call: Call,
        request: FetchRequest,
        session: ConsumerFetchSession | None,
        incremental: bool,
        wanted: list[Followed],
    ) -> None:
        self._ctx = ctx
        self._call = call
        self._request = request
        self._session = session
        metrics = ctx.metrics
        self._reply = Reply(
            ctx,
            request,
            session,
            incremental,
            metrics.bytes_out,
            call.caller.listener,
            metrics.traffic,
        )
        self._wanted = wanted
        self._timer: asyncio.TimerHandle | None = None  # Set while parked.
        self._is_woken = False
        self._watched: list[Partition] = []

    def start(self) -> Any:
        founds, enough = self._look()
        if enough or self._request.max_wait_ms <= 0:
            return self._reply.answer(founds)
        self._park(founds)
        return None

    # -- lookup -----------------------------------------------------------------------------

    def _look(self) -> tuple[list[FetchedPartition], bool]:
        """Locates the data to send without reading it; returns True with it if it is enough."""
        # Read once for all partitions, and again after each wait, since both may change.
        self._topics_by_id = self._ctx.image.topics_by_id
        self._is_guarded = self._ctx.authorizer.is_on
        request = self._request
        bytes_left = min(request.max_bytes, self._ctx.fetch_bytes_max)
        bytes_min = request.min_bytes
        if self._ctx.meter.is_on:
            # A reply has at most the quota of one window, and the fetch does not wait for more.
            bytes_left = min(bytes_left, self._quota_bytes())
            bytes_min = min(bytes_min, bytes_left)
        has_data = False
        total = 0
        enough = False
        founds: list[FetchedPartition] = []
        session = self._session
        for followed in self._wanted if session is None else session.partitions.values():
            found = FetchedPartition(followed)
            founds.append(found)
            try:
                span = self._locate(found, bytes_left, has_data)
            except Refused as refused:
                found.code = refused.code
                enough = True
                continue
            except (Corrupt, OSError) as error:
                self._reply.fail(found, error)
                enough = True
                continue
            if found.diverging is not None or found.preferred >= 0:
                enough = True
            if span is not None:
                found.span = span
                has_data = True
                size = span.size
                total += size + span.left_out
                bytes_left -= size
                assert found.partition is not None
                if span.segment is not found.partition.log.segments.active:
                    enough = True  # The next segment has more data, however little this one has.
        return founds, enough or total >= bytes_min or not founds

    def _quota_bytes(self) -> int:
        call = self._call
        bytes_max = self._ctx.meter.fetch_bytes_max(call.principal, call.client_id)
        return int(min(bytes_max, self._request.max_bytes))

    def _locate(self, found: FetchedPartition, bytes_left: int, has_data: bool) -> ReadSpan | None:
        ctx, followed = self._ctx, found.followed
        if isinstance(followed.topic, bytes):
            known = self._topics_by_id.get(followed.topic)
            if known is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
            found.name = known.name
        else:
            found.name = followed.topic
        if self._is_guarded:
            call = self._call
            needs = call.needs
            if not ctx.authorize(call, needs.operation, needs.resource, found.name):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = found.partition = self._readable(found.name, followed)
        if followed.leader_epoch != partition.leader_epoch:
            partition.check_epoch(followed.leader_epoch)
        log = partition.log
        if log.offline is not None:
            log.require_online()
        if followed.last_fetched_epoch >= 0:
            epoch, end = partition.epoch_end(followed.last_fetched_epoch)
            if epoch < 0 and partition.leader_state is None:
                raise Refused(ErrorCode.OFFSET_NOT_AVAILABLE)  # Perhaps not replicated yet.
            if epoch < 0:
                raise Refused(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"unknown leader epoch {followed.last_fetched_epoch}: not in this log",
                )
            if epoch < followed.last_fetched_epoch or end < followed.offset:
                found.diverging = (epoch, end)
                return None
        limit = partition.high_watermark
        found.stable = log.last_stable_offset(limit)
        if self._request.isolation_level == READ_COMMITTED:
            limit = found.stable
        offset = followed.offset
        if offset > log.end_offset or offset < log.start_offset:
            if offset >= log.start_offset and partition.leader_state is None:
                raise Refused(ErrorCode.OFFSET_NOT_AVAILABLE)  # Perhaps not replicated yet.
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self._request.rack_id and ctx.replicas.has_selector:
            found.preferred = nearest(ctx, partition, offset, self._request.rack_id)
            if found.preferred >= 0:
                return None
        if offset >= limit or (has_data and bytes_left <= 0):
            return None
        allowed = min(followed.bytes_max, bytes_left)
        span = log.locate(offset, max(allowed, 0), limit)
        if span is not None and has_data and span.size > allowed:
            return None  # Only the first partition may exceed its limit, for a whole batch.
        return span

    def _readable(self, name: str, followed: Followed) -> Partition:
        """Returns the partition if this node leads it, or follows it and may serve the consumer."""
        if self._call.version >= FOLLOWERS_SINCE and (
            followed.leader_epoch >= 0 or self._request.rack_id
        ):
            replica = self._ctx.partitions.replica(name, followed.index)
            if replica is not None:
                if replica.is_under_repair:
                    raise Refused(ErrorCode.REPLICA_NOT_AVAILABLE)
                return replica
        return led_partition(self._ctx, name, followed.index)

    # -- wait -------------------------------------------------------------------------------

    def _park(self, founds: list[FetchedPartition]) -> None:
        for found in founds:
            if found.partition is not None:
                found.partition.watch(self._wake)
                self._watched.append(found.partition)
        loop = asyncio.get_running_loop()
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        self._timer = loop.call_later(wait_ms / 1000, self._time_is_up)
        self._call.when_abandoned(self._leave)

    def _wake(self) -> None:
        """Schedules one lookup for all appends of a group commit, after it and not within it."""
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._is_woken = False
        if self._timer is None:
            return
        founds, enough = self._look()
        if enough:
            self._conclude(founds)

    def _time_is_up(self) -> None:
        self._conclude(self._look()[0])

    def _leave(self) -> None:
        """Stops waiting, before the reply or when the connection is lost."""
        for partition in self._watched:
            partition.unwatch(self._wake)
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _conclude(self, founds: list[FetchedPartition]) -> None:
        self._leave()
        reply_with(self._call, self._reply.answer(founds))
