"""ShareFetch (api 78), versions 1-2: records for a member of a share group, leased to it.

First the acknowledgements that came along count, then records are acquired from the partitions of
the session, in turns. Nothing there? The request waits for `max_wait_ms`, or until `min_bytes` are
acquired. The reply leaves when the leases are kept. Whole batches are sent, beside the ranges of
offsets in them that were acquired; what does not fit into `max_bytes` is given back, and so is
everything if the connection is gone before the reply.

`max_records` is kept exactly, whichever acquire mode (v2) is asked for; ranges are exact as well,
so `batch_size`, a hint for brokers that track whole batches, has nothing to say here. Records of
one answer are of one priority: clients read them in the order of the log. A request that only
renews (v2) acquires nothing.
"""

import asyncio
from collections.abc import Callable, Sequence

from penstock.api.context import Call, Context
from penstock.api.rows import leader_elsewhere, storage_failure
from penstock.api.share_acknowledge import (
    MOVED,
    NO_LEADER,
    Acknowledging,
    check_caller,
    check_rights,
    end_session,
)
from penstock.api.share_sessions import FINAL, INITIAL, Place, ShareSession
from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.coordinator.queue import Queue
from penstock.coordinator.queue_reading import read_leased
from penstock.queues.delivery import Delivery, Outcome
from penstock.queues.keeping import QueueKey
from penstock.queues.state import Lease
from penstock.wire.messages.share import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchLeaderIdAndEpoch,
    ShareFetchNodeEndpoint,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

WAIT_MS_MAX = 300_000
RECORDS_MAX = 100_000
TRANSIENT = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
"""The queue cannot be opened for now: the client finds nothing, and asks again."""
FENCED = (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH)


async def share_fetch(ctx: Context, call: Call, request: ShareFetchRequest) -> ShareFetchResponse:
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
    rows = _Rows(ctx)
    can_renew = request.is_renew_ack and ctx.queues.lease_settings(group).can_renew
    acknowledging = Acknowledging(ctx, call, group, member, can_renew)
    started = [
        ((topic.topic_id, row.partition_index), row.acknowledgement_batches)
        for topic in request.topics
        for row in topic.partitions
        if row.acknowledgement_batches
    ]
    answers = [(place, acknowledging.start(place, batches)) for place, batches in started]
    if request.share_session_epoch != FINAL and not request.is_renew_ack:
        await _Attempt(ctx, call, request, session, rows).run()
    for place, answer in answers:
        rows.acknowledged(place, await answer)
    if request.share_session_epoch == FINAL:
        ctx.share_sessions.close(session)
        end_session(ctx, session)
    return rows.response(ctx.queues.lease_settings(group).lock_ms)


