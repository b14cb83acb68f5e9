"""Fetch sessions of followers: what each copies from here, and what it has not been told yet.

A follower may copy thousands of partitions, most of them quiet, and its fetch is parked most of
the time. So its cursors stay registered with their partitions between its requests: an append
puts one into `ready`, a new high watermark into `stale`, and an answer looks at these alone.

Invariants:
- a cursor that was answered with records, an error or a diverging epoch rests until the follower
  names it again: it has no use for more before that is on its disk. One that is not named for two
  requests is taken up again from where it was;
- a follower has one session. A new one, or the end of a role, lets go of the partitions;
- at most one request of a session is parked: the next one has it answered first.

Bounds: one session for each node, `SESSIONS_MAX` in all, `SESSION_PARTITIONS_MAX` cursors each.
Leaves to others: answering (`replica_fetch`). KIP-227, KIP-1166 for the follower's high watermark.
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
"""The high watermark of a follower that does not say which one it knows."""
REST_REQUESTS = 2


@dataclass(slots=True, eq=False)
class Cursor(Followed):
    """One partition that a follower copies, from the offset where its disk ends."""

    name: str = ""
    code: ErrorCode = ErrorCode.NONE
    """Why it cannot be answered from a log."""
    diverging: tuple[int, int] | None = None
    """Where the follower's log departs from ours."""
    partition: Partition | None = None
    """Where it is registered."""
    session: "ReplicaSession | None" = None
    rests_since: int = -1
    """The request that was answered with what the follower must deal with first."""

    def attach(self, partition: Partition) -> None:
        self.partition = partition
        partition.watch_appends(self.appended)
        if self.high_watermark_sent != UNASKED:
            partition.watch(self.progressed)

    def take_up(self) -> None:
        """It was named, and is to be answered when there is something to say."""
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
        """The log has more, or the partition's role has changed."""
        partition, session = self.partition, self.session
        if partition is None or session is None:
            return
        if partition.leader_state is None or partition.leader_epoch != self.leader_epoch:
            self.detach()  # The partition may be gone for good: nothing holds on to it.
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.leader_state.is_unheard(session.node_id):
            session.unheard[self] = None
        if self.rests_since < 0 and self not in session.ready and self.has_news():
            session.ready[self] = None
            session.wake()

    def has_news(self) -> bool:
        """Whether there is something to answer at once."""
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
        """Whether there are records for it."""
        return self.partition is not None and self.offset < self.partition.log.end_offset

    def progressed(self) -> None:
        """More is committed than the follower was told."""
        session = self.session
        if session is not None and self.rests_since < 0 and self not in session.stale:
            session.stale[self] = None
            session.wake_later()


def nobody() -> None:
    pass


class ReplicaSession:
    """What one follower copies."""

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
        """Cursors that have something to say: records, an error, a new start offset."""
        self.stale: dict[Cursor, None] = {}
        """Cursors whose follower knows an older high watermark."""
        self.unheard: dict[Cursor, None] = {}
        """Cursors whose follower left the ISR: what they say counts anew with the next request."""
        self._resting: dict[Cursor, None] = {}
        # What the parked request does; nothing while there is none.
        self.wake: Callable[[], None] = nobody
        self.wake_later: Callable[[], None] = nobody
        self.conclude: Callable[[], None] = nobody

    def begin(self, forgotten: Iterable[tuple[TopicKey, int]]) -> None:
        """The next request: the one before is answered, and what it leaves out is forgotten."""
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
        """The follower names a partition: it is asked for from there, once `take_up` says so."""
        key = (cursor.topic, cursor.index)
        known = self.cursors.get(key)
        if known is not None:
            self._drop(known)
        elif len(self.cursors) >= SESSION_PARTITIONS_MAX:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too many partitions")
        self.cursors[key] = cursor
        cursor.session = self

    def rest(self, cursor: Cursor) -> None:
        """It was answered with something that keeps its follower busy."""
        cursor.rests_since = self.requests
        self._resting[cursor] = None
        self.ready.pop(cursor, None)
        self.stale.pop(cursor, None)

    def retry(self, cursor: Cursor) -> None:
        """Its answer could not be made this time."""
        if cursor.session is self:
            self._resume(cursor)
            self.ready[cursor] = None
            self.wake()

    def hold_back(self, cursor: Cursor) -> None:
        """It has something to say, but not now; `retry` when it may."""
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
        """Nothing to do: who was served rests, and is last in line when it is back."""

    def unpark(self) -> None:
        self.wake = self.wake_later = self.conclude = nobody

    def close(self) -> None:
        self.conclude()
        for cursor in self.cursors.values():
            self._drop(cursor)
        self.cursors.clear()


class ReplicaSessions:
    """The sessions of all followers, one for each node."""

    def __init__(self, *, first_id: int = 1) -> None:
        self._sessions: dict[int, ReplicaSession] = {}
        self._next_id = first_id

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, node_id: int) -> ReplicaSession:
        """A new session, in the place of the node's last one."""
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
