"""Share session with one node, on its own connection (KIP-932).

Sends fetches while the owner accepts records, and acknowledgements as they come, in the order of
the session's epochs. Acknowledgements travel with a fetch if one is due. At most one fetch and one
acknowledge request are in flight; later acknowledgements travel together in the next request.

A lost connection, or a session that the broker does not know any more, ends the session. Unsent
and unanswered acknowledgements go back to the owner, and the next session begins at epoch 0. The
owner (`consumer`) chooses partitions and numbers of records, and handles replies.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Protocol

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionLost, RequestTimeout, Unreachable, check
from penstock.client.share.acknowledgements import Ack, AcknowledgementType
from penstock.client.share.partitions import (
    AckChunks,
    PartitionKey,
    ack_topics,
    fetch_topics,
    forgotten_topics,
)
from penstock.wire.messages.share import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

NETWORK = (Unreachable, ConnectionLost, RequestTimeout)
OPENING = 0
FINAL = -1
EPOCH_MAX = 2**31 - 1
RENEW_SINCE = 2
_RECORD_LIMIT = 1


class ShareSessionOwner(Protocol):
    """Callbacks of a session; `ShareConsumer` implements them."""

    @property
    def group(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    def reserve(self, session: "ClientShareSession") -> tuple[int, int]:
        """Returns the number of records to fetch now (0: none), and the wait in milliseconds."""
        ...

    def take_acks(self, session: "ClientShareSession") -> AckChunks:
        """Returns acknowledgements for this node, at most one chunk for each partition."""
        ...

    def has_acks(self, session: "ClientShareSession") -> bool: ...

    def fetched(
        self,
        session: "ClientShareSession",
        rows: Mapping[PartitionKey, ShareFetchPartitionData],
        lock_ms: int,
        asked: int,
    ) -> None: ...

    def acked(
        self, key: PartitionKey, acks: list[Ack], code: int, message: str | None, lock_ms: int
    ) -> None: ...

    def undelivered(self, chunks: AckChunks) -> None:
        """Takes back acknowledgements that may not have arrived."""
        ...

    def session_ended(
        self, session: "ClientShareSession", error: Exception, asked: int
    ) -> None: ...


class ClientShareSession:
    """Share session with one node; `pump` sends whatever is due and is safe to call any time."""

    def __init__(
        self, cluster: Cluster, owner: ShareSessionOwner, node_id: int, bytes_max: int
    ) -> None:
        self.node_id = node_id
        self.wanted: frozenset[PartitionKey] = frozenset()
        """Partitions that this member reads at this node."""
        self.replies = 0
        """Number of answered fetches."""
        self.can_renew = False
        self.is_prompt = True
        """True if the broker answers acknowledgements while a fetch waits; Kafka does not."""
        self._cluster = cluster
        self._owner = owner
        self._bytes_max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._epoch = OPENING
        self._known: frozenset[PartitionKey] = frozenset()
        """Partitions that the broker's session has."""
        self._asked = 0
        """Number of records reserved at the owner for the fetch in flight."""
        self._fetching = False
        self._wait_ms = 0
        self._fetched_at = self._acked_at = 0.0
        self._acking = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting = False
        self._is_closed = False
        self._lost_at: float | None = None
        """Time since which there is no connection, as far as `silent_since` was asked."""

    def silent_since(self, now: float) -> float | None:
        """Returns since when the node is unreachable or owes a reply; None: it answers.

        Reconnects if the connection was lost while there was nothing to send.
        """
        connection = self._connection
        if connection is None or connection.is_closed:
            if self._lost_at is None:
                self._lost_at = now
                self.pump()
            return self._lost_at
        self._lost_at = None
        due: list[float] = []
        if self._fetching:
            due.append(self._fetched_at + self._wait_ms / 1000)
        if self._acking:
            due.append(self._acked_at)
        since = min(due, default=now)
        return since if since < now else None

    @property
    def is_fetching(self) -> bool:
        return self._fetching

    @property
    def is_waiting(self) -> bool:
        """True while a fetch of an open session waits at the broker for records."""
        return self._fetching and self._wait_ms > 0 and self.replies > 0

    # Requests.

    def pump(self) -> None:
        if self._is_closed:
            return
        connection = self._connection
        if connection is None or connection.is_closed:
            if self.wanted or self._owner.has_acks(self):
                self._connect()
            return
        if not self._fetching and self._may_fetch():
            reserved, wait_ms = self._owner.reserve(self)
            count = reserved
            if self._epoch == OPENING and self._owner.has_acks(self):
                # Acknowledgements of an earlier session need an open session.
                count = count or 1
            if count:
                self._send_fetch(connection, count, wait_ms, reserved)
        if self._epoch != OPENING and not self._acking and self._owner.has_acks(self):
            self._send_acks(connection)

    def _may_fetch(self) -> bool:
        return bool(self.wanted) or (self._epoch == OPENING and self._owner.has_acks(self))

    def _send_fetch(self, connection: Connection, count: int, wait_ms: int, reserved: int) -> None:
        chunks: AckChunks = {}
        if self._epoch != OPENING and not self._acking:
            chunks = self._owner.take_acks(self)
            if any(
                key not in self._known or _needs_own_request(acks, wait_ms)
                for key, acks in chunks.items()
            ):
                self._send_chunks(connection, chunks)
                chunks = {}
        version = connection.version_of(ShareFetchRequest)
        request = ShareFetchRequest(
            group_id=self._owner.group,
            member_id=self._owner.member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._bytes_max,
            max_records=count,
            batch_size=count,
            share_acquire_mode=_RECORD_LIMIT if version >= RENEW_SINCE else 0,
            topics=fetch_topics({**dict.fromkeys(self.wanted - self._known, ()), **chunks}),
            forgotten_topics_data=forgotten_topics(self._known - self.wanted),
        )
        self._known = self.wanted
        self._fetching, self._asked, self._wait_ms = True, reserved, wait_ms
        self._fetched_at = self._loop.time()
        self._next_epoch()
        timeout_ms = self._cluster.config.request_timeout_ms + wait_ms
        try:
            reply = connection.send(
                request, ShareFetchResponse, version=version, timeout_ms=timeout_ms
            )
        except NETWORK as error:
            self._end(connection, error, chunks)
            return
        self._run(self._finish_fetch(connection, reply, chunks, reserved))

    def _send_acks(self, connection: Connection) -> None:
        self._send_chunks(connection, self._owner.take_acks(self))

    def _send_chunks(
        self, connection: Connection, chunks: AckChunks, *, is_final: bool = False
    ) -> None:
        request = ShareAcknowledgeRequest(
            group_id=self._owner.group,
            member_id=self._owner.member_id,
            share_session_epoch=FINAL if is_final else self._epoch,
            is_renew_ack=any(
                ack.kind is AcknowledgementType.RENEW for acks in chunks.values() for ack in acks
            ),
            topics=ack_topics(chunks),
        )
        self._acking, self._acked_at = True, self._loop.time()
        self._next_epoch()
        try:
            reply = connection.send(request, ShareAcknowledgeResponse)
        except NETWORK as error:
            self._end(connection, error, chunks)
            return
        self._run(self._finish_acks(connection, reply, chunks))

    def _next_epoch(self) -> None:
        self._epoch = self._epoch % EPOCH_MAX + 1

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._owner.session_ended(self, error, 0)

    # Replies.

    async def _finish_fetch(
        self,
        connection: Connection,
        reply: "asyncio.Future[ShareFetchResponse]",
        chunks: AckChunks,
        reserved: int,
    ) -> None:
        try:
            answer = await reply
            check(answer.error_code, answer.error_message, about="share fetch")
        except (*NETWORK, Refused, PeerError) as error:
            self._end(connection, error, chunks)
            return
        self._detect_prompt_acks(answer)
        self._fetching, self._asked = False, 0
        self.replies += 1
        lock_ms = answer.acquisition_lock_timeout_ms
        rows = {
            (TopicId(bytes(topic.topic_id)), row.partition_index): row
            for topic in answer.responses
            for row in topic.partitions
        }
        for key, acks in chunks.items():
            row = rows.get(key)
            if row is None:
                self._owner.acked(key, acks, ErrorCode.NONE, None, lock_ms)
            else:
                self._owner.acked(
                    key, acks, row.acknowledge_error_code, row.acknowledge_error_message, lock_ms
                )
        self._owner.fetched(self, rows, lock_ms, reserved)
        self.pump()

    def _detect_prompt_acks(self, answer: ShareFetchResponse) -> None:
        """Updates `is_prompt`: True if an empty fetch made way for an acknowledgement."""
        wait_s = self._wait_ms / 1000
        is_overtaken = self._acking and 0 <= self._acked_at - self._fetched_at < wait_s / 2
        if is_overtaken and not answer.responses:
            self.is_prompt = self._loop.time() - self._fetched_at < 0.9 * wait_s

    async def _finish_acks(
        self,
        connection: Connection,
        reply: "asyncio.Future[ShareAcknowledgeResponse]",
        chunks: AckChunks,
    ) -> None:
        try:
            answer = await reply
            check(answer.error_code, answer.error_message, about="share acknowledge")
        except (*NETWORK, Refused, PeerError) as error:
            self._end(connection, error, chunks)
            return
        self._acking = False
        rows: dict[PartitionKey, ShareAcknowledgePartitionData] = {
            (TopicId(bytes(topic.topic_id)), row.partition_index): row
            for topic in answer.responses
            for row in topic.partitions
        }
        for key, acks in chunks.items():
            row = rows.get(key)
            code, message = (
                (row.error_code, row.error_message) if row is not None else (ErrorCode.NONE, None)
            )
            lock_ms = answer.acquisition_lock_timeout_ms
            self._owner.acked(key, acks, code, message, lock_ms)
        self.pump()

    def _end(self, connection: Connection, error: Exception, chunks: AckChunks) -> None:
        """Ends the session; the broker releases its records, at the latest when leases expire."""
        if chunks:
            self._owner.undelivered(chunks)
        if self._is_closed or connection is not self._connection:
            return
        connection.close()
        asked, self._connection = self._asked, None
        self._reset()
        self._owner.session_ended(self, error, asked)

    def _reset(self) -> None:
        self._epoch, self._known, self._asked = OPENING, frozenset(), 0
        self._fetching = self._acking = False

    # Connection.

    def _connect(self) -> None:
        if not self._connecting:
            self._connecting = True
            self._run(self._open())

    async def _open(self) -> None:
        try:
            connection = await self._cluster.open_connection(self.node_id)
        except (*NETWORK, Refused, PeerError) as error:
            self._connecting = False
            if not self._is_closed:
                self._owner.session_ended(self, error, 0)
            return
        self._connecting = False
        if self._is_closed:
            connection.close()
            return
        self._connection = connection
        self._reset()
        try:
            self.can_renew = connection.version_of(ShareAcknowledgeRequest) >= RENEW_SINCE
            self.pump()
        except Refused as refused:
            connection.close()
            self._connection = None
            self._owner.session_ended(self, refused, 0)

    async def end_fetch(self) -> None:
        """Waits for the fetch in flight; the owner takes its records and asks for no more."""
        connection = self._connection
        if connection is not None and self._fetching and not self._acking:
            # The broker ends a waiting fetch when another request is ready to be answered.
            self._send_chunks(connection, {})
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=2)

    async def close(self) -> None:
        """Sends pending acknowledgements and ends the session: the broker releases the rest."""
        self._is_closed = True
        connection = self._connection
        if connection is not None and not connection.is_closed and self._epoch != OPENING:
            chunks = self._owner.take_acks(self) if self._owner.has_acks(self) else {}
            self._send_chunks(connection, chunks, is_final=True)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if connection is not None:
            connection.close()
            await connection.wait_closed()


def _needs_own_request(acks: list[Ack], wait_ms: int) -> bool:
    """True if the acknowledgements cannot travel with this fetch.

    Renewals never can. Awaited acknowledgements cannot if the fetch may wait for records.
    """
    return any(
        ack.kind is AcknowledgementType.RENEW or (ack.is_awaited and wait_ms > 0) for ack in acks
    )
