"""Requests to the queues of other nodes: TakeFromQueues and SettleLeases, encoded and decoded.

A request that waits for records delays every reply behind it, so each has a connection of its own
while it waits; idle connections are reused. Settling shares one connection to each node.

Bounds: `WAITING_MAX` requests wait at one node at a time, `IDLE_MAX` idle connections are kept.
"""

import contextlib
from collections.abc import Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.client.connection import Connection
from penstock.client.errors import code_of
from penstock.cluster.replication.peer_connections import PEER_ERRORS, PeerConnections
from penstock.coordinator.queues.receive import ReceiveRequest, Taken
from penstock.coordinator.queues.record_reader import LeasedBatches
from penstock.coordinator.queues.settle import SettleAction, SettleCommand
from penstock.coordinator.runtime.batched_rpc import ask_for_each
from penstock.state.queues.delivery_state import LeaseState
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queues import (
    LeaseRuling,
    RulingAnswer,
    SettleLeasesRequest,
    SettleLeasesResponse,
    TakeFromQueuesRequest,
    TakeFromQueuesResponse,
    TakenFromQueue,
    TakenLease,
)
from penstock.wire.records import batches

VERSION = 0
CHANNEL = "queue-settling"
WAITING_MAX = 1_000
IDLE_MAX = 64
RULINGS_MAX = 10_000
GRACE_MS = 15_000
"""Time for an answer beyond the requested wait."""
UNSAID = -1


class QueueRpc:
    """Connections of this node to queues on other nodes."""

    def __init__(self, peers: PeerConnections) -> None:
        self._peers = peers
        self._idle: dict[int, list[Connection]] = {}
        self._used: dict[int, int] = {}

    # -- taking -----------------------------------------------------------------------------

    async def take(self, node_id: int, keys: Sequence[QueueKey], wanted: ReceiveRequest) -> Taken:
        """Receives from another node, from queues of one group and topic; refuses all if it cannot
        be asked."""
        used = self._used.get(node_id, 0)
        if used >= WAITING_MAX:
            why = f"too many receives wait for node {node_id}: retry later"
            return _refused(keys, Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why))
        self._used[node_id] = used + 1
        try:
            connection = await self._connection_to(node_id)
            response = await connection.call(
                _take_request(keys, wanted),
                TakeFromQueuesResponse,
                version=VERSION,
                timeout_ms=wanted.wait_ms + GRACE_MS,
            )
            idle = self._idle.setdefault(node_id, [])
            if len(idle) < IDLE_MAX:
                idle.append(connection)
            else:
                connection.close()
        except PEER_ERRORS as error:
            why = f"node {node_id} does not answer: {error}"
            return _refused(keys, Refused(ErrorCode.LEADER_NOT_AVAILABLE, why))
        finally:
            self._used[node_id] -= 1
        if response.error_code:
            return _refused(keys, Refused(code_of(response.error_code)))
        taken = _taken(keys[0], response.rows, wanted.member)
        taken.is_partial = response.is_partial
        return taken

    async def _connection_to(self, node_id: int) -> Connection:
        idle = self._idle.get(node_id, [])
        while idle:
            connection = idle.pop()
            if not connection.is_closed:
                return connection
        return await self._peers.dial(node_id)

    # -- settling ---------------------------------------------------------------------------

    async def settle(self, node_id: int, rulings: Sequence[SettleCommand]) -> list[Refused | None]:
        """Settles on another node: returns one answer for each command."""
        return await ask_for_each(
            self._peers,
            node_id,
            rulings,
            lambda some: SettleLeasesRequest(rulings=[_ruling_sent(one) for one in some]),
            SettleLeasesResponse,
            _refusal_in,
            at_once=RULINGS_MAX,
            channel=CHANNEL,
            version=VERSION,
            timeout_ms=GRACE_MS,
            unreached=ErrorCode.LEADER_NOT_AVAILABLE,
        )

    async def end(self, node_id: int, member: str) -> None:
        """Cancels a member's wait on another node, which then answers the request."""
        # If it cannot be reached, the request is answered when its time is up, or never.
        with contextlib.suppress(*PEER_ERRORS):
            await self._peers.ask(
                node_id,
                SettleLeasesRequest(ended=[member]),
                SettleLeasesResponse,
                channel=CHANNEL,
                version=VERSION,
                timeout_ms=GRACE_MS,
            )


