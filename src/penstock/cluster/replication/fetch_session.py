"""Follower side of a fetch session with a leader (KIP-227).

A node may follow thousands of partitions of one leader, most of them idle. So a full fetch opens a
session, and later requests name only the changes: partitions to fetch from another offset, and
partitions to leave out for now.

Owns: session id and epoch, and the partitions that the leader has in the session.
Invariants: the leader never has a partition in the session with another offset than the next
request would ask for. A partition that is being synced, truncated or paused is removed from the
session, unless it is ready again before the next request. `ReplicaFollower.asked_in` is the number
of the request that carried the present offset; responses to earlier requests are ignored.
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
"""Session epoch that asks for a new session."""
EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class FetchTerms:
    """Limits of a follower's fetch: sizes and the longest wait."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int


class FollowerFetchSession:
    """Fetch session of one fetcher with its leader."""

    def __init__(self) -> None:
        self.id = 0
        self.generation = 0
        """Counts lost sessions: responses from an earlier generation are ignored."""
        self.is_refused = False
        """True while the leader has no capacity for a session."""
        self._epoch = FULL
        self._ready: dict[FollowedPartition, ReplicaFollower] = {}
        self._added: dict[FollowedPartition, ReplicaFollower] = {}
        self._sent: dict[FollowedPartition, None] = {}
        self._removed: dict[FollowedPartition, None] = {}

    @property
    def is_open(self) -> bool:
        return self.id > 0

    @property
    def has_additions(self) -> bool:
        """True while a partition is ready that the leader does not have in the session."""
        return bool(self._added)

    @property
    def is_idle(self) -> bool:
        """True while there is nothing to ask for."""
        return not self._ready

    def include(self, replica: ReplicaFollower) -> None:
        """Adds a ready partition whose present offset the leader does not have yet."""
        key = replica.key
        self._ready[key] = self._added[key] = replica
        self._removed.pop(key, None)

    def exclude(self, replica: ReplicaFollower) -> None:
        key = replica.key
        self._ready.pop(key, None)
        self._added.pop(key, None)
        if key in self._sent:
            self._removed[key] = None

    def name_all_again(self) -> None:
        """Names every partition again in the next request, for a new registration of this node."""
        self._added = dict(self._ready)

    def lost(self) -> None:
        """Starts over after the leader lost the session: the next request is a full one."""
        self.id, self._epoch = 0, FULL
        self.generation += 1
        self.is_refused = False
        self._sent.clear()
        self._removed.clear()
        self._added = dict(self._ready)
        for replica in self._ready.values():
            replica.asked_in = NOT_ASKED

    def opened(self, session_id: int) -> None:
        """Handles the response to a full fetch; 0: the leader has no capacity for a session."""
        self.id = session_id
        if session_id:
            self._epoch = 1
        else:
            self.lost()
            self.is_refused = True

    def next_request(
        self, number: int, terms: FetchTerms, state: FetchReplicaState
    ) -> FetchRequest:
        """Returns the next request, with all changes; the caller sends it."""
        is_full = self._epoch == FULL
        for replica in self._added.values():
            replica.asked_in = number
        request = FetchRequest(
            max_wait_ms=terms.wait_ms,
            min_bytes=terms.bytes_min,
            max_bytes=terms.bytes_max,
            session_id=self.id,
            session_epoch=self._epoch,
            topics=_topics(self._added.values(), terms.partition_bytes_max),
            forgotten_topics_data=_forgotten(self._removed),
            replica_state=state,
        )
        self._sent.update(dict.fromkeys(self._added))
        for key in self._removed:
            self._sent.pop(key, None)
        self._added.clear()
        self._removed.clear()
        if not is_full:
            self._epoch = self._epoch % EPOCH_MAX + 1
        return request


def _topics(wanted: Iterable[ReplicaFollower], bytes_max: int) -> list[FetchTopic]:
    rows: dict[TopicId, list[FetchPartition]] = {}
    for replica in wanted:
        rows.setdefault(replica.key[0], []).append(replica.fetch_row(bytes_max))
    return [FetchTopic(topic_id=topic_id, partitions=cells) for topic_id, cells in rows.items()]


def _forgotten(keys: Iterable[FollowedPartition]) -> Sequence[FetchForgottenTopic]:
    rows: dict[TopicId, list[int]] = {}
    for topic_id, index in keys:
        rows.setdefault(topic_id, []).append(index)
    return [
        FetchForgottenTopic(topic_id=topic_id, partitions=cells) for topic_id, cells in rows.items()
    ]
