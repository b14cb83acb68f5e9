"""Gets sealed batches to their leaders, some requests ahead, each batch once and in order.

Owns what is in flight: at most `REQUESTS_MAX` requests (brokers remember five batches of a
producer) and `BYTES_MAX`; `ship` waits beyond that, which is how a slow broker slows Spark down. A
broker that asks to be left in peace (`throttle_time_ms`) is.

When a batch fails for now, everything behind it is awaited, then what failed goes again, in order
and one by one, with the same sequence numbers: a batch that the leader has already is not written
again. Brokers may be away for `retry_timeout_ms`.
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
from penstock.spark.sink.row_batches import Part
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
class _Sent:
    parts: Sequence[Part]
    reply: "asyncio.Future[ProduceResponse]"
    size_bytes: int


class Shipper:
    def __init__(
        self, cluster: Cluster, txn: OpenTransaction | None, retry_timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._txn = txn
        self._retry_timeout_ms = retry_timeout_ms
        self._in_flight: deque[_Sent] = deque()
        self._in_flight_bytes = 0
        self._entered: set[TopicPartition] = set()
        self._confirmed: set[TopicPartition] = set()
        self._failed: list[Part] = []

    async def ship(self, parts: Sequence[Part]) -> None:
        """Sends batches; returns when they are on their way, not when they are written."""
        await self._enter(parts)
        for node_id, group in (await self._by_leader(parts)).items():
            for request in _requests(group):
                await self._post(node_id, request)

    async def finish(self) -> None:
        """Waits until everything is written."""
        while self._in_flight:
            await self._take()
        await self._recover()

    # Inside.

    async def _enter(self, parts: Sequence[Part]) -> None:
        fresh = {part.where for part in parts} - self._entered
        if not fresh:
            return
        txn = self._txn
        if txn is not None:
            await self._cluster.retrying(
                lambda: add_partitions(self._cluster, txn, fresh),
                timeout_ms=self._retry_timeout_ms,
            )
        self._entered |= fresh

    async def _by_leader(self, parts: Sequence[Part]) -> dict[int, list[Part]]:
        groups: dict[int, list[Part]] = {}

        async def look() -> None:
            groups.clear()
            for part in parts:
                groups.setdefault(await self._cluster.leader(part.where), []).append(part)

        topics = {part.where.topic for part in parts}
        await self._cluster.retrying(look, timeout_ms=self._retry_timeout_ms, topics=topics)
        return groups

    async def _post(self, node_id: int, parts: Sequence[Part]) -> None:
        # A broker that does not know the producer yet takes any sequence as the first one, so
        # the first batch of a partition goes alone.
        is_first = any(part.where not in self._confirmed for part in parts)
        size_bytes = sum(len(part.batch) for part in parts)
        while self._in_flight and (
            is_first
            or len(self._in_flight) >= REQUESTS_MAX
            or self._in_flight_bytes + size_bytes > BYTES_MAX
        ):
            await self._take()
        await self._recover()
        try:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(ProduceRequest, EXPLICIT_TXN_MAX)
            reply = connection.send(self._request(parts), ProduceResponse, version=version)
        except _NETWORK:
            self._failed += parts
            return
        self._in_flight.append(_Sent(parts, reply, size_bytes))
        self._in_flight_bytes += size_bytes

    def _request(self, parts: Sequence[Part]) -> ProduceRequest:
        return produce_request(
            [(part.where, memoryview(part.batch)) for part in parts],
            timeout_ms=_WRITE_TIMEOUT_MS,
            transactional_id=None if self._txn is None else self._txn.transactional_id,
        )

    async def _take(self) -> None:
        """Awaits the oldest request; what failed for now is kept, what failed for good raised."""
        sent = self._in_flight.popleft()
        self._in_flight_bytes -= sent.size_bytes
        try:
            reply = await sent.reply
        except _NETWORK:
            self._failed += sent.parts
            return
        codes = _codes(reply)
        for part in sent.parts:
            code = codes.get(part.where, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _DONE:
                self._confirmed.add(part.where)
            elif code in RETRIABLE or (
                code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._failed
            ):
                self._failed.append(part)
            else:
                raise refusal(int(code), about=str(part.where))
        if reply.throttle_time_ms > 0:
            await asyncio.sleep(reply.throttle_time_ms / 1000)

    async def _recover(self) -> None:
        if not self._failed:
            return
        while self._in_flight:
            await self._take()
        failed, self._failed = self._failed, []
        for part in sorted(failed, key=lambda part: part.ordinal):
            await self._cluster.retrying(
                partial(self._write, part),
                timeout_ms=self._retry_timeout_ms,
                topics={part.where.topic},
            )

    async def _write(self, part: Part) -> None:
        node_id = await self._cluster.leader(part.where)
        reply = await self._cluster.call(
            self._request([part]), ProduceResponse, node_id=node_id, version_max=EXPLICIT_TXN_MAX
        )
        code = _codes(reply).get(part.where, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code not in _DONE:
            raise Refused(code, refusal(int(code), about=str(part.where)).message)
        self._confirmed.add(part.where)


def _requests(parts: Sequence[Part]) -> list[list[Part]]:
    """Groups of about `REQUEST_BYTES`; a partition is at most once in each, as brokers want it."""
    groups: list[list[Part]] = []
    size = 0
    taken: set[TopicPartition] = set()
    for part in parts:
        if not groups or size >= REQUEST_BYTES or part.where in taken:
            groups.append([])
            size = 0
            taken.clear()
        groups[-1].append(part)
        size += len(part.batch)
        taken.add(part.where)
    return groups


def _codes(reply: ProduceResponse) -> dict[TopicPartition, ErrorCode]:
    return {where: code_of(row.error_code) for where, row in produced_rows(reply).items()}
