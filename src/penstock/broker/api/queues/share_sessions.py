"""Share sessions (KIP-932): what a member of a share group reads here, remembered.

A session belongs to one member of one group, whichever connections its requests come on: some
clients acknowledge on another one than they fetch on. The first fetch (epoch 0) opens it, later
requests count its epoch up, so that a lost or repeated one is noticed; epoch -1 ends it. When it
ends, or the connection that it was opened on does, what the member holds is let go at once: it will
not come back for it.

Bounds: `group.share.max.share.sessions` sessions, `PARTITIONS_MAX` partitions in each.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId

INITIAL = 0
FINAL = -1
EPOCH_MAX = 2**31 - 1
PARTITIONS_MAX = 20_000

Place: TypeAlias = tuple[TopicId, int]
Name: TypeAlias = tuple[str, str]
"""Group and member."""


class Peer(Protocol):
    """A connection."""

    def when_closed(self, act: Callable[[], None]) -> None: ...


@dataclass(slots=True, eq=False)
class BrokerShareSession:
    group: str
    member: str
    peer: Peer
    """The connection it was opened on, and ends with."""
    ended: "Callable[[BrokerShareSession], None]"
    """Told if the connection is lost before the member says that it goes."""
    epoch: int = 1
    """What the next request must name."""
    partitions: dict[Place, None] = field(default_factory=dict)
    """In the order in which they get their turn."""
    waiting: "asyncio.Future[None] | None" = None
    """Of a fetch that waits for records: done when somebody waits for its reply."""
    waits_on: Peer | None = None
    """The connection of that fetch."""

    def wait(self, peer: Peer) -> None:
        """A fetch waits for records from now on; the one before it no longer does."""
        self.hurry(self.waits_on)
        self.waiting = asyncio.get_running_loop().create_future()
        self.waits_on = peer

    def hurry(self, peer: Peer | None) -> None:
        """Has the fetch that waits on this connection answered: replies leave in order, and another
        one is ready."""
        if peer is self.waits_on and self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    def update(self, wanted: Iterable[Place], forgotten: Iterable[Place]) -> None:
        for place in wanted:
            self.partitions[place] = None
        for place in forgotten:
            self.partitions.pop(place, None)
        if len(self.partitions) > PARTITIONS_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions")

    def served(self, place: Place) -> None:
        """It gave something this time: others go first next time."""
        if place in self.partitions:
            del self.partitions[place]
            self.partitions[place] = None


class ShareSessions:
    """All share sessions of a node."""

    def __init__(self) -> None:
        self._sessions: dict[Name, BrokerShareSession] = {}
        self._peers: dict[int, list[BrokerShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        group: str,
        member: str,
        peer: Peer,
        sessions_max: int,
        ended: Callable[[BrokerShareSession], None],
    ) -> BrokerShareSession:
        """A new session; an earlier one of the same member is over."""
        name = (group, member)
        if name not in self._sessions and len(self._sessions) >= sessions_max:
            raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[name] = BrokerShareSession(group, member, peer, ended)
        self._belong(session)
        return session

    def find(self, group: str, member: str) -> BrokerShareSession:
        session = self._sessions.get((group, member))
        if session is None:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def resume(self, group: str, member: str, epoch: int) -> BrokerShareSession:
        """The session for its next request; refuses a stranger or a request out of turn."""
        session = self.find(group, member)
        if epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = session.epoch % EPOCH_MAX + 1
        return session

    def close(self, session: BrokerShareSession) -> None:
        """Ends a session because its member says so."""
        name = (session.group, session.member)
        if self._sessions.get(name) is session:
            del self._sessions[name]

    def is_gone(self, session: BrokerShareSession) -> bool:
        """Whether it has ended and its member has begun no other."""
        return (session.group, session.member) not in self._sessions

    def _belong(self, session: BrokerShareSession) -> None:
        peer_id = id(session.peer)
        of_peer = self._peers.get(peer_id)
        if of_peer is None:
            of_peer = self._peers[peer_id] = []
            session.peer.when_closed(lambda: self._lost(peer_id))
        of_peer[:] = [one for one in of_peer if self._is_open(one)]
        of_peer.append(session)

    def _is_open(self, session: BrokerShareSession) -> bool:
        return self._sessions.get((session.group, session.member)) is session

    def _lost(self, peer_id: int) -> None:
        for session in self._peers.pop(peer_id, []):
            if self._is_open(session):
                self.close(session)
                session.ended(session)
