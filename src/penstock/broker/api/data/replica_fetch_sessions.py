"""Fetch sessions of followers: the partitions each one replicates, and news for it.

A follower may replicate thousands of partitions, most of them quiet, and its fetch is parked most
of the time. So its cursors stay registered with their partitions between requests: an append puts a
cursor into `ready`, a new high watermark puts it into `stale`, and a reply looks only at these.

Invariants:
- a cursor that was answered with records, an error or a diverging epoch rests until the follower
  names it again: the follower must write the records to disk first. A cursor that is not named in
  two requests becomes active again at its old offset;
- a follower has one session. A new one, or the end of the leader role, detaches the partitions;
- at most one request of a session is parked: the next one answers it first.

Bounds: one session for each node, `SESSIONS_MAX` in all, `SESSION_PARTITIONS_MAX` cursors each.
`replica_fetch` builds the replies. KIP-227, KIP-1166 for the follower's high watermark.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.data.fetch_sessions import (
    EPOCH_MAX,
    SESSION_PARTITIONS_MAX,
    Followed,
    TopicKey,
)
from penstock.cluster.replication.partition import Partition

SESSIONS_MAX = 1000
UNASKED = 2**63 - 1
"""High watermark of a follower that does not send the one it knows."""
REST_REQUESTS = 2


@dataclass(slots=True, eq=False)
class Cursor(Followed):
    """Partition that a follower replicates, from the end of its durable log."""

    name: str = ""
    code: ErrorCode = ErrorCode.NONE
    """Error of the partition; NONE if it can be read."""
    diverging: tuple[int, int] | None = None
    """Epoch and offset where the follower's log diverges."""
    partition: Partition | None = None
    """Partition with which the cursor is registered."""
    session: "ReplicaSession | None" = None
    rests_since: int = -1
    """Number of the request since which the cursor rests; -1: active."""

    def attach(self, partition: Partition) -> None:
        self.partition = partition
        partition.watch_appends(self.appended)
        if self.high_watermark_sent != UNASKED:
            partition.watch(self.progressed)

    def take_up(self) -> None:
        """Activates the cursor after a request named it."""
        session = self.session
        assert session is not None
        if self.has_news():
            session.ready[self] = None
        partition = self.partition
        if partition is not None and self.high_watermark_sent < partition.high_watermark:
            session.stale[self] = None

    def detach(self) -> None:
        partition, self.partition = self.partition, None
        if partition is not None:
            partition.unwatch_appends(self.appended)
            partition.unwatch(self.progressed)

    def appended(self) -> None:
        """Called after an append, or when the partition's role has changed."""
        partition, session = self.partition, self.session
        if partition is None or session is None:
            return
        if partition.leader_state is None or partition.leader_epoch != self.leader_epoch:
            self.detach()  # The partition may be removed, so no reference to it is kept.
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.leader_state.is_unheard(session.node_id):
            session.unheard[self] = None
        if self.rests_since < 0 and self not in session.ready and self.has_news():
            session.ready[self] = None
            session.wake()

    def has_news(self) -> bool:
        """True if there is something to send at once."""
        partition = self.partition
        if partition is None or self.diverging is not None:
            return True
        log = partition.log
        return (
            self.offset < log.end_offset
            or log.start_offset > self.start_offset_sent
            or log.offline is not None
        )

    def is_behind(self) -> bool:
        """True if there are records to send."""
        return self.partition is not None and self.offset < self.partition.log.end_offset

    def progressed(self) -> None:
        """Called when the high watermark has advanced beyond the one that was sent."""
        session = self.session
        if session is not None and self.rests_since < 0 and self not in session.stale:
            session.stale[self] = None
            session.wake_later()


def ignore() -> None:
    pass


