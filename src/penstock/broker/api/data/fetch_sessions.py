"""Fetch sessions of consumers (KIP-227): partitions that requests need not repeat.

A full fetch may open a session. Later fetches name it and send only changes, and replies have only
partitions with data or news. The session's epoch counts requests, so that a lost or repeated
request is detected.

The number of sessions and of their partitions is bounded. At the limit, a new session replaces one
that has been idle for `QUIET_SECONDS`; if there is none, the client is served without a session,
which every client accepts. Ids start at a random number, so that clients of the node's earlier run
do not close or continue each other's new sessions. A principal cannot continue or close the session
of another one, which would reveal what that one reads.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.security.acl_types import ANONYMOUS

SESSIONS_MAX = 1000
SESSION_PARTITIONS_MAX = 20_000
PARTITIONS_MAX = 200_000
"""Limits the partitions of all sessions."""
QUIET_SECONDS = 120.0
EPOCH_MAX = 2**31 - 1

FULL_WITHOUT_SESSION = -1
FULL_NEW_SESSION = 0

TopicKey: TypeAlias = str | TopicId
"""Topic as in the request: by id from version 13 on."""


@dataclass(slots=True, eq=False)
class Followed:
    """Partition of a fetch, with the offsets that its consumer was sent last."""

    topic: TopicKey
    index: int
    offset: int
    bytes_max: int
    leader_epoch: int
    last_fetched_epoch: int
    high_watermark_sent: int = -2
    start_offset_sent: int = -2


@dataclass(slots=True, eq=False)
class ConsumerFetchSession:
    """Partitions of one consumer, the next to serve first."""

    id: int
    by_id: bool
    last_used: float
    owner: str
    """Principal that opened the session."""
    epoch: int = 1
    partitions: OrderedDict[tuple[TopicKey, int], Followed] = field(default_factory=OrderedDict)

    def put(self, wanted: Followed) -> None:
        key = (wanted.topic, wanted.index)
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = wanted
            return
        known.offset = wanted.offset
        known.bytes_max = wanted.bytes_max
        known.leader_epoch = wanted.leader_epoch
        known.last_fetched_epoch = wanted.last_fetched_epoch

    def forget(self, topic: TopicKey, index: int) -> None:
        self.partitions.pop((topic, index), None)

    def served(self, followed: Followed) -> None:
        """Moves a partition that had data to the end: others come first next time."""
        key = (followed.topic, followed.index)
        if key in self.partitions:
            self.partitions.move_to_end(key)


class FetchSessions:
    """All sessions of a node, least recently used first."""

    def __init__(self, sessions_max: int = SESSIONS_MAX, *, first_id: int = 1) -> None:
        assert 1 <= first_id <= EPOCH_MAX
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[int, ConsumerFetchSession] = OrderedDict()
        self._partitions = 0
        self._next_id = first_id

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, partitions: list[Followed], by_id: bool, now: float, owner: str = ANONYMOUS
    ) -> ConsumerFetchSession | None:
        """Opens a session for these partitions; None if the limit is reached."""
        if not partitions or not self._has_capacity(0, len(partitions)):
            return None
        if len(self._sessions) >= self._sessions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < QUIET_SECONDS:
                return None
            self.close(oldest.id)
        while self._next_id in self._sessions:
            self._next_id = self._next_id % EPOCH_MAX + 1
        session = ConsumerFetchSession(self._next_id, by_id, now, owner)
        self._next_id = self._next_id % EPOCH_MAX + 1
        self._sessions[session.id] = session
        self.update(session, partitions, [])
        return session

    def _has_capacity(self, held: int, more: int) -> bool:
        return held + more <= SESSION_PARTITIONS_MAX and self._partitions + more <= PARTITIONS_MAX

    def resume(
        self, session_id: int, epoch: int, by_id: bool, now: float, owner: str = ANONYMOUS
    ) -> ConsumerFetchSession:
        """Returns the session for its next request; refuses another owner or a wrong epoch."""
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != session.by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch % EPOCH_MAX + 1
        session.last_used = now
        self._sessions.move_to_end(session_id)
        return session

    def update(
        self,
        session: ConsumerFetchSession,
        wanted: list[Followed],
        forgotten: list[tuple[TopicKey, int]],
    ) -> None:
        """Applies the changes of a request. Closes the session and refuses if it has too many."""
        before = len(session.partitions)
        new = sum((one.topic, one.index) not in session.partitions for one in wanted)
        if new and not self._has_capacity(before, new):
            self.close(session.id)
            raise Refused(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the session has too many partitions"
            )
        for followed in wanted:
            session.put(followed)
        for topic, index in forgotten:
            session.forget(topic, index)
        self._partitions += len(session.partitions) - before

    def end(self, session_id: int, owner: str) -> None:
        """Closes a session on request of its owner."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
