"""Fetch sessions: the counting of requests, the places, and the order of turns."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.data.fetch_sessions import (
    PARTITIONS_MAX,
    QUIET_SECONDS,
    SESSION_PARTITIONS_MAX,
    FetchSessions,
    Followed,
)


def followed(topic: str = "t", index: int = 0, offset: int = 0) -> Followed:
    return Followed(topic, index, offset, 1000, -1, -1)


def test_session_expects_consecutive_epochs() -> None:
    sessions = FetchSessions()
    session = sessions.open([followed()], by_id=False, now=0.0)
    assert session is not None
    assert sessions.resume(session.id, 1, False, 1.0) is session
    with pytest.raises(Refused) as again:
        sessions.resume(session.id, 1, False, 2.0)
    assert again.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.resume(session.id, 2, False, 3.0) is session


def test_epoch_wraps_to_one_and_never_to_zero() -> None:
    sessions = FetchSessions()
    session = sessions.open([followed()], by_id=False, now=0.0)
    assert session is not None
    session.epoch = 2**31 - 1
    sessions.resume(session.id, 2**31 - 1, False, 1.0)
    assert session.epoch == 1


def test_unknown_session_is_refused() -> None:
    with pytest.raises(Refused) as unknown:
        FetchSessions().resume(7, 1, False, 0.0)
    assert unknown.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_belongs_to_its_principal() -> None:
    sessions = FetchSessions()
    session = sessions.open([followed("secret")], by_id=False, now=0.0, owner="User:ann")
    assert session is not None
    with pytest.raises(Refused) as unknown:
        sessions.resume(session.id, 1, False, 1.0, "User:eve")
    assert unknown.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.end(session.id, "User:eve")
    assert sessions.resume(session.id, 1, False, 1.0, "User:ann") is session
    sessions.end(session.id, "User:ann")
    assert len(sessions) == 0


def test_session_does_not_change_between_names_and_ids() -> None:
    sessions = FetchSessions()
    session = sessions.open([followed()], by_id=False, now=0.0)
    assert session is not None
    with pytest.raises(Refused) as mixed:
        sessions.resume(session.id, 1, True, 0.0)
    assert mixed.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_full_cache_evicts_only_an_idle_session() -> None:
    sessions = FetchSessions(sessions_max=2)
    first = sessions.open([followed()], by_id=False, now=0.0)
    second = sessions.open([followed()], by_id=False, now=1.0)
    assert first is not None
    assert second is not None
    assert sessions.open([followed()], by_id=False, now=2.0) is None
    assert sessions.open([followed()], by_id=False, now=QUIET_SECONDS + 0.5) is not None
    with pytest.raises(Refused):
        sessions.resume(first.id, 1, False, QUIET_SECONDS + 1)
    assert sessions.resume(second.id, 1, False, QUIET_SECONDS + 1) is second


def test_updates_replace_requested_offsets_and_keep_sent_state() -> None:
    sessions = FetchSessions()
    session = sessions.open([followed(offset=5), followed(index=1)], by_id=False, now=0.0)
    assert session is not None
    session.partitions[("t", 0)].high_watermark_sent = 9
    session.put(followed(offset=6))
    session.forget("t", 1)
    assert list(session.partitions) == [("t", 0)]
    assert session.partitions[("t", 0)].offset == 6
    assert session.partitions[("t", 0)].high_watermark_sent == 9


def test_served_partition_moves_to_the_end() -> None:
    sessions = FetchSessions()
    session = sessions.open([followed(index=i) for i in range(3)], by_id=False, now=0.0)
    assert session is not None
    session.served(session.partitions[("t", 0)])
    assert [key[1] for key in session.partitions] == [1, 2, 0]


def test_session_ids_start_at_the_first_id_and_skip_those_in_use() -> None:
    sessions = FetchSessions(first_id=2**31 - 1)
    ids = []
    for _ in range(3):
        session = sessions.open([followed()], by_id=False, now=0.0)
        assert session is not None
        ids.append(session.id)
        sessions._next_id = 2**31 - 1
    assert ids == [2**31 - 1, 1, 2]


def test_session_size_is_limited() -> None:
    sessions = FetchSessions()
    session = sessions.open([followed()], by_id=False, now=0.0)
    assert session is not None
    many = [followed(index=index) for index in range(SESSION_PARTITIONS_MAX + 1)]
    with pytest.raises(Refused) as refused:
        sessions.update(session, many, [])
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0, "the client starts again with a full fetch"
    assert sessions.open(many, by_id=False, now=0.0) is None


def test_total_partitions_of_all_sessions_are_limited() -> None:
    sessions = FetchSessions()
    full = [followed(index=index) for index in range(SESSION_PARTITIONS_MAX)]
    opened = [
        sessions.open(full, by_id=False, now=0.0)
        for _ in range(PARTITIONS_MAX // SESSION_PARTITIONS_MAX)
    ]
    assert all(opened)
    assert sessions.open([followed()], by_id=False, now=0.0) is None
    first = opened[0]
    assert first is not None
    sessions.update(first, [], [("t", index) for index in range(100)])
    assert sessions.open([followed()], by_id=False, now=0.0) is not None
    sessions.close(first.id)
    assert sessions.open(full[:-1], by_id=False, now=0.0) is not None
