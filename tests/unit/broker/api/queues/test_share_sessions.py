"""Share sessions: one for each member, counted by epochs, ended by it or with its connection."""

from collections.abc import Callable

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.broker.api.queues.share_sessions import (
    EPOCH_MAX,
    PARTITIONS_MAX,
    BrokerShareSession,
    ShareSessions,
)

T = TopicId(b"t" * 16)


class Peer:
    def __init__(self) -> None:
        self.closers: list[Callable[[], None]] = []

    def when_closed(self, act: Callable[[], None]) -> None:
        self.closers.append(act)

    def lose(self) -> None:
        for act in self.closers:
            act()


class World:
    def __init__(self, sessions_max: int = 10) -> None:
        self.sessions = ShareSessions()
        self.sessions_max = sessions_max
        self.ended: list[BrokerShareSession] = []

    def open(self, member: str = "m", peer: Peer | None = None) -> BrokerShareSession:
        peer = peer or Peer()
        return self.sessions.open("g", member, peer, self.sessions_max, self.ended.append)


def refused(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(Refused) as found:
        act()
    return found.value.code


def test_session_requests_have_consecutive_epochs() -> None:
    world, peer = World(), Peer()
    session = world.open(peer=peer)
    assert world.sessions.resume("g", "m", 1) is session
    assert world.sessions.resume("g", "m", 2) is session
    for epoch in (2, 4):
        code = refused(lambda: world.sessions.resume("g", "m", epoch))  # noqa: B023
        assert code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = EPOCH_MAX
    world.sessions.resume("g", "m", EPOCH_MAX)
    assert session.epoch == 1


def test_session_belongs_to_its_group_and_member() -> None:
    world = World()
    world.open()
    for group, member in (("h", "m"), ("g", "n")):
        code = refused(lambda: world.sessions.find(group, member))  # noqa: B023
        assert code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_new_session_replaces_the_old_one() -> None:
    world, old, new = World(), Peer(), Peer()
    world.open(peer=old)
    second = world.open(peer=new)
    assert len(world.sessions) == 1
    old.lose()
    assert world.ended == []
    assert world.sessions.find("g", "m") is second


def test_lost_connection_ends_all_its_sessions() -> None:
    world, peer = World(), Peer()
    first, second = world.open("a", peer), world.open("b", peer)
    third = world.open("c", peer)
    world.sessions.close(third)
    world.open("other")
    peer.lose()
    assert world.ended == [first, second]
    assert len(world.sessions) == 1
    assert len(peer.closers) == 1


def test_number_of_sessions_is_limited() -> None:
    world = World(sessions_max=2)
    first = world.open("a")
    world.open("b")
    assert refused(lambda: world.open("c")) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    world.open("a")
    world.sessions.close(first)
    assert len(world.sessions) == 2


def test_partitions_are_added_forgotten_and_rotated() -> None:
    session = World().open()
    session.update([(T, 0), (T, 1), (T, 2)], [])
    session.served((T, 0))
    session.served((T, 9))
    session.update([(T, 1)], [(T, 2)])
    assert list(session.partitions) == [(T, 1), (T, 0)]


def test_session_size_is_limited() -> None:
    session = World().open()
    places = [(T, index) for index in range(PARTITIONS_MAX + 1)]
    assert refused(lambda: session.update(places, [])) is ErrorCode.INVALID_REQUEST
