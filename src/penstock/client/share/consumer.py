"""A member of a share group: receives leased records and says what became of them (KIP-932).

Works with Penstock and with Kafka 4.2 and newer (4.1 without renewal). Owns what is held: records
received and not handed out yet (`prefetch` of them, more while somebody waits for more), records
that were handed out and have no verdict yet, verdicts on their way. Joining is `ShareMember`'s,
talking to one node `ClientShareSession`'s.

Rules: all partitions are read, if they are not too many; else those assigned. A record that was
handed out is renewed at half its lease for as long as it was asked for; a record that nobody took
by then is given back, uncounted by Penstock. Verdicts follow a partition to its new leader. Closing
gives back what is held. At most `held_max` records are held at a time; beyond it nothing is
fetched.
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
    NOTHING,
    UNSEEN,
    Ack,
    AcknowledgementType,
    VerdictNote,
)
from penstock.client.share.held_records import HeldRecords
from penstock.client.share.leases import HeldLease, read_acquired
from penstock.client.share.member import Assigned, ShareMember
from penstock.client.share.partitions import Groups, Place, SharePartitions
from penstock.client.share.session import NETWORK, ClientShareSession
from penstock.wire.messages.share import ShareFetchPartitionData

_SESSION_OVER = (
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
_GRACE_S = 5.0
"""How much longer than asked `receive` waits for a first answer."""
_BUSY_WAIT_MS = 20
"""How long fetches wait, while there are verdicts to come, where these would wait behind them."""
_AHEAD_S = 1.0
"""How long after somebody asked records are fetched ahead."""


@dataclass(frozen=True, slots=True)
class ShareConfig:
    prefetch: int = 0
    """Records fetched before anybody asks."""
    fetch_records: int = 500
    """Records asked for at a time."""
    held_max: int = 10_000
    """Records without a verdict."""
    max_wait_ms: int = 500
    max_bytes: int = 16 << 20
    renew_for_s: float = 900.0
    """How long a record that was handed out is renewed without a verdict."""
    retry_timeout_ms: int = 60_000
    """How long nodes may be out of reach before `receive` says so."""
    rack: str | None = None
    partitions_max: int = 64
    """Up to so many partitions are read whoever they are assigned to."""


class ShareConsumer:
    """`async with ShareConsumer(cluster, "workers", ["jobs"]) as consumer: ...`."""

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
            cluster, group, topics, self._assigned, self._expelled, self.config.rack
        )
        self._assignment: Assigned = []
        self._partitions = SharePartitions()
        self._sessions: dict[int, ClientShareSession] = {}
        self._holdings = HeldRecords()
        self._unanswered: set[asyncio.Future[None]] = set()
        self._reserved = 0
        """Records that fetches in flight may bring."""
        self._demand: dict[object, tuple[int, float]] = {}
        """Those who wait: how many records, until when."""
        self._asked_at = self._loop.time()
        """When somebody last waited for records."""
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._is_expelled = False
        """The group does not have us: the failure is for good."""
        self._failing_since: float | None = None
        self._failures = 0
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
        """Joins the group. Raises Refused for a topic that is not there."""
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
        """Records that are leased to this member, as far as it knows."""
        return len(self._holdings)

    # Receiving.

    async def receive(self, records_max: int, timeout_ms: int) -> list[HeldLease]:
        """Up to so many records, as soon as there are any; none when time is up."""
        assert records_max > 0
        self._check()
        end = self._loop.time() + timeout_ms / 1000
        before = {node_id: session.replies for node_id, session in self._sessions.items()}
        me = object()
        self._demand[me] = (records_max, end)
        try:
            while True:
                self._check()
                now = self._loop.time()
                taken = self._holdings.take(records_max, now, self.config.renew_for_s)
                if taken:
                    return taken
                self._pump()
                if now >= end and (now >= end + _GRACE_S or self._has_asked(before)):
                    return []
                self._news.clear()
                limit = end if now < end else end + _GRACE_S
                try:
                    async with asyncio.timeout_at(limit):
                        await self._news.wait()
                except TimeoutError:
                    continue
        finally:
            del self._demand[me]
            self._asked_at = self._loop.time()
            self._pump()

    def _has_asked(self, before: Mapping[int, int]) -> bool:
        """Whether every node has answered a fetch since, or sees that it has nothing yet."""
        sessions = self._sessions
        return bool(sessions) and all(
            session.replies > before.get(node_id, 0) or session.is_waiting or not session.wanted
            for node_id, session in sessions.items()
        )

    # Verdicts.

    def settle(
        self,
        lease: HeldLease,
        verdict: AcknowledgementType,
        note: VerdictNote = NOTHING,
        *,
        is_awaited: bool = True,
    ) -> "asyncio.Future[None]":
        """Gives a verdict; done when the broker has it. Raises Refused for a second one.

        One that nobody awaits may travel with a fetch, and be answered with it.
        """
        if lease.is_settled:
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE,
                f"{lease.where} offset {lease.message.offset} was settled before",
            )
        if lease.is_lost:
            raise _lost(lease)
        self._check_open()
        if verdict is not AcknowledgementType.RENEW:
            self._holdings.settle(lease)
        done: asyncio.Future[None] = self._loop.create_future()
        self._unanswered.add(done)
        done.add_done_callback(self._answered)
        ack = Ack(lease.message.offset, verdict, note, lease, done, is_awaited)
        self._say(lease.where, ack)
        return done

    def _answered(self, done: "asyncio.Future[None]") -> None:
        self._unanswered.discard(done)
        if not done.cancelled():
            done.exception()  # Nobody has to wait for it; whoever does is told.

    def _say(self, where: TopicPartition, ack: Ack) -> None:
        partition = self._partitions.find(where)
        if partition is None:
            ack.fail(Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} is gone"))
            return
        partition.acks.add(ack)
        session = self._sessions.get(partition.node_id)
        # From the loop: verdicts that are given together travel together.
        self._loop.call_soon(session.pump if session is not None else self._route)

    async def flush(self) -> None:
        """Waits until every verdict has its answer, good or bad."""
        while self._unanswered:
            await asyncio.wait(self._unanswered)

    async def close(self) -> None:
        """Gives back what is held, says what is left to say, and leaves the group."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        # Fetches first: one that waits would get what is given back.
        await asyncio.gather(*(session.end_fetch() for session in self._sessions.values()))
        self._give_back(self._holdings.remove_waiting())
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        await self._member.leave()
        gone = Refused(ErrorCode.INVALID_RECORD_STATE, "the consumer was closed")
        for ack in self._partitions.drain():
            ack.fail(gone)
        self._holdings.clear()
        self._news.set()

    # What the member tells.

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
        self._partitions.assign(self._places(names), names)
        self._route()

    def _places(self, names: Mapping[TopicId, str]) -> list[Place]:
        """What to read: all partitions where they are few, else what was assigned.

        Assignments of share groups exclude nobody, and a partition that only a busy or idle member
        reads would wait for it.
        """
        topics = self._cluster.metadata.topics
        every = [
            (topic_id, index)
            for topic_id, name in names.items()
            for index in topics[name].partitions
        ]
        return every if len(every) <= self.config.partitions_max else self._assignment

    # Sessions: who leads what, and what they ask and tell (see `share_session.Owner`).

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
        self._news.set()

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
        waiting = sum(count for count, _ in self._demand.values())
        is_asked = self._demand or self._loop.time() - self._asked_at < _AHEAD_S
        ahead = self.config.prefetch if is_asked else 0
        room = ahead + waiting - self._holdings.waiting - self._reserved
        room = min(room, self.config.held_max - self.held - self._reserved)
        if room <= 0 or self._is_closed:
            return 0, 0
        idle = sum(1 for one in self._sessions.values() if one.wanted and not one.is_fetching)
        count = min(self.config.fetch_records, max(1, room // max(1, idle)))
        self._reserved += count
        wait_ms = self.config.max_wait_ms
        if self.held and not session.is_prompt:
            wait_ms = min(wait_ms, _BUSY_WAIT_MS)
        if not self.config.prefetch:
            now = self._loop.time()
            latest = max((end for _, end in self._demand.values()), default=now)
            wait_ms = max(0, min(wait_ms, int((latest - now) * 1000)))
        return count, wait_ms

    def has_acks(self, session: ClientShareSession) -> bool:
        return self._partitions.has_acks(session.node_id)

    def take_acks(self, session: ClientShareSession) -> Groups:
        return self._partitions.take_acks(session.node_id)

    def fetched(
        self,
        session: ClientShareSession,
        rows: Mapping[Place, ShareFetchPartitionData],
        lock_ms: int,
        asked: int,
    ) -> None:
        self._reserved -= asked
        self._failing_since, self._failures = None, 0
        if lock_ms > 0:
            self._lock_s = lock_ms / 1000
        for place, row in rows.items():
            where = self._partitions.where(place)
            if where is None:
                continue
            if row.error_code:
                self._partition_failed(where, refusal(row.error_code, row.error_message))
            elif row.acquired_records:
                self._acquired(where, row)
        self._news.set()

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
            self._say(where, Ack(offset, AcknowledgementType.GAP))
        self._holdings.add(leases)

    def _partition_failed(self, where: TopicPartition, error: Refused) -> None:
        if error.code in RETRIABLE:
            self._spawn("refresh", self._refresh())
        else:
            self._fail(Refused(error.code, f"{where}: {error.message}"))

    def acked(
        self, place: Place, acks: list[Ack], code: int, message: str | None, lock_ms: int
    ) -> None:
        heard = self._partitions.heard(place, acks, code, message, lock_ms, self._loop.time())
        self._lose(heard.lost)
        if heard.is_stale:
            self._spawn("refresh", self._refresh())
        if heard.is_renewal_refused:
            self._can_renew = False
        self._news.set()

    def undelivered(self, groups: Groups) -> None:
        for place, acks in groups.items():
            self._lose(self._partitions.put_back(place, acks, self._loop.time()))

    def _lose(self, acks: list[Ack]) -> None:
        for ack in acks:
            if ack.lease is not None:
                self._holdings.lose(ack.lease)
                ack.fail(_lost(ack.lease))

    def session_ended(self, session: ClientShareSession, error: Exception, asked: int) -> None:
        self._reserved -= asked
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

    # Time.

    async def _watch(self) -> None:
        """Renews what is worked on, gives back what nobody takes."""
        while True:
            await asyncio.sleep(max(0.02, min(0.5, self._lock_s / 20)))
            now = self._loop.time()
            for lease in self._holdings.due(now):
                if self._can_be_renewed(lease):
                    lease.is_renewing = True
                    self._say(
                        lease.where,
                        Ack(lease.message.offset, AcknowledgementType.RENEW, NOTHING, lease),
                    )
            unasked_s = 0.0 if self._demand else now - self._asked_at
            is_ahead = bool(self.config.prefetch)
            self._give_back(self._holdings.remove_stale(now, unasked_s, is_ahead=is_ahead))

    def _give_back(self, leases: list[HeldLease]) -> None:
        """As if they had never been delivered."""
        for lease in leases:
            self._say(
                lease.where, Ack(lease.message.offset, AcknowledgementType.RELEASE, UNSEEN, lease)
            )

    def _can_be_renewed(self, lease: HeldLease) -> bool:
        partition = self._partitions.find(lease.where)
        session = None if partition is None else self._sessions.get(partition.node_id)
        return self._can_renew and session is not None and session.can_renew

    # Failing.

    def _expelled(self, error: Exception) -> None:
        self._failure, self._is_expelled = error, True
        self._news.set()

    def _fail(self, error: Exception) -> None:
        """Whoever receives next is told; after that it is tried again."""
        if self._failure is None:
            self._failure = error
        self._failing_since = None
        self._news.set()

    def _check(self) -> None:
        self._check_open()
        failure = self._failure
        if failure is not None:
            if not self._is_expelled:
                self._failure = None
                self._spawn("refresh", self._refresh())
            raise failure

    def _check_open(self) -> None:
        if self._is_closed:
            raise Refused(ErrorCode.INVALID_REQUEST, "the consumer is closed")

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs background work, unless work of that name runs already."""
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
        "lease ran out or its connection was lost, so it may be delivered again",
    )
