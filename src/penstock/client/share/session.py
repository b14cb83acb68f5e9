"""One node's part in a share group: a connection of its own, and the share session on it (KIP-932).

Sends fetches while there is room for records and acknowledgements as they come, in the order of
the session's epochs; acknowledgements ride on a fetch where one is due anyway. One fetch and one
acknowledgement are in flight at a time: what is said meanwhile travels together with the next.

A lost connection, or a session that the broker no longer knows, ends the session; what had not
arrived is handed back, and the next one begins at epoch 0. Which partitions, how many records, and
what the answers mean is the owner's business (`share_consumer`).
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
    Groups,
    Place,
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


class Owner(Protocol):
    """What a session asks and tells; `ShareConsumer` is one."""

    @property
    def group(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    def reserve(self, session: "ClientShareSession") -> tuple[int, int]:
        """How many records to ask for now (0: none), and how long the broker may wait for them."""
        ...

    def take_acks(self, session: "ClientShareSession") -> Groups:
        """Verdicts for this node, at most one group of each partition."""
        ...

    def has_acks(self, session: "ClientShareSession") -> bool: ...

    def fetched(
        self,
        session: "ClientShareSession",
        rows: Mapping[Place, ShareFetchPartitionData],
        lock_ms: int,
        asked: int,
    ) -> None: ...

    def acked(
        self, place: Place, acks: list[Ack], code: int, message: str | None, lock_ms: int
    ) -> None: ...

    def undelivered(self, groups: Groups) -> None:
        """These verdicts may not have arrived."""
        ...

    def session_ended(
        self, session: "ClientShareSession", error: Exception, asked: int
    ) -> None: ...


class ClientShareSession:
    """`pump` whenever something may have changed; it does what there is to do."""

    def __init__(self, cluster: Cluster, owner: Owner, node_id: int, bytes_max: int) -> None:
        self.node_id = node_id
        self.wanted: frozenset[Place] = frozenset()
        """What this member reads here."""
        self.replies = 0
        """Fetches that were answered."""
        self.can_renew = False
        self.is_prompt = True
        """The broker does not keep verdicts waiting behind a fetch; Kafka does."""
        self._cluster = cluster
        self._owner = owner
        self._bytes_max = bytes_max
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._epoch = OPENING
        self._known: frozenset[Place] = frozenset()
        """What the broker knows of `wanted`."""
        self._asked = 0
        """Records that room was reserved for, and that the fetch in flight may bring."""
        self._fetching = False
        self._wait_ms = 0
        self._fetched_at = self._acked_at = 0.0
        self._acking = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting = False
        self._is_closed = False

    @property
    def is_fetching(self) -> bool:
        return self._fetching

    @property
    def is_waiting(self) -> bool:
        """A fetch of an open session is with the broker, which answers once there is something."""
        return self._fetching and self._wait_ms > 0 and self.replies > 0

    # Sending.

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
                # To say something about records of an earlier session there must be one.
                count = count or 1
            if count:
                self._send_fetch(connection, count, wait_ms, reserved)
        if self._epoch != OPENING and not self._acking and self._owner.has_acks(self):
            self._send_acks(connection)

    def _may_fetch(self) -> bool:
        return bool(self.wanted) or (self._epoch == OPENING and self._owner.has_acks(self))

    def _send_fetch(self, connection: Connection, count: int, wait_ms: int, reserved: int) -> None:
        groups: Groups = {}
        if self._epoch != OPENING and not self._acking:
            groups = self._owner.take_acks(self)
            if any(
                place not in self._known or _must_go_alone(acks, wait_ms)
                for place, acks in groups.items()
            ):
                self._send_groups(connection, groups)
                groups = {}
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
            topics=fetch_topics({**dict.fromkeys(self.wanted - self._known, ()), **groups}),
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
            self._end(connection, error, groups)
            return
        self._run(self._finish_fetch(connection, reply, groups, reserved))

    def _send_acks(self, connection: Connection) -> None:
        self._send_groups(connection, self._owner.take_acks(self))

    def _send_groups(
        self, connection: Connection, groups: Groups, *, is_final: bool = False
    ) -> None:
        request = ShareAcknowledgeRequest(
            group_id=self._owner.group,
            member_id=self._owner.member_id,
            share_session_epoch=FINAL if is_final else self._epoch,
            is_renew_ack=any(
                ack.verdict is AcknowledgementType.RENEW for acks in groups.values() for ack in acks
            ),
            topics=ack_topics(groups),
        )
        self._acking, self._acked_at = True, self._loop.time()
        self._next_epoch()
        try:
            reply = connection.send(request, ShareAcknowledgeResponse)
        except NETWORK as error:
            self._end(connection, error, groups)
            return
        self._run(self._finish_acks(connection, reply, groups))

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

    # Answers.

    async def _finish_fetch(
        self,
        connection: Connection,
        reply: "asyncio.Future[ShareFetchResponse]",
        groups: Groups,
        reserved: int,
    ) -> None:
        try:
            answer = await reply
            check(answer.error_code, answer.error_message, about="share fetch")
        except (*NETWORK, Refused, PeerError) as error:
            self._end(connection, error, groups)
            return
        self._judge_promptness(answer)
        self._fetching, self._asked = False, 0
        self.replies += 1
        lock_ms = answer.acquisition_lock_timeout_ms
        rows = {
            (TopicId(bytes(topic.topic_id)), row.partition_index): row
            for topic in answer.responses
            for row in topic.partitions
        }
        for place, acks in groups.items():
            row = rows.get(place)
            if row is None:
                self._owner.acked(place, acks, ErrorCode.NONE, None, lock_ms)
            else:
                self._owner.acked(
                    place, acks, row.acknowledge_error_code, row.acknowledge_error_message, lock_ms
                )
        self._owner.fetched(self, rows, lock_ms, reserved)
        self.pump()

    def _judge_promptness(self, answer: ShareFetchResponse) -> None:
        """Whether a fetch that found nothing was answered for the sake of a verdict behind it."""
        wait_s = self._wait_ms / 1000
        is_overtaken = self._acking and 0 <= self._acked_at - self._fetched_at < wait_s / 2
        if is_overtaken and not answer.responses:
            self.is_prompt = self._loop.time() - self._fetched_at < 0.9 * wait_s

    async def _finish_acks(
        self,
        connection: Connection,
        reply: "asyncio.Future[ShareAcknowledgeResponse]",
        groups: Groups,
    ) -> None:
        try:
            answer = await reply
            check(answer.error_code, answer.error_message, about="share acknowledge")
        except (*NETWORK, Refused, PeerError) as error:
            self._end(connection, error, groups)
            return
        self._acking = False
        rows: dict[Place, ShareAcknowledgePartitionData] = {
            (TopicId(bytes(topic.topic_id)), row.partition_index): row
            for topic in answer.responses
            for row in topic.partitions
        }
        for place, acks in groups.items():
            row = rows.get(place)
            code, message = (
                (row.error_code, row.error_message) if row is not None else (ErrorCode.NONE, None)
            )
            lock_ms = answer.acquisition_lock_timeout_ms
            self._owner.acked(place, acks, code, message, lock_ms)
        self.pump()

    def _end(self, connection: Connection, error: Exception, groups: Groups) -> None:
        """The session is over; the broker lets go of what was not answered, or time does."""
        if groups:
            self._owner.undelivered(groups)
        if self._is_closed or connection is not self._connection:
            return
        connection.close()
        asked, self._connection = self._asked, None
        self._reset()
        self._owner.session_ended(self, error, asked)

    def _reset(self) -> None:
        self._epoch, self._known, self._asked = OPENING, frozenset(), 0
        self._fetching = self._acking = False

    # The connection.

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
        """Waits for the fetch in flight; the owner wants no more, and takes what it brings."""
        connection = self._connection
        if connection is not None and self._fetching and not self._acking:
            # A fetch that waits is answered when another request is ready to be.
            self._send_groups(connection, {})
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=2)

    async def close(self) -> None:
        """Says what is left to say and ends the session: the broker lets go of the rest."""
        self._is_closed = True
        connection = self._connection
        if connection is not None and not connection.is_closed and self._epoch != OPENING:
            groups = self._owner.take_acks(self) if self._owner.has_acks(self) else {}
            self._send_groups(connection, groups, is_final=True)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if connection is not None:
            connection.close()
            await connection.wait_closed()


def _must_go_alone(acks: list[Ack], wait_ms: int) -> bool:
    """Renewals may not travel with a fetch, nor what is awaited with one that may take long."""
    return any(
        ack.verdict is AcknowledgementType.RENEW or (ack.is_awaited and wait_ms > 0) for ack in acks
    )
