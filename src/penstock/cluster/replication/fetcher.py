"""Fetcher: copies all partitions that follow one leader, with one fetch request at a time.

A cycle: fetch every ready partition, append the batches, sync them, fetch again. The next fetch
reports the follower's end offsets to the leader. Partitions that were copied together are synced
together (group commit), so one cycle carries them all. A partition that is late (its log is being
changed) delays the others by at most `LATE_SECONDS`, and is left out until it is ready.

While there is nothing to copy, a fetch is parked at the leader. A partition that becomes ready
meanwhile (it was late, or is new) must not wait half a second for the next request. So the next
request of the session goes out on a second connection, and the leader answers the parked one at
once (`penstock.broker.api.data.replica_fetch`). At most two requests are in flight. If the second
arrives first, the leader refuses it, and the session starts over.

Owns: the connections, the requests in flight, and retries: after 50 ms, up to 1 s, and at once when
the leader has registered again.
Invariants: a response is used for a partition only if its request is not older than the one that
asked for the present offset; memory is bounded by two responses.
Elsewhere: applying responses to a log (`replica_follower`), the set of partitions (`fetchers`).

Follower side of a fetch session with a leader (KIP-227). A node may follow thousands of
partitions of one leader, most of them idle. So a full fetch opens a session, and later requests
name only the changes: partitions to fetch from another offset, and partitions to leave out for
now.

Owns: session id and epoch, and the partitions that the leader has in the session.
Invariants: the leader never has a partition in the session with another offset than the next
request would ask for. A partition that is being synced, truncated or paused is removed from the
session, unless it is ready again before the next request. `ReplicaFollower.asked_in` is the number
of the request that carried the present offset; responses to earlier requests are ignored.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ErrorCode, PeerError
from penstock.base.retry import Backoff
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.replication.peer_connections import PEER_ERRORS, PeerConnections
from penstock.cluster.replication.replica_follower import (
    NOT_ASKED,
    FollowedPartition,
    FollowerStatus,
    ReplicaFollower,
    ReplicationContext,
)
from penstock.cluster.replication.throttle import FollowerThrottle
from penstock.wire.messages.fetch import (
    FetchForgottenTopic,
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

if TYPE_CHECKING:
    from penstock.base.ids import TopicId

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


log = logging.getLogger("penstock.replication")

LATE_SECONDS = 0.02
IN_FLIGHT_MAX = 2
UNPARKED_WAIT_MS = 50
"""Without a session a new request cannot end a parked fetch, so it is parked for 50 ms only."""
SESSION_ENDED = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class _Sent(NamedTuple):
    """A request in flight."""

    connection: Connection
    generation: int
    """Generation of its fetch session."""


class Fetcher:
    """Follows one leader over one pair of connections."""

    def __init__(
        self,
        leader: int,
        peers: PeerConnections,
        configs: BrokerConfigs,
        epoch: Callable[[], int],
        context: ReplicationContext,
        throttle: FollowerThrottle,
    ) -> None:
        self.leader = leader
        self.requests = 0
        self._peers = peers
        self._configs = configs
        self._epoch = epoch
        self._throttle = throttle
        self._copied = context.copied
        self._backoff = Backoff(context.random)
        self._attempt = 0
        self._followed: dict[FollowedPartition, ReplicaFollower] = {}
        self._session = FollowerFetchSession()
        self._sent_epoch = -1
        """This node's broker epoch in the latest request to the leader."""
        self._syncing: dict[FollowedPartition, None] = {}
        self._late_s = 0.0
        self._late_timer: asyncio.TimerHandle | None = None
        self._main: Connection | None = None
        self._side: asyncio.Task[Connection] | None = None
        self._in_flight: dict[int, _Sent] = {}
        """Requests in flight by number."""
        self._arrived: deque[tuple[int, asyncio.Future[FetchResponse]]] = deque()
        self._wake = asyncio.Event()
        self._retry_now = asyncio.Event()
        """Set when an immediate retry makes sense."""

    # -- partitions -------------------------------------------------------------------------

    @property
    def is_needed(self) -> bool:
        return bool(self._followed)

    def add(self, replica: ReplicaFollower, before: ReplicaFollower | None = None) -> None:
        """Adds a partition; `before` is its previous, now retired, follower."""
        self._followed[replica.key] = replica
        replica.changed = self._changed
        replica.start(before)

    def remove(self, replica: ReplicaFollower) -> None:
        replica.retire()
        if self._followed.get(replica.key) is replica:
            del self._followed[replica.key]
        self._syncing.pop(replica.key, None)
        self._session.exclude(replica)
        self._wake.set()

    def retry_now(self) -> None:
        """Ends the backoff: the leader is new, or has registered again."""
        self._attempt = 0
        self._retry_now.set()

    def recheck(self) -> None:
        """Checks again for a request to send: this node's epoch may have changed."""
        self._wake.set()

    def _changed(self, replica: ReplicaFollower) -> None:
        key = replica.key
        if replica.status is FollowerStatus.SYNCING:
            self._syncing[key] = None
        else:
            self._syncing.pop(key, None)
        self._place(replica)
        self._wake.set()

    def _place(self, replica: ReplicaFollower) -> None:
        """Adds a ready partition to the session, and removes any other."""
        if not replica.is_ready or self._throttle.defers(replica, self._place_again):
            self._session.exclude(replica)
        else:
            self._session.include(replica)

    def _place_again(self, replica: ReplicaFollower) -> None:
        """Called when the throttle admits the partition."""
        if self._followed.get(replica.key) is replica:
            self._place(replica)
            self._wake.set()

    # -- request loop -----------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._exchange()
            except PEER_ERRORS as error:
                if self._attempt == 0:
                    log.info("fetching from node %d is interrupted: %s", self.leader, error)
            finally:
                self._disconnect()
            self._retry_now.clear()
            delay_s = self._backoff.delay_s(self._attempt)
            self._attempt += 1
            try:
                async with asyncio.timeout(delay_s):
                    await self._retry_now.wait()
            except TimeoutError:
                pass

    async def _exchange(self) -> None:
        timeout_ms = self._configs.integer("replica.socket.timeout.ms")
        self._main = await self._peers.dial(self.leader, timeout_ms=timeout_ms)
        while True:
            while self._arrived:
                number, future = self._arrived.popleft()
                sent = self._in_flight.pop(number)
                if sent.generation == self._session.generation:
                    self._receive(number, future.result())
                else:
                    future.result()
                del future  # It holds the response's buffer.
            self._ask()
            self._wake.clear()
            await self._wake.wait()

    def _disconnect(self) -> None:
        """Closes the connections without waiting: a cancelled wait would leave the rest open."""
        side, self._side = self._side, None
        main, self._main = self._main, None
        if side is not None:
            side.cancel()
            side.add_done_callback(_discard)
        if main is not None:
            main.close()
        self._in_flight.clear()
        for _, future in self._arrived:
            if not future.cancelled():
                future.exception()  # One failure was enough to end the connections.
        self._arrived.clear()
        self._session.lost()
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None

    # -- requests ---------------------------------------------------------------------------

    def _ask(self) -> None:
        """Sends a request if there is a reason to, and a free connection."""
        session, epoch = self._session, self._epoch()
        if session.is_idle or epoch < 0:
            return
        if epoch != self._sent_epoch:
            # The leader's knowledge of this node counts only for the registration it was sent
            # under. A quiet partition that is not named again would never be in sync again.
            self._sent_epoch = epoch
            session.name_all_again()
        # Requests of a lost session do not count: the leader may have parked one.
        awaited = sum(one.generation == session.generation for one in self._in_flight.values())
        if not awaited:
            if self._syncing and not self._is_late():
                return
        elif not session.has_additions or not session.is_open or awaited == IN_FLIGHT_MAX:
            return
        connection = self._free_connection()
        if connection is not None:
            self._send(connection)

    def _is_late(self) -> bool:
        """True once the partitions being synced have had `LATE_SECONDS`; starts the timer."""
        loop = asyncio.get_running_loop()
        if self._late_timer is None:
            self._late_s = loop.time() + LATE_SECONDS
            self._late_timer = loop.call_at(self._late_s, self._wake.set)
            return False
        return self._late_s <= loop.time()

    def _free_connection(self) -> Connection | None:
        """Connection without a request in flight; the second one is made when first needed."""
        main = self._main
        assert main is not None
        used = [one.connection for one in self._in_flight.values()]
        if main not in used:
            return main
        if self._side is None:
            timeout_ms = self._configs.integer("replica.socket.timeout.ms")
            dial = self._peers.dial(self.leader, timeout_ms=timeout_ms)
            self._side = asyncio.get_running_loop().create_task(dial)
            self._side.add_done_callback(lambda _: self._wake.set())
        if not self._side.done():
            return None
        side = self._side.result()
        return None if side in used else side

    def _send(self, connection: Connection) -> None:
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None
        self._syncing.clear()  # Late partitions are not waited for again.
        self.requests = number = self.requests + 1
        self._copied.fetches += 1
        state = FetchReplicaState(replica_id=self._peers.node_id, replica_epoch=self._epoch())
        request = self._session.next_request(number, self._terms(), state)
        future = connection.send(request, FetchResponse)
        self._in_flight[number] = _Sent(connection, self._session.generation)
        future.add_done_callback(lambda done: self._arrive(number, done))

    def _terms(self) -> FetchTerms:
        configs = self._configs
        wait_ms = configs.integer("replica.fetch.wait.max.ms")
        if not self._session.is_open:
            # The first response opens the session and comes at once.
            wait_ms = min(wait_ms, UNPARKED_WAIT_MS) if self._session.is_refused else 0
        return FetchTerms(
            wait_ms=wait_ms,
            bytes_min=configs.integer("replica.fetch.min.bytes"),
            bytes_max=configs.integer("replica.fetch.response.max.bytes"),
            partition_bytes_max=configs.integer("replica.fetch.max.bytes"),
        )

    # -- responses --------------------------------------------------------------------------

    def _arrive(self, number: int, future: "asyncio.Future[FetchResponse]") -> None:
        if number in self._in_flight:
            self._arrived.append((number, future))
            self._wake.set()
        elif not future.cancelled():
            future.exception()  # Its connection was closed.

    def _receive(self, number: int, response: FetchResponse) -> None:
        session = self._session
        if response.error_code in SESSION_ENDED:
            session.lost()
            return
        check(response.error_code, about=f"fetching from node {self.leader}")
        self._attempt = 0
        if session.is_open and response.session_id != session.id:
            raise PeerError(
                f"node {self.leader} answers in fetch session {response.session_id} "
                f"instead of {session.id}"
            )
        self._take_rows(number, response)
        if not session.is_open:
            session.opened(response.session_id)

    def _take_rows(self, number: int, response: FetchResponse) -> None:
        for topic in response.responses:
            topic_id = topic.topic_id
            for row in topic.partitions:
                replica = self._followed.get((topic_id, row.partition_index))
                if replica is None or number < replica.asked_in or replica.is_over:
                    continue
                copied = replica.take(row)
                if copied:
                    self._throttle.record(replica, copied)
                if replica.is_ready and replica.asked_in > number:
                    self._place(replica)  # Its offset to fetch has changed.


def _discard(dialled: "asyncio.Task[Connection]") -> None:
    """Closes a connection that was made too late, if it was made."""
    if not dialled.cancelled() and dialled.exception() is None:
        dialled.result().close()
