"""Fetch sessions (KIP-227): what a consumer follows, remembered, so that it need not repeat it.

A full fetch may open a session; later fetches name it and carry only what changed, and replies
carry only partitions with something to say. Requests of a session are counted by its epoch, so a
lost or repeated request is noticed.

The number of sessions is bounded, and so is what they hold together. When all places are taken
the newcomer gets one only if some session has been quiet for long enough; otherwise it is served
without a session, which every client accepts. A node starts to count ids anywhere, so that clients
of its earlier run do not close or continue each other's new sessions. Nobody goes on with, or
closes, the session of another principal: it would tell what that one reads.
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
"""Of all sessions together."""
QUIET_SECONDS = 120.0
EPOCH_MAX = 2**31 - 1

FULL_WITHOUT_SESSION = -1
FULL_NEW_SESSION = 0

TopicKey: TypeAlias = str | TopicId
"""A topic as the request names it: by id from version 13 on."""


@dataclass(slots=True, eq=False)
class Followed:
    """One partition a fetch asks for, and what its consumer was told last."""

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
    """The partitions of one consumer, in the order in which they get their turn."""

    id: int
    by_id: bool
    last_used: float
    owner: str
    """The principal who opened it."""
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
        """It had data this time: others go first next time."""
        key = (followed.topic, followed.index)
        if key in self.partitions:
            self.partitions.move_to_end(key)


class FetchSessions:
    """All sessions of a node, longest unused first."""

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
        """A new session for these partitions, or None when there is no place for it."""
        if not partitions or not self._has_room(0, len(partitions)):
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

    def _has_room(self, held: int, more: int) -> bool:
        return held + more <= SESSION_PARTITIONS_MAX and self._partitions + more <= PARTITIONS_MAX

    def resume(
        self, session_id: int, epoch: int, by_id: bool, now: float, owner: str = ANONYMOUS
    ) -> ConsumerFetchSession:
        """The session for its next request; refuses a stranger or a request out of turn."""
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
        """Takes over what a request changes. Refuses what would be too much: that is its end."""
        before = len(session.partitions)
        new = sum((one.topic, one.index) not in session.partitions for one in wanted)
        if new and not self._has_room(before, new):
            self.close(session.id)
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too many partitions")
        for followed in wanted:
            session.put(followed)
        for topic, index in forgotten:
            session.forget(topic, index)
        self._partitions += len(session.partitions) - before

    def end(self, session_id: int, owner: str) -> None:
        """At the wish of a client, if it is its own."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
