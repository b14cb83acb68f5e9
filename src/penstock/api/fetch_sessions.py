"""Fetch sessions (KIP-227): what a consumer follows, remembered, so that it need not repeat it.

A full fetch may open a session; later fetches name it and carry only what changed, and replies
carry only partitions with something to say. Requests of a session are counted by its epoch, so a
lost or repeated request is noticed.

The number of sessions is bounded. When all places are taken the newcomer gets one only if some
session has been quiet for long enough; otherwise it is served without a session, which every
client accepts.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId

SESSIONS_MAX = 1000
SESSION_PARTITIONS_MAX = 20_000
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
class FetchSession:
    """The partitions of one consumer, in the order in which they get their turn."""

    id: int
    by_id: bool
    last_used: float
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
        self.partitions.move_to_end((followed.topic, followed.index))


class FetchSessions:
    """All sessions of a node, longest unused first."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, partitions: list[Followed], by_id: bool, now: float) -> FetchSession | None:
        """A new session for these partitions, or None when there is no place for it."""
        if not partitions or len(partitions) > SESSION_PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._sessions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < QUIET_SECONDS:
                return None
            del self._sessions[oldest.id]
        session = FetchSession(self._next_id, by_id, now)
        self._next_id = self._next_id % EPOCH_MAX + 1
        for followed in partitions:
            session.put(followed)
        self._sessions[session.id] = session
        return session

    def resume(self, session_id: int, epoch: int, by_id: bool, now: float) -> FetchSession:
        """The session for its next request; refuses a stranger or a request out of turn."""
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != session.by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch % EPOCH_MAX + 1
        session.last_used = now
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)
