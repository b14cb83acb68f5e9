"""Share consumer: receives leased records and acknowledges them (KIP-932).

Works with Penstock and with Kafka 4.2 and newer (4.1 without renewal). Owns the leased records and
their acknowledgements: records that wait for a caller (up to `prefetch`, more while callers wait),
records that callers received and did not settle yet, and acknowledgements in flight. `ShareMember`
joins the group, `ClientShareSession` talks to one node.

Rules: all partitions are read if there are at most `partitions_max`, otherwise the assigned ones. A
record that a caller holds is renewed at half its lease, for `renew_for_s`. A record that no caller
took by half its lease is released; Penstock does not count this delivery. Acknowledgements follow
a partition to its new leader. `close` releases all held records. At most `held_max` records are
held; no more are fetched until some are settled.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.errors import RETRIABLE, refusal
from penstock.client.metadata import TopicPartition
from penstock.client.share.acknowledgements import (
    NEVER_DELIVERED,
    NO_OPTIONS,
    Ack,
    AcknowledgementType,
    AckOptions,
)
from penstock.client.share.leases import HeldLease, HeldRecords, read_acquired
from penstock.client.share.member import Assigned, ShareMember
from penstock.client.share.partitions import AckChunks, PartitionKey, SharePartitions
from penstock.client.share.session import NETWORK, ClientShareSession
from penstock.wire.messages.share import (
    ShareFetchPartitionData,
)

_SESSION_OVER = (
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
_FIRST_REPLY_GRACE_S = 5.0
"""Extends the timeout of `receive`, in seconds, until every node answered one fetch."""
_ACK_WAIT_MS = 20
"""Limits the wait of a fetch, if records are held and acknowledgements would queue behind it."""
_PREFETCH_S = 1.0
"""Stops prefetching when `receive` was not called for this time, in seconds."""


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """Settings of a share consumer."""

    prefetch: int = 0
    """Number of records to fetch before `receive` is called."""
    fetch_records: int = 500
    """Maximum number of records in one fetch."""
    held_max: int = 10_000
    """Maximum number of records that are not settled."""
    max_wait_ms: int = 500
    max_bytes: int = 16 << 20
    renew_for_s: float = 900.0
    """Time for which the lease of a received record is renewed, in seconds."""
    retry_timeout_ms: int = 60_000
    """Time for which nodes may be unreachable before `receive` raises the error."""
    rack: str | None = None
    partitions_max: int = 64
    """Up to this number, all partitions are read, also those assigned to other members."""


class ShareConsumer:
    """Share consumer: `async with ShareConsumer(cluster, "workers", ["jobs"]) as consumer: ...`."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        config: ShareConfig | None = None,
    ) -> None:
        assert topics
        self.config = config or ShareConfig()
        self.group = group
        self.topics = tuple(topics)
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._member = ShareMember(
            cluster, group, topics, self._assigned, self._removed, self.config.rack
        )
        self._assignment: Assigned = []
        self._partitions = SharePartitions()
        self._sessions: dict[int, ClientShareSession] = {}
        self._held_records = HeldRecords()
        self._pending_acks: set[asyncio.Future[None]] = set()
        self._reserved = 0
        """Number of records that fetches in flight may return."""
        self._waiting: dict[object, tuple[int, float]] = {}
        """Waiting calls of `receive`: number of records, and the deadline."""
        self._asked_at = self._loop.time()
        """Time of the last call of `receive`."""
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._is_removed = False
        """True once the group removed this member: the failure is permanent."""
        self._failing_since: float | None = None
        self._failures = 0
        self._last_error: Exception | None = None
        self._lock_s = 30.0
        self._can_renew = True
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False

    async def __aenter__(self) -> "ShareConsumer":
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Joins the group. Raises Refused for a topic that does not exist."""
        for topic in self.topics:
            await self._cluster.topic(topic)
        await self._member.join()
        self._spawn("name", self._name_partitions())
        self._spawn("watch", self._watch())

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def held(self) -> int:
        """Number of records that are leased to this member, as far as it knows."""
        return len(self._held_records)

    @property
    def last_error(self) -> Exception | None:
        """Error of the connection that failed last."""
        return self._last_error

    def silent_s(self) -> float:
        """Seconds since which no node has answered; 0.0 while one does."""
        now = self._loop.time()
        used = [session for session in self._sessions.values() if session.wanted]
        since = [session.silent_since(now) for session in used]
        if not since:
            return 0.0 if self._failing_since is None else now - self._failing_since
        return min(0.0 if one is None else now - one for one in since)

    # Receive.

    async def receive(self, records_max: int, timeout_ms: int) -> list[HeldLease]:
        """Returns up to `records_max` records as soon as there are any; none after the timeout."""
        assert records_max > 0
        self._check()
        end = self._loop.time() + timeout_ms / 1000
        before = {node_id: session.replies for node_id, session in self._sessions.items()}
        me = object()
        self._waiting[me] = (records_max, end)
        try:
            while True:
                self._check()
                now = self._loop.time()
                taken = self._held_records.take(records_max, now, self.config.renew_for_s)
                if taken:
                    return taken
                self._pump()
                if now >= end and (now >= end + _FIRST_REPLY_GRACE_S or self._has_asked(before)):
                    return []
                self._changed.clear()
                limit = end if now < end else end + _FIRST_REPLY_GRACE_S
                try:
                    async with asyncio.timeout_at(limit):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            del self._waiting[me]
            self._asked_at = self._loop.time()
            self._pump()

    def _has_asked(self, before: Mapping[int, int]) -> bool:
        """True if every node has answered a fetch since, or waits for records by now."""
        sessions = self._sessions
        return bool(sessions) and all(
            session.replies > before.get(node_id, 0) or session.is_waiting or not session.wanted
            for node_id, session in sessions.items()
        )

    # Acknowledge.

    def settle(
        self,
        lease: HeldLease,
        kind: AcknowledgementType,
        options: AckOptions = NO_OPTIONS,
        *,
        is_awaited: bool = True,
    ) -> "asyncio.Future[None]":
        """Acknowledges a record; done when the broker confirmed. Raises Refused if done twice.

        One that is not awaited may travel with a fetch, and be confirmed with its reply.
        """
        if lease.is_settled:
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE,
                f"{lease.where} offset {lease.message.offset} was settled before",
            )
        if lease.is_lost:
            raise _lost(lease)
        self._check_open()
        if kind is not AcknowledgementType.RENEW:
            self._held_records.settle(lease)
        done: asyncio.Future[None] = self._loop.create_future()
        self._pending_acks.add(done)
        done.add_done_callback(self._ack_done)
        ack = Ack(lease.message.offset, kind, options, lease, done, is_awaited)
        self._add_ack(lease.where, ack)
        return done

    def _ack_done(self, done: "asyncio.Future[None]") -> None:
        self._pending_acks.discard(done)
        if not done.cancelled():
            done.exception()  # Marked as retrieved: the caller need not await the outcome.

    def _add_ack(self, where: TopicPartition, ack: Ack) -> None:
        partition = self._partitions.find(where)
        if partition is None:
            ack.fail(Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is gone"))
            return
        partition.acks.add(ack)
        session = self._sessions.get(partition.node_id)
        # From the loop: acknowledgements of one step travel together.
        self._loop.call_soon(session.pump if session is not None else self._route)

    async def flush(self) -> None:
        """Waits until every acknowledgement is confirmed or failed."""
        while self._pending_acks:
            await asyncio.wait(self._pending_acks)

    async def close(self) -> None:
        """Releases held records, sends pending acknowledgements and leaves the group."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        # Fetches first: a waiting fetch would acquire the released records again.
        await asyncio.gather(*(session.end_fetch() for session in self._sessions.values()))
        self._release_undelivered(self._held_records.remove_waiting())
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        await self._member.leave()
        gone = Refused(ErrorCode.INVALID_RECORD_STATE, "the consumer was closed")
        for ack in self._partitions.drain():
            ack.fail(gone)
        self._held_records.clear()
        self._changed.set()

    # Callbacks of the member.

    def _assigned(self, assigned: Assigned) -> None:
        self._assignment = assigned
        self._spawn("name", self._name_partitions())

    async def _name_partitions(self) -> None:
        """Assignments name topics by id; ids are known once the metadata is."""
        names: dict[TopicId, str] = {}
        for attempt in range(5):
            topics = self._cluster.metadata.topics
            names = {topics[name].topic_id: name for name in self.topics if name in topics}
            if all(topic_id in names for topic_id, _ in self._assignment):
                break
            await self._cluster.refresh_quietly(self.topics)
            await self._cluster.backoff.wait(attempt)
        self._partitions.assign(self._partition_keys(names), names)
        self._route()

    def _partition_keys(self, names: Mapping[TopicId, str]) -> list[PartitionKey]:
        """Returns the partitions to read: all if they are few, otherwise the assigned ones.

        Assignments of share groups are not exclusive, and a partition that is assigned only to a
        busy member would wait for it.
        """
        topics = self._cluster.metadata.topics
        every = [
            (topic_id, index)
            for topic_id, name in names.items()
            for index in topics[name].partitions
        ]
        return every if len(every) <= self.config.partitions_max else self._assignment

    # Sessions of the leaders, and their callbacks (see `session.ShareSessionOwner`).

    def _route(self) -> None:
        wanted, is_lost = self._partitions.route(self._cluster.metadata)
        for node_id in wanted:
            if node_id not in self._sessions:
                self._sessions[node_id] = ClientShareSession(
                    self._cluster, self, node_id, self.config.max_bytes
                )
        for node_id, session in self._sessions.items():
            session.wanted = frozenset(wanted.get(node_id, ()))
        if is_lost:
            self._spawn("refresh", self._refresh())
        self._pump()
        self._changed.set()

    def _pump(self) -> None:
        if not self._is_closed:
            for session in list(self._sessions.values()):
                session.pump()

    async def _refresh(self) -> None:
        await self._cluster.backoff.wait(self._failures)
        self._failures = min(self._failures + 1, 10)
        await self._cluster.refresh_quietly(self.topics)
        self._tasks.pop("refresh", None)
        self._route()

    def reserve(self, session: ClientShareSession) -> tuple[int, int]:
        waiting = sum(count for count, _ in self._waiting.values())
        is_asked = self._waiting or self._loop.time() - self._asked_at < _PREFETCH_S
        ahead = self.config.prefetch if is_asked else 0
        wanted = ahead + waiting - self._held_records.waiting - self._reserved
        wanted = min(wanted, self.config.held_max - self.held - self._reserved)
        if wanted <= 0 or self._is_closed:
            return 0, 0
        idle = sum(1 for one in self._sessions.values() if one.wanted and not one.is_fetching)
        count = min(self.config.fetch_records, max(1, wanted // max(1, idle)))
        self._reserved += count
        wait_ms = self.config.max_wait_ms
        if self.held and not session.is_prompt:
            wait_ms = min(wait_ms, _ACK_WAIT_MS)
        if not self.config.prefetch:
            now = self._loop.time()
            latest = max((end for _, end in self._waiting.values()), default=now)
            wait_ms = max(0, min(wait_ms, int((latest - now) * 1000)))
        return count, wait_ms

    def has_acks(self, session: ClientShareSession) -> bool:
        return self._partitions.has_acks(session.node_id)

    def take_acks(self, session: ClientShareSession) -> AckChunks:
        return self._partitions.take_acks(session.node_id)

    def fetched(
        self,
        session: ClientShareSession,
        rows: Mapping[PartitionKey, ShareFetchPartitionData],
        lock_ms: int,
        asked: int,
    ) -> None:
        self._reserved -= asked
        self._failing_since, self._failures = None, 0
        if lock_ms > 0:
            self._lock_s = lock_ms / 1000
        for key, row in rows.items():
            where = self._partitions.where(key)
            if where is None:
                continue
            if row.error_code:
                self._partition_failed(where, refusal(row.error_code, row.error_message))
            elif row.acquired_records:
                self._acquired(where, row)
        self._changed.set()

    def _acquired(self, where: TopicPartition, row: ShareFetchPartitionData) -> None:
        records = row.records
        view = records if isinstance(records, memoryview) else memoryview(b"")
        try:
            leases, gaps = read_acquired(
                where, view, row.acquired_records, self._loop.time(), self._lock_s
            )
        except (Refused, PeerError) as error:
            self._fail(error)
            return
        for offset in gaps:
            self._add_ack(where, Ack(offset, AcknowledgementType.GAP))
        self._held_records.add(leases)

    def _partition_failed(self, where: TopicPartition, error: Refused) -> None:
        if error.code in RETRIABLE:
            self._spawn("refresh", self._refresh())
        else:
            self._fail(Refused(error.code, f"{where}: {error.message}"))

    def acked(
        self, key: PartitionKey, acks: list[Ack], code: int, message: str | None, lock_ms: int
    ) -> None:
        outcome = self._partitions.handle_ack_reply(
            key, acks, code, message, lock_ms, self._loop.time()
        )
        self._lose(outcome.lost)
        if outcome.is_stale:
            self._spawn("refresh", self._refresh())
        if outcome.is_renewal_refused:
            self._can_renew = False
        self._changed.set()

    def undelivered(self, chunks: AckChunks) -> None:
        for key, acks in chunks.items():
            self._lose(self._partitions.put_back(key, acks, self._loop.time()))

    def _lose(self, acks: list[Ack]) -> None:
        for ack in acks:
            if ack.lease is not None:
                self._held_records.lose(ack.lease)
                ack.fail(_lost(ack.lease))

    def session_ended(self, session: ClientShareSession, error: Exception, asked: int) -> None:
        self._reserved -= asked
        self._last_error = error
        is_passing = isinstance(error, NETWORK) or (
            isinstance(error, Refused) and (error.code in RETRIABLE or error.code in _SESSION_OVER)
        )
        if not is_passing:
            self._fail(error)
            return
        now = self._loop.time()
        if self._failing_since is None:
            self._failing_since = now
        if (now - self._failing_since) * 1000 > self.config.retry_timeout_ms:
            self._fail(error)
            return
        self._spawn("refresh", self._refresh())

    # Timers.

    async def _watch(self) -> None:
        """Renews leases of records that callers hold, and releases records that no caller takes."""
        while True:
            await asyncio.sleep(max(0.02, min(0.5, self._lock_s / 20)))
            now = self._loop.time()
            for lease in self._held_records.due(now):
                if self._can_be_renewed(lease):
                    lease.is_renewing = True
                    self._add_ack(
                        lease.where,
                        Ack(lease.message.offset, AcknowledgementType.RENEW, NO_OPTIONS, lease),
                    )
            unasked_s = 0.0 if self._waiting else now - self._asked_at
            is_ahead = bool(self.config.prefetch)
            self._release_undelivered(
                self._held_records.remove_stale(now, unasked_s, is_ahead=is_ahead)
            )

    def _release_undelivered(self, leases: list[HeldLease]) -> None:
        """Releases records as if they had never been delivered."""
        for lease in leases:
            self._add_ack(
                lease.where,
                Ack(lease.message.offset, AcknowledgementType.RELEASE, NEVER_DELIVERED, lease),
            )

    def _can_be_renewed(self, lease: HeldLease) -> bool:
        partition = self._partitions.find(lease.where)
        session = None if partition is None else self._sessions.get(partition.node_id)
        return self._can_renew and session is not None and session.can_renew

    # Failures.

    def _removed(self, error: Exception) -> None:
        self._failure, self._is_removed = error, True
        self._changed.set()

    def _fail(self, error: Exception) -> None:
        """The next `receive` raises the error; after that, the consumer tries again."""
        if self._failure is None:
            self._failure = error
        self._failing_since = None
        self._changed.set()

    def _check(self) -> None:
        self._check_open()
        failure = self._failure
        if failure is not None:
            if not self._is_removed:
                self._failure = None
                self._spawn("refresh", self._refresh())
            raise failure

    def _check_open(self) -> None:
        if self._is_closed:
            raise Refused(ErrorCode.INVALID_REQUEST, "the consumer is closed")

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Starts a background task, unless one of that name is running."""
        running = self._tasks.get(name)
        if self._is_closed or (running is not None and not running.done() and name != "name"):
            work.close()
            return
        if running is not None and not running.done():
            running.cancel()
        task = self._tasks[name] = self._loop.create_task(work)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)


def _lost(lease: HeldLease) -> Refused:
    return Refused(
        ErrorCode.INVALID_RECORD_STATE,
        f"{lease.where} offset {lease.message.offset} is no longer held by this consumer: its "
        "lease expired or its connection was lost, so it may be delivered again",
    )
