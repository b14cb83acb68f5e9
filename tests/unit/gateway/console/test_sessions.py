"""Sessions end by time, by idling, by logging out, and when their user changes."""

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


def test_a_session_is_found_by_its_token_and_no_other() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    assert known.find(session.token, 1.0) is session
    assert session.principal == "User:ann"
    assert known.find(session.write_token, 1.0) is None


def test_a_session_ends_when_nobody_uses_it() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    assert known.find(session.token, IDLE_SECONDS - 1) is session
    assert known.find(session.token, 2 * IDLE_SECONDS - 2) is session
    assert known.find(session.token, 4 * IDLE_SECONDS) is None


def test_a_session_ends_in_the_end_however_much_it_is_used() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    at = 0.0
    while at < SESSION_SECONDS - 1:
        assert known.find(session.token, at) is session
        at += IDLE_SECONDS / 2
    assert known.find(session.token, SESSION_SECONDS) is None
    assert len(known) == 0


def test_another_password_or_no_user_ends_it() -> None:
    users: dict[str, object] = {"ann": "v1", "bob": "v1"}
    known = sessions(users)
    first, second = known.begin("ann", 0.0), known.begin("bob", 0.0)
    users["ann"] = "v2"
    del users["bob"]
    assert known.find(first.token, 1.0) is None
    assert known.find(second.token, 1.0) is None


def test_logging_out_ends_it() -> None:
    known = sessions({"ann": "v1"})
    session = known.begin("ann", 0.0)
    known.end(session.token)
    assert known.find(session.token, 1.0) is None


def test_there_are_so_many_at_most_and_the_oldest_goes() -> None:
    known = sessions(dict.fromkeys(map(str, range(SESSIONS_MAX)), "v1"))
    first = [known.begin("0", 0.0) for _ in range(2)]
    for at in range(1, SESSIONS_MAX):
        last = known.begin(str(at), 1.0)
    assert len(known) == SESSIONS_MAX
    # The oldest of whoever has most: nobody with one session loses it to somebody with two.
    assert [known.find(one.token, 2.0) for one in first] == [None, first[1]]
    assert known.find(last.token, 2.0) is last


def test_a_user_who_logs_in_again_and_again_ends_nobody_elses() -> None:
    known = sessions({"ann": "v1", "bob": "v1"})
    bobs = known.begin("bob", 0.0)
    anns = [known.begin("ann", 1.0) for _ in range(SESSIONS_MAX + 5)]
    assert len(known) == EACH_MAX + 1
    assert known.find(bobs.token, 2.0) is bobs
    assert known.find(anns[0].token, 2.0) is None
    assert known.find(anns[-1].token, 2.0) is anns[-1]
