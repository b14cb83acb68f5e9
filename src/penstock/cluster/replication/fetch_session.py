"""What a leader has been told of the partitions that follow it: a fetch session from outside.

A node may follow thousands of partitions of one leader, most of them quiet. So a full fetch opens
a session (KIP-227), and later ones name only what changed: partitions that are wanted from another
offset, and those that are not wanted for now.

Owns: session id and epoch, and which partitions the leader has in it.
Invariants: the leader never has a partition in the session from another offset than the one that
would be asked for now: one that is being synced, cut or paused is taken out, unless it is ready
again before the next request. `ReplicaFollower.asked_in` is the number of the request that told the
leader of the present offset; answers to earlier requests say nothing about it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.base.ids import TopicId
from penstock.cluster.replication.replica_follower import (
    NOT_ASKED,
    FollowedPartition,
    ReplicaFollower,
)
from penstock.wire.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchTopic,
)

FULL = 0
"""The session epoch that asks for a new session."""
EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """How much a follower asks for at once, and how long it waits for it."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int


class FollowerFetchSession:
    """One fetcher's session with its leader."""

    def __init__(self) -> None:
        self.id = 0
        self.generation = 0
        """Counts how often the session was lost: answers from before say nothing any more."""
        self.is_refused = False
        """Whether the leader has no room for a session."""
        self._epoch = FULL
        self._ready: dict[FollowedPartition, ReplicaFollower] = {}
        self._news: dict[FollowedPartition, ReplicaFollower] = {}
        self._told: dict[FollowedPartition, None] = {}
        self._unwanted: dict[FollowedPartition, None] = {}

    @property
    def is_open(self) -> bool:
        return self.id > 0

    @property
    def has_news(self) -> bool:
        """Whether some partition is wanted that the leader does not know of."""
        return bool(self._news)

    @property
    def is_idle(self) -> bool:
        """Whether nothing can be asked for."""
        return not self._ready

    def want(self, following: ReplicaFollower) -> None:
        """Ready, and not asked for yet from where it is now."""
        key = following.key
        self._ready[key] = self._news[key] = following
        self._unwanted.pop(key, None)

    def leave_out(self, following: ReplicaFollower) -> None:
        key = following.key
        self._ready.pop(key, None)
        self._news.pop(key, None)
        if key in self._told:
            self._unwanted[key] = None

    def repeat(self) -> None:
        """The next request names everything: the leader is to hear it from another life."""
        self._news = dict(self._ready)

    def lost(self) -> None:
        """The leader knows nothing any more: the next request tells it everything."""
        self.id, self._epoch = 0, FULL
        self.generation += 1
        self.is_refused = False
        self._told.clear()
        self._unwanted.clear()
        self._news = dict(self._ready)
        for following in self._ready.values():
            following.asked_in = NOT_ASKED

    def opened(self, session_id: int) -> None:
        """The leader's answer to a full fetch; 0: it has no room for a session."""
        self.id = session_id
        if session_id:
            self._epoch = 1
        else:
            self.lost()
            self.is_refused = True

    def next_request(
        self, number: int, terms: FetchTerms, state: FetchReplicaState
    ) -> FetchRequest:
        """Tells the leader what is new; the caller sends it."""
        is_full = self._epoch == FULL
        for following in self._news.values():
            following.asked_in = number
        request = FetchRequest(
            max_wait_ms=terms.wait_ms,
            min_bytes=terms.bytes_min,
            max_bytes=terms.bytes_max,
            session_id=self.id,
            session_epoch=self._epoch,
            topics=_topics(self._news.values(), terms.partition_bytes_max),
            forgotten_topics_data=_forgotten(self._unwanted),
            replica_state=state,
        )
        self._told.update(dict.fromkeys(self._news))
        for key in self._unwanted:
            self._told.pop(key, None)
        self._news.clear()
        self._unwanted.clear()
        if not is_full:
            self._epoch = self._epoch % EPOCH_MAX + 1
        return request


def _topics(wanted: Iterable[ReplicaFollower], bytes_max: int) -> list[FetchTopic]:
    rows: dict[TopicId, list[FetchPartition]] = {}
    for following in wanted:
        rows.setdefault(following.key[0], []).append(following.question(bytes_max))
    return [FetchTopic(topic_id=topic_id, partitions=cells) for topic_id, cells in rows.items()]


def _forgotten(keys: Iterable[FollowedPartition]) -> Sequence[FetchForgottenTopic]:
    rows: dict[TopicId, list[int]] = {}
    for topic_id, index in keys:
        rows.setdefault(topic_id, []).append(index)
    return [
        FetchForgottenTopic(topic_id=topic_id, partitions=cells) for topic_id, cells in rows.items()
    ]