class ReplicaSession:
    """Session of one follower."""

    __slots__ = (
        "_resting",
        "conclude",
        "cursors",
        "epoch",
        "id",
        "node_id",
        "ready",
        "requests",
        "stale",
        "unheard",
        "wake",
        "wake_later",
    )

    def __init__(self, session_id: int, node_id: int) -> None:
        self.id = session_id
        self.node_id = node_id
        self.epoch = 1
        self.requests = 0
        self.cursors: dict[tuple[TopicKey, int], Cursor] = {}
        self.ready: dict[Cursor, None] = {}
        """Cursors with records, an error or a new start offset to send."""
        self.stale: dict[Cursor, None] = {}
        """Cursors with a newer high watermark than the follower knows."""
        self.unheard: dict[Cursor, None] = {}
        """Cursors whose follower left the ISR: their offsets count again with the next request."""
        self._resting: dict[Cursor, None] = {}
        # Callbacks of the parked request; no-ops while there is none.
        self.wake: Callable[[], None] = ignore
        self.wake_later: Callable[[], None] = ignore
        self.conclude: Callable[[], None] = ignore

    def begin(self, forgotten: Iterable[tuple[TopicKey, int]]) -> None:
        """Begins the next request: answers the previous one and drops forgotten partitions."""
        self.conclude()
        self.requests += 1
        for topic, index in forgotten:
            cursor = self.cursors.pop((topic, index), None)
            if cursor is not None:
                self._drop(cursor)
        overdue = [c for c in self._resting if self.requests - c.rests_since > REST_REQUESTS]
        for cursor in overdue:
            self._resume(cursor)
            self.ready[cursor] = None

    def put(self, cursor: Cursor) -> None:
        """Sets the offset of a partition that the request names; `take_up` activates it."""
        key = (cursor.topic, cursor.index)
        known = self.cursors.get(key)
        if known is not None:
            self._drop(known)
        elif len(self.cursors) >= SESSION_PARTITIONS_MAX:
            raise Refused(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session has too many partitions"
            )
        self.cursors[key] = cursor
        cursor.session = self

    def rest(self, cursor: Cursor) -> None:
        """Rests a cursor until the follower has handled the reply."""
        cursor.rests_since = self.requests
        self._resting[cursor] = None
        self.ready.pop(cursor, None)
        self.stale.pop(cursor, None)

    def retry(self, cursor: Cursor) -> None:
        """Activates a cursor whose reply could not be built."""
        if cursor.session is self:
            self._resume(cursor)
            self.ready[cursor] = None
            self.wake()

    def hold_back(self, cursor: Cursor) -> None:
        """Rests a cursor with something to send that a throttle delays, until `retry`."""
        del self.ready[cursor]
        cursor.rests_since = self.requests

    def _resume(self, cursor: Cursor) -> None:
        cursor.rests_since = -1
        self._resting.pop(cursor, None)

    def _drop(self, cursor: Cursor) -> None:
        cursor.detach()
        cursor.session = None
        self.ready.pop(cursor, None)
        self.stale.pop(cursor, None)
        self.unheard.pop(cursor, None)
        self._resting.pop(cursor, None)

    def served(self, followed: Followed) -> None:
        """No-op: served cursors rest, and come last when they are active again."""

    def unpark(self) -> None:
        self.wake = self.wake_later = self.conclude = ignore

    def close(self) -> None:
        self.conclude()
        for cursor in self.cursors.values():
            self._drop(cursor)
        self.cursors.clear()


class ReplicaSessions:
    """Sessions of all followers, one for each node."""

    def __init__(self, *, first_id: int = 1) -> None:
        self._sessions: dict[int, ReplicaSession] = {}
        self._next_id = first_id

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, node_id: int) -> ReplicaSession:
        """Opens a session, which replaces the node's previous one."""
        self.close(node_id)
        if len(self._sessions) >= SESSIONS_MAX:
            self.close(next(iter(self._sessions)))
        session = ReplicaSession(self._next_id, node_id)
        self._next_id = self._next_id % EPOCH_MAX + 1
        self._sessions[node_id] = session
        return session

    def resume(self, node_id: int, session_id: int, epoch: int) -> ReplicaSession:
        session = self._sessions.get(node_id)
        if session is None or session.id != session_id:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = session.epoch % EPOCH_MAX + 1
        return session

    def close(self, node_id: int) -> None:
        session = self._sessions.pop(node_id, None)
        if session is not None:
            session.close()
