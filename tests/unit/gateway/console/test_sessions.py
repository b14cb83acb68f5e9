"""Ends of sessions: duration, idle time, logout, changes of the user, limits."""

from penstock.gateway.console.sessions import (
    EACH_MAX,
    IDLE_SECONDS,
    SESSION_SECONDS,
    SESSIONS_MAX,
    Sessions,
)
from simulation.random import SimRandom


def sessions(users: dict[str, object]) -> Sessions:
    return Sessions(SimRandom(1), users.get)


def test_session_is_found_only_by_its_token() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    assert known.find(session.token, 1.0) is session
    assert session.principal == "User:ann"
    assert known.find(session.write_token, 1.0) is None


def test_idle_session_ends() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    assert known.find(session.token, IDLE_SECONDS - 1) is session
    assert known.find(session.token, 2 * IDLE_SECONDS - 2) is session
    assert known.find(session.token, 4 * IDLE_SECONDS) is None


def test_used_session_ends_after_its_maximum_duration() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    at = 0.0
    while at < SESSION_SECONDS - 1:
        assert known.find(session.token, at) is session
        at += IDLE_SECONDS / 2
    assert known.find(session.token, SESSION_SECONDS) is None
    assert len(known) == 0


def test_changed_or_deleted_user_ends_the_session() -> None:
    users: dict[str, object] = {"ann": "v1", "bob": "v1"}
    known = sessions(users)
    first, second = known.begin("ann", 0.0), known.begin("bob", 0.0)
    users["ann"] = "v2"
    del users["bob"]
    assert known.find(first.token, 1.0) is None
    assert known.find(second.token, 1.0) is None


def test_logout_ends_the_session() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    known.end(session.token)
    assert known.find(session.token, 1.0) is None


def test_excess_session_ends_the_oldest() -> None:
    known = sessions(dict.fromkeys(map(str, range(SESSIONS_MAX)), "v1"))
    first = [known.begin("0", 0.0) for _ in range(2)]
    for at in range(1, SESSIONS_MAX):
        last = known.begin(str(at), 1.0)
    assert len(known) == SESSIONS_MAX
    # The user with the most sessions loses the oldest: a single session is not ended for others.
    assert [known.find(one.token, 2.0) for one in first] == [None, first[1]]
    assert known.find(last.token, 2.0) is last


def test_repeated_logins_of_a_user_do_not_end_sessions_of_others() -> None:
    known = sessions({"ann": "v1", "bob": "v1"})
    bobs = known.begin("bob", 0.0)
    anns = [known.begin("ann", 1.0) for _ in range(SESSIONS_MAX + 5)]
    assert len(known) == EACH_MAX + 1
    assert known.find(bobs.token, 2.0) is bobs
    assert known.find(anns[0].token, 2.0) is None
    assert known.find(anns[-1].token, 2.0) is anns[-1]
