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
Elsewhere: applying responses to a log (`replica_follower`), the session (`fetch_session`), the set
of partitions (`fetchers`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.base.errors import ErrorCode, PeerError
from penstock.base.retry import Backoff
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.cluster.configs.configs import BrokerConfigs
from penstock.cluster.replication.fetch_session import FetchTerms, FollowerFetchSession
from penstock.cluster.replication.peer_connections import PEER_ERRORS, PeerConnections
from penstock.cluster.replication.replica_follower import (
    FollowedPartition,
    FollowerStatus,
    ReplicaFollower,
    ReplicationContext,
)
from penstock.cluster.replication.throttle import FollowerThrottle
from penstock.wire.messages.fetch import FetchReplicaState, FetchResponse

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
        self.fetched_bytes = 0
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

    @property
    def is_connected(self) -> bool:
        return self._main is not None and not self._main.is_closed

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
                    self.fetched_bytes += copied
                    self._throttle.record(replica, copied)
                if replica.is_ready and replica.asked_in > number:
                    self._place(replica)  # Its offset to fetch has changed.


def _discard(dialled: "asyncio.Task[Connection]") -> None:
    """Closes a connection that was made too late, if it was made."""
    if not dialled.cancelled() and dialled.exception() is None:
        dialled.result().close()
