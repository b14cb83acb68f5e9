"""Pipelined, idempotent sender of record batches to partition leaders, in order.

Bounds: at most `REQUESTS_MAX` requests in flight (brokers remember five batches of a producer) and
`BYTES_MAX`; `send` waits beyond that, which is the backpressure of a slow broker on Spark. Waits
for the `throttle_time_ms` of a reply.

When a batch fails with a retriable error, the sender awaits all later requests. Then it resends the
failed batches in order and one by one, with the same sequence numbers, so that the leader skips
batches it already has. Brokers may be unavailable for `retry_timeout_ms`.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.errors import (
    RETRIABLE,
    ConnectionLost,
    RequestTimeout,
    Unreachable,
    code_of,
    refusal,
)
from penstock.client.metadata import TopicPartition
from penstock.client.producer.produce_request import (
    EXPLICIT_TXN_MAX,
    produce_request,
    produced_rows,
)
from penstock.client.producer.transaction import OpenTransaction, add_partitions
from penstock.spark.sink.row_batches import PartitionBatch
from penstock.wire.messages.produce import (
    ProduceRequest,
    ProduceResponse,
)

REQUESTS_MAX: Final = 5
REQUEST_BYTES: Final = 1 << 20
BYTES_MAX: Final = 16 << 20

_WRITE_TIMEOUT_MS = 30_000
_NETWORK = (Unreachable, ConnectionLost, RequestTimeout)
_DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(slots=True)
class _InFlight:
    batches: Sequence[PartitionBatch]
    reply: "asyncio.Future[ProduceResponse]"
    size_bytes: int


class BatchSender:
    def __init__(
        self, cluster: Cluster, txn: OpenTransaction | None, retry_timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._txn = txn
        self._retry_timeout_ms = retry_timeout_ms
        self._in_flight: deque[_InFlight] = deque()
        self._in_flight_bytes = 0
        self._added: set[TopicPartition] = set()
        self._confirmed: set[TopicPartition] = set()
        self._failed: list[PartitionBatch] = []

    async def send(self, batches: Sequence[PartitionBatch]) -> None:
        """Sends batches; returns when their requests are sent, not when they are written."""
        await self._add_partitions(batches)
        for node_id, group in (await self._by_leader(batches)).items():
            for request in _requests(group):
                await self._send_request(node_id, request)

    async def finish(self) -> None:
        """Waits until all batches are written."""
        while self._in_flight:
            await self._await_oldest()
        await self._resend_failed()

    async def _add_partitions(self, batches: Sequence[PartitionBatch]) -> None:
        fresh = {batch.where for batch in batches} - self._added
        if not fresh:
            return
        txn = self._txn
        if txn is not None:
            await self._cluster.retrying(
                lambda: add_partitions(self._cluster, txn, fresh),
                timeout_ms=self._retry_timeout_ms,
            )
        self._added |= fresh

    async def _by_leader(
        self, batches: Sequence[PartitionBatch]
    ) -> dict[int, list[PartitionBatch]]:
        groups: dict[int, list[PartitionBatch]] = {}

        async def look() -> None:
            groups.clear()
            for batch in batches:
                groups.setdefault(await self._cluster.leader(batch.where), []).append(batch)

        topics = {batch.where.topic for batch in batches}
        await self._cluster.retrying(look, timeout_ms=self._retry_timeout_ms, topics=topics)
        return groups

    async def _send_request(self, node_id: int, batches: Sequence[PartitionBatch]) -> None:
        # A broker that does not know the producer yet accepts any sequence as the first one, so
        # no other request is in flight with the first batch of a partition.
        is_first = any(batch.where not in self._confirmed for batch in batches)
        size_bytes = sum(len(batch.data) for batch in batches)
        while self._in_flight and (
            is_first
            or len(self._in_flight) >= REQUESTS_MAX
            or self._in_flight_bytes + size_bytes > BYTES_MAX
        ):
            await self._await_oldest()
        await self._resend_failed()
        try:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(ProduceRequest, EXPLICIT_TXN_MAX)
            reply = connection.send(self._request(batches), ProduceResponse, version=version)
        except _NETWORK:
            self._failed += batches
            return
        self._in_flight.append(_InFlight(batches, reply, size_bytes))
        self._in_flight_bytes += size_bytes

    def _request(self, batches: Sequence[PartitionBatch]) -> ProduceRequest:
        return produce_request(
            [(batch.where, memoryview(batch.data)) for batch in batches],
            timeout_ms=_WRITE_TIMEOUT_MS,
            transactional_id=None if self._txn is None else self._txn.transactional_id,
        )

    async def _await_oldest(self) -> None:
        """Awaits the oldest request; keeps retriable failures for later, raises all others."""
        sent = self._in_flight.popleft()
        self._in_flight_bytes -= sent.size_bytes
        try:
            reply = await sent.reply
        except _NETWORK:
            self._failed += sent.batches
            return
        codes = _codes(reply)
        for batch in sent.batches:
            code = codes.get(batch.where, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _DONE:
                self._confirmed.add(batch.where)
            elif code in RETRIABLE or (
                code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._failed
            ):
                self._failed.append(batch)
            else:
                raise refusal(int(code), about=str(batch.where))
        if reply.throttle_time_ms > 0:
            await asyncio.sleep(reply.throttle_time_ms / 1000)

    async def _resend_failed(self) -> None:
        if not self._failed:
            return
        while self._in_flight:
            await self._await_oldest()
        failed, self._failed = self._failed, []
        for batch in sorted(failed, key=lambda batch: batch.ordinal):
            await self._cluster.retrying(
                partial(self._write, batch),
                timeout_ms=self._retry_timeout_ms,
                topics={batch.where.topic},
            )

    async def _write(self, batch: PartitionBatch) -> None:
        node_id = await self._cluster.leader(batch.where)
        reply = await self._cluster.call(
            self._request([batch]), ProduceResponse, node_id=node_id, version_max=EXPLICIT_TXN_MAX
        )
        code = _codes(reply).get(batch.where, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code not in _DONE:
            raise Refused(code, refusal(int(code), about=str(batch.where)).message)
        self._confirmed.add(batch.where)


def _requests(batches: Sequence[PartitionBatch]) -> list[list[PartitionBatch]]:
    """Groups of about `REQUEST_BYTES`, with each partition at most once, as brokers require."""
    groups: list[list[PartitionBatch]] = []
    size = 0
    taken: set[TopicPartition] = set()
    for batch in batches:
        if not groups or size >= REQUEST_BYTES or batch.where in taken:
            groups.append([])
            size = 0
            taken.clear()
        groups[-1].append(batch)
        size += len(batch.data)
        taken.add(batch.where)
    return groups


def _codes(reply: ProduceResponse) -> dict[TopicPartition, ErrorCode]:
    return {where: code_of(row.error_code) for where, row in produced_rows(reply).items()}
