"""Share sessions (KIP-932): the partitions that a member of a share group reads on this node.

A session belongs to one member of one group, on any connection: some clients fetch and acknowledge
on different ones. The first fetch (epoch 0) opens it. Later requests increment its epoch, so that a
lost or repeated one is detected; epoch -1 ends it. When the session ends, or the connection that
opened it is lost, all records of the member are released at once.

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
    """Connection of a client."""

    def when_closed(self, act: Callable[[], None]) -> None: ...


@dataclass(slots=True, eq=False)
class BrokerShareSession:
    """Session of one member."""

    group: str
    member: str
    peer: Peer
    """Connection that opened the session; the session ends with it."""
    ended: "Callable[[BrokerShareSession], None]"
    """Called if the connection is lost before the member closes the session."""
    epoch: int = 1
    """Expected epoch of the next request."""
    partitions: dict[Place, None] = field(default_factory=dict)
    """Partitions, the next to serve first."""
    waiting: "asyncio.Future[None] | None" = None
    """Set while a fetch waits for records; done when a later request needs its reply."""
    waits_on: Peer | None = None
    """Connection of that fetch."""

    def wait(self, peer: Peer) -> None:
        """Registers a fetch that waits for records; ends the wait of an earlier one."""
        self.end_wait(self.waits_on)
        self.waiting = asyncio.get_running_loop().create_future()
        self.waits_on = peer

    def end_wait(self, peer: Peer | None) -> None:
        """Ends the wait of a fetch on this connection: replies are sent in order, and a later one
        is ready."""
        if peer is self.waits_on and self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    def update(self, wanted: Iterable[Place], forgotten: Iterable[Place]) -> None:
        for place in wanted:
            self.partitions[place] = None
        for place in forgotten:
            self.partitions.pop(place, None)
        if len(self.partitions) > PARTITIONS_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"too many partitions in the share session: at most {PARTITIONS_MAX}",
            )

    def served(self, place: Place) -> None:
        """Moves a partition that had records to the end: others come first next time."""
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
        """Opens a session, which ends an earlier one of the same member."""
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
        """Returns the session for its next request; refuses an unknown member or a wrong epoch."""
        session = self.find(group, member)
        if epoch != session.epoch:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = session.epoch % EPOCH_MAX + 1
        return session

    def close(self, session: BrokerShareSession) -> None:
        """Ends a session on request of its member."""
        name = (session.group, session.member)
        if self._sessions.get(name) is session:
            del self._sessions[name]

    def is_gone(self, session: BrokerShareSession) -> bool:
        """True if the session has ended and its member has no new one."""
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
