"""Fetch sessions: every partition once, then only changes, and never a stale offset."""

from typing import Any, cast

from penstock.base.ids import TopicId
from penstock.cluster.replication.fetcher import FetchTerms, FollowerFetchSession
from penstock.cluster.replication.replica_follower import NOT_ASKED, ReplicaFollower
from penstock.wire.messages.fetch import FetchPartition, FetchReplicaState, FetchRequest

TERMS = FetchTerms(wait_ms=500, bytes_min=1, bytes_max=10_000, partition_bytes_max=1_000)
STATE = FetchReplicaState(replica_id=9, replica_epoch=3)


class Copy:
    """As much of a `ReplicaFollower` as a session looks at."""

    def __init__(self, index: int, topic: bytes = b"t") -> None:
        self.key = (TopicId(topic.ljust(16, b"\0")), index)
        self.asked_in = NOT_ASKED
        self.offset = 0

    def fetch_row(self, bytes_max: int) -> FetchPartition:
        return FetchPartition(
            partition=self.key[1], fetch_offset=self.offset, partition_max_bytes=bytes_max
        )


class Talk:
    def __init__(self, copies: list[Copy]) -> None:
        self.session = FollowerFetchSession()
        self.number = 0
        for copy in copies:
            self.include(copy)

    def include(self, copy: Copy) -> None:
        self.session.include(cast("ReplicaFollower", copy))

    def exclude(self, copy: Copy) -> None:
        self.session.exclude(cast("ReplicaFollower", copy))

    def ask(self) -> FetchRequest:
        self.number += 1
        return self.session.next_request(self.number, TERMS, STATE)


def named(request: FetchRequest) -> list[int]:
    return [cell.partition for topic in request.topics for cell in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def opened(copies: list[Copy]) -> Talk:
    talk = Talk(copies)
    talk.ask()
    talk.session.opened(77)
    return talk


def test_first_request_names_every_partition_and_asks_for_a_session() -> None:
    talk = Talk([Copy(0), Copy(1), Copy(0, b"u")])
    request = talk.ask()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [0, 1, 0]
    assert len(request.topics) == 2
    assert request.replica_state is STATE
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_000)


def test_later_requests_count_up_and_name_what_changed() -> None:
    copies = [Copy(0), Copy(1)]
    talk = opened(copies)
    assert not talk.session.has_additions
    copies[1].offset = 5
    talk.include(copies[1])
    assert talk.session.has_additions
    request = talk.ask()
    assert (request.session_id, request.session_epoch) == (77, 1)
    assert named(request) == [1]
    assert request.topics[0].partitions[0].fetch_offset == 5
    request = talk.ask()
    assert request.session_epoch == 2
    assert named(request) == []
    assert [copy.asked_in for copy in copies] == [1, 2]


def test_partition_that_is_not_ready_is_forgotten_unless_it_returns_in_time() -> None:
    copies = [Copy(0), Copy(1)]
    talk = opened(copies)
    for copy in copies:
        talk.exclude(copy)
    talk.include(copies[0])
    request = talk.ask()
    assert (named(request), forgotten(request)) == ([0], [1])
    talk.include(copies[1])
    request = talk.ask()
    assert (named(request), forgotten(request)) == ([1], [])


def test_partition_unknown_to_the_leader_is_not_forgotten() -> None:
    copy = Copy(0)
    talk = opened([copy])
    late = Copy(1)
    talk.include(late)
    talk.exclude(late)
    assert forgotten(talk.ask()) == []


def test_lost_session_starts_over_with_every_ready_partition() -> None:
    copies = [Copy(0), Copy(1), Copy(2)]
    talk = opened(copies)
    talk.exclude(copies[1])
    generation = talk.session.generation
    talk.session.lost()
    assert talk.session.generation > generation
    assert [copy.asked_in for copy in copies] == [NOT_ASKED, 1, NOT_ASKED]
    request = talk.ask()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [0, 2]
    assert forgotten(request) == []


def test_leader_that_refuses_sessions_gets_full_requests() -> None:
    copies = [Copy(0), Copy(1)]
    talk = Talk(copies)
    for _ in range(3):
        request = talk.ask()
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [0, 1])
        talk.session.opened(0)
        assert talk.session.is_refused
        assert not talk.session.is_open


def test_session_epoch_wraps_to_one() -> None:
    talk = opened([Copy(0)])
    session: Any = talk.session
    session._epoch = 2**31 - 1
    assert talk.ask().session_epoch == 2**31 - 1
    assert talk.ask().session_epoch == 1


def test_session_is_idle_when_every_partition_is_excluded() -> None:
    copy = Copy(0)
    talk = opened([copy])
    was_idle = talk.session.is_idle
    talk.exclude(copy)
    assert (was_idle, talk.session.is_idle) == (False, True)


def test_partitions_are_named_again_in_the_same_session_on_request() -> None:
    copies = [Copy(0), Copy(1)]
    talk = opened(copies)
    assert named(talk.ask()) == []
    talk.exclude(copies[1])
    talk.session.name_all_again()
    request = talk.ask()
    assert named(request) == [0]
    assert request.session_id == 77