def _check_request(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise Refused(ErrorCode.INVALID_REQUEST, "a request that renews fetches nothing")


def _session(
    ctx: Context, call: Call, request: ShareFetchRequest, group: str, member: str
) -> ShareSession:
    epoch, sessions = request.share_session_epoch, ctx.share_sessions
    wanted = [
        (topic.topic_id, row.partition_index)
        for topic in request.topics
        for row in topic.partitions
    ]
    if epoch == FINAL:
        return sessions.find(group, member, call.caller)
    if epoch == INITIAL:
        if any(row.acknowledgement_batches for topic in request.topics for row in topic.partitions):
            raise Refused(ErrorCode.INVALID_REQUEST, "nothing was acquired in this session yet")
        sessions_max = ctx.configs.integer("group.share.max.share.sessions")
        session = sessions.open(
            group, member, call.caller, sessions_max, lambda ended: end_session(ctx, ended)
        )
        forgotten: list[Place] = []
    else:
        session = sessions.resume(group, member, call.caller, epoch)
        forgotten = [
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
    session.update(wanted, forgotten)
    return session


class _Attempt:
    """One request on its way to records; a `queue.Taker` at every queue of its session."""

    def __init__(
        self,
        ctx: Context,
        call: Call,
        request: ShareFetchRequest,
        session: ShareSession,
        rows: "_Rows",
    ) -> None:
        self._ctx = ctx
        self._call = call
        self._session = session
        self._rows = rows
        self._records_left = max(0, min(request.max_records, RECORDS_MAX))
        self._bytes_max = max(1, min(request.max_bytes, ctx.fetch_bytes_max))
        self._bytes_min = min(max(request.min_bytes, 1), self._bytes_max)
        self._wait_ms = max(0, min(request.max_wait_ms, WAIT_MS_MAX))
        self._bytes = 0
        self._unkept = 0
        self._places: dict[Queue, Place] = {}
        self._granted: dict[Queue, list[Lease]] = {}
        self._has_errors = False
        self._is_over = False
        self._news = asyncio.Event()

    # -- being given records ----------------------------------------------------------------

    @property
    def member(self) -> str:
        return self._session.member

    @property
    def lock_ms(self) -> int | None:
        return None

    def room(self, queue: Queue) -> int:
        if self._is_over:
            return 0
        fitting = (self._bytes_max - self._bytes) // _record_bytes(queue)
        return min(self._records_left, max(fitting, 0 if self._bytes else 1))

    def taken(self, queue: Queue, leases: tuple[Lease, ...]) -> None:
        self._unkept += 1
        self._granted.setdefault(queue, []).extend(leases)
        count = sum(lease.last - lease.first + 1 for lease in leases)
        self._records_left -= count
        self._bytes += count * _record_bytes(queue)
        self._news.set()

    def kept(self, queue: Queue, leases: tuple[Lease, ...], refused: Refused | None) -> None:
        self._unkept -= 1
        if refused is not None:
            self._granted.pop(queue, None)
            self._rows.forget(self._places[queue])
            self._refuse(self._places[queue], refused)
        self._news.set()

    def turned_away(self, queue: Queue, why: Refused) -> None:
        self._refuse(self._places[queue], why)
        self._news.set()

    def _refuse(self, place: Place, refused: Refused) -> None:
        if refused.code in TRANSIENT:
            return
        if refused.code in FENCED:
            refused = Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, refused.message)
        self._rows.refused(place, refused)
        self._has_errors = True

    # -- the way ----------------------------------------------------------------------------

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_ms / 1000
        is_answered = False
        try:
            if self._records_left:
                await self._stand_in_line()
                await self._wait(deadline)
            self._leave()
            await self._read_all()
            while self._unkept:
                self._news.clear()
                await self._news.wait()
            is_answered = True
        finally:
            self._leave()
            if not is_answered:
                for queue, leases in self._granted.items():
                    _give_back(queue, leases)

    async def _stand_in_line(self) -> None:
        """Asks every partition in turn, until there is enough."""
        for place in list(self._session.partitions):
            queue = self._ctx.queues.find(QueueKey(self._session.group, *place))
            try:
                check_rights(self._ctx, self._call, place[0])
                if queue is None:
                    queue = await self._ctx.queues.open(QueueKey(self._session.group, *place))
                self._places[queue] = place
                if not self._is_enough:
                    queue.take(self)
            except Refused as refused:
                self._refuse(place, refused)
            except (Corrupt, OSError) as error:
                self._refuse(place, Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    @property
    def _is_enough(self) -> bool:
        return self._bytes >= self._bytes_min or self._records_left <= 0

    async def _wait(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_at(deadline, self._news.set)
        try:
            while not (self._is_enough or self._has_errors or loop.time() >= deadline):
                self._news.clear()
                await self._news.wait()
                if not self._is_enough:
                    self._wait_on()
        finally:
            timer.cancel()

    def _wait_on(self) -> None:
        """Stands in line again where it was given something, but too little."""
        for queue in self._places:
            if not queue.is_closed and not queue.is_waiting(self):
                queue.take(self)

    def _leave(self) -> None:
        self._is_over = True
        for queue in self._places:
            queue.forget(self)

    async def _read_all(self) -> None:
        """Reads what was given, and gives back what does not fit."""
        left = self._bytes_max
        for queue, leases in list(self._granted.items()):
            place = self._places[queue]
            if left <= 0:
                del self._granted[queue]
                _give_back(queue, leases)
                continue
            try:
                found = await read_leased(queue.partition, self._ctx.workers, leases, left)
            except Refused as refused:
                self._granted.pop(queue, None)
                _give_back(queue, leases)
                self._refuse(place, refused)
                continue
            except (Corrupt, OSError) as error:
                self._granted.pop(queue, None)
                code = storage_failure(self._ctx, queue.partition, error)
                self._refuse(place, Refused(code, str(error)))
                continue
            if queue not in self._granted:
                continue  # It could not be kept meanwhile.
            left -= found.size
            if found.left:
                _give_back(queue, found.left)
            self._granted[queue] = found.leases
            self._rows.acquired(place, found.parts, found.leases)
            self._session.served(place)
            self._ctx.metrics.bytes_out.value += found.size


def _record_bytes(queue: Queue) -> int:
    """What a record takes in this partition, on average."""
    files = queue.partition.log
    return max(1, files.size_bytes // max(1, files.end_offset - files.start_offset))


def _give_back(queue: Queue, leases: Sequence[Lease]) -> None:
    """Leases that do not reach their member are as if they had not been given."""
    for lease in leases:
        try:
            queue.change(_returning(lease), lambda refused: None)
        except Refused:
            continue  # It has run out, or the queue is closed: somebody else sees to it.


def _returning(lease: Lease) -> Callable[[Delivery, int], Outcome]:
    return lambda machine, now_ms: machine.give_back(lease.member, lease.first, lease.last, now_ms)


class _Rows:
    """The answer, in the making: one row for each partition that has something to say."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._rows: dict[Place, ShareFetchPartitionData] = {}
        self._endpoints: dict[int, ShareFetchNodeEndpoint] = {}

    def _row(self, place: Place) -> ShareFetchPartitionData:
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = ShareFetchPartitionData(
                partition_index=place[1],
                error_code=ErrorCode.NONE,
                acknowledge_error_code=ErrorCode.NONE,
                current_leader=ShareFetchLeaderIdAndEpoch(
                    leader_id=NO_LEADER, leader_epoch=NO_LEADER
                ),
                records=b"",
                acquired_records=(),
            )
        return row

    def acquired(self, place: Place, parts: list[memoryview], leases: list[Lease]) -> None:
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

    def forget(self, place: Place) -> None:
        """What was acquired there is not to be had after all."""
        self._rows.pop(place, None)

    def acknowledged(self, place: Place, refused: Refused | None) -> None:
        row = self._row(place)
        if refused is not None:
            row.acknowledge_error_code = refused.code
            row.acknowledge_error_message = refused.message
            self._show_leader(place, row, refused)

    def _show_leader(self, place: Place, row: ShareFetchPartitionData, refused: Refused) -> None:
        """Names the leader of what this node does not lead, so that nobody has to ask."""
        topic = self._ctx.image.topics_by_id.get(place[0])
        if refused.code not in MOVED or topic is None:
            return
        elsewhere = leader_elsewhere(self._ctx, topic.name, place[1])
        if elsewhere is None:
            return
        leader, epoch = elsewhere
        row.current_leader = ShareFetchLeaderIdAndEpoch(
            leader_id=leader.node_id, leader_epoch=epoch
        )
        self._endpoints[leader.node_id] = ShareFetchNodeEndpoint(
            node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack
        )

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