# -- encoding ----------------------------------------------------------------------------------


def _take_request(keys: Sequence[QueueKey], wanted: ReceiveRequest) -> TakeFromQueuesRequest:
    return TakeFromQueuesRequest(
        group_id=keys[0].group,
        topic_id=TopicId(keys[0].topic_id),
        partitions=[key.partition for key in keys],
        member_id=wanted.member,
        records_max=wanted.records_max,
        bytes_max=wanted.bytes_max,
        wait_ms=wanted.wait_ms,
        lock_ms=UNSAID if wanted.lock_ms is None else wanted.lock_ms,
        fills=wanted.fills,
        reset=wanted.reset,
        with_followers=wanted.with_followers,
    )


def asked_by(request: TakeFromQueuesRequest) -> tuple[list[QueueKey], ReceiveRequest]:
    keys = [QueueKey(request.group_id, request.topic_id, index) for index in request.partitions]
    return keys, ReceiveRequest(
        request.member_id,
        request.records_max,
        request.bytes_max,
        wait_ms=request.wait_ms,
        lock_ms=None if request.lock_ms == UNSAID else request.lock_ms,
        fills=request.fills,
        reset=request.reset,
        with_followers=request.with_followers,
        unpacks=True,  # It is for a protocol of that node.
    )


def rows_of(taken: Taken) -> list[TakenFromQueue]:
    rows = [
        TakenFromQueue(
            partition=key.partition,
            error_code=ErrorCode.NONE,
            records=b"".join(found.parts),
            leases=[
                TakenLease(
                    first=lease.first,
                    last=lease.last,
                    deadline_ms=lease.deadline_ms,
                    delivery_count=lease.delivery_count,
                )
                for lease in found.leases
            ],
        )
        for key, found in taken.found.items()
    ]
    rows += [
        TakenFromQueue(
            partition=key.partition, error_code=refused.code, error_message=refused.message
        )
        for key, refused in taken.refused.items()
    ]
    return rows


def _taken(like: QueueKey, rows: Sequence[TakenFromQueue], member: str) -> Taken:
    taken = Taken()
    for row in rows:
        key = like._replace(partition=row.partition)
        if row.error_code:
            taken.refused[key] = Refused(code_of(row.error_code), row.error_message)
            continue
        view = memoryview(row.records)
        taken.found[key] = LeasedBatches(
            [view[at : at + header.size_bytes] for at, header in batches(view)],
            len(view),
            [
                LeaseState(one.first, one.last, member, one.deadline_ms, one.delivery_count)
                for one in row.leases
            ],
        )
    return taken


def _refused(keys: Sequence[QueueKey], refused: Refused) -> Taken:
    return Taken(refused=dict.fromkeys(keys, refused))


def _ruling_sent(ruling: SettleCommand) -> LeaseRuling:
    return LeaseRuling(
        group_id=ruling.key.group,
        topic_id=TopicId(ruling.key.topic_id),
        partition=ruling.key.partition,
        member_id=ruling.member,
        first=ruling.first,
        last=ruling.last,
        verdict=ruling.verdict,
        delay_ms=UNSAID if ruling.delay_ms is None else ruling.delay_ms,
        lock_ms=UNSAID if ruling.lock_ms is None else ruling.lock_ms,
        error_class=ruling.error_class,
        error_message=ruling.error_message,
        traceback=ruling.traceback,
    )


def _refusal_in(answer: RulingAnswer) -> Refused | None:
    if not answer.error_code:
        return None
    return Refused(code_of(answer.error_code), answer.error_message)


def ruling_received(sent: LeaseRuling) -> SettleCommand:
    """Decodes a command; refuses an invalid action."""
    if sent.verdict not in SettleAction.__members__.values():
        raise Refused(ErrorCode.INVALID_REQUEST, f"unknown action {sent.verdict}")
    return SettleCommand(
        QueueKey(sent.group_id, sent.topic_id, sent.partition),
        sent.member_id,
        sent.first,
        sent.last,
        SettleAction(sent.verdict),
        None if sent.delay_ms == UNSAID else sent.delay_ms,
        None if sent.lock_ms == UNSAID else sent.lock_ms,
        sent.error_class,
        sent.error_message,
        traceback=sent.traceback,
    )
