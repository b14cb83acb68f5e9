"""Transactional producer at protocol level, in both protocol versions, with all outcomes.

From transactions v2 on (KIP-890), Produce and TxnOffsetCommit add partitions and groups, and each
transaction has its own epoch; before, they are added by separate requests. With a `late` client,
some requests are sent, or sent a second time, over another slow connection. In the older version,
whose epochs do not distinguish transactions, only Produce is, and the transaction is aborted at
once: the broker must keep late batches out of the next one.
"""

import asyncio
import contextlib
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.client.errors import RETRIABLE
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.wire.records import Record, encode
from simulation.checkers.identities import IdentityChecker
from simulation.client import NO_REPLY, UNKNOWN_OUTCOME, SimClient

TRANSACTION: Final = 1
"""FindCoordinator's key type."""
GROUP: Final = 0
TRIES_MAX: Final = 8
DUPLICATE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class TxnFailed(Exception):
    """The transaction has failed; `is_unknown` if a request has an unknown outcome."""

    def __init__(self, code: ErrorCode | None, *, is_unknown: bool) -> None:
        super().__init__(code.name if code else "no answer")
        self.code = code
        self.is_unknown = is_unknown


class Membership(NamedTuple):
    """Group membership of the consumer at the start of a transaction (KIP-447)."""

    group: str
    member_id: str
    epoch: int
    instance: str | None


class TxnProducer:
    """Instance of an application that writes with a transactional id."""

    def __init__(
        self,
        client: SimClient,
        name: str,
        instance: int,
        checker: IdentityChecker,
        *,
        is_v2: bool,
        timeout_ms: int,
        late: SimClient | None = None,
    ) -> None:
        self.client = client
        self.name = name
        self.instance = instance
        self.checker = checker
        self.is_v2 = is_v2
        self.late = late
        self.producer_id = -1
        self.epoch = -1
        self.rng = client.world.rng(f"producer/{name}/{instance}")
        self._timeout_ms = timeout_ms
        self._asked_at = 0.0
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[Any] = set()

    # -- InitProducerId ---------------------------------------------------------------------

    async def initialise(self, *, keep: bool = False) -> None:
        """Gets a new identity; with `keep` the next epoch of the current one (KIP-360)."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self.producer_id if keep else -1,
            producer_epoch=self.epoch if keep else -1,
        )
        reply = await self._retry("InitProducerId", request, InitProducerIdResponse, 5)
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        self._sequences.clear()
        self._added.clear()
        self.checker.initialised(
            self.name,
            self.instance,
            self.producer_id,
            self.epoch,
            self._asked_at,
            is_new=not keep,
        )

    # -- writing ----------------------------------------------------------------------------

    async def produce(self, where: TopicPartition, values: list[bytes]) -> None:
        """Produces one batch; returns when it is acknowledged."""
        if not self.is_v2 and where not in self._added:
            await self._add_partition(where)
        sequence = self._sequences.get(where, 0)
        request = self._produce_request(where, values, sequence)
        version = 12 if self.is_v2 else 11
        if self.late is not None and self.rng.random() < (0.1 if self.is_v2 else 0.25):
            if not self.is_v2:
                # The coordinator commits this while it verifies the batch.
                self.client.start(self._add_unobserved(where))
                await asyncio.sleep(self.rng.uniform(0, 0.001))
            self._send_late(where, request, version)
            if not self.is_v2 or self.rng.random() < 0.5:
                # The transaction is aborted while the batch is in flight.
                await asyncio.sleep(self.rng.uniform(0, 0.003))
                raise TxnFailed(None, is_unknown=True)
        for _ in range(TRIES_MAX):
            asked_at = self.client.world.now()
            try:
                reply = await self.client.ask_leader(
                    where, request, ProduceResponse, version=version
                )
            except NO_REPLY:
                await self._pause()
                continue
            row = reply.responses[0].partition_responses[0]
            code = self.client.note_reply("Produce", row.error_code)
            if code in (ErrorCode.NONE, DUPLICATE):
                self._succeeded(asked_at, "Produce")
                self._sequences[where] = sequence + len(values)
                return
            if code not in RETRIABLE:
                raise TxnFailed(code, is_unknown=True)
            await self._pause()
        raise TxnFailed(None, is_unknown=True)

    def _produce_request(
        self, where: TopicPartition, values: list[bytes], sequence: int
    ) -> ProduceRequest:
        batch = encode(
            [Record(0, 1_767_225_600_000, None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=where.partition, records=memoryview(batch))
        topic = TopicProduceData(name=where.topic, partition_data=[data])
        return ProduceRequest(
            transactional_id=self.name, acks=-1, timeout_ms=4_000, topic_data=[topic]
        )

    def _send_late(self, where: TopicPartition, request: ProduceRequest, version: int) -> None:
        late = self.late
        assert late is not None
        asked_at, epoch = self.client.world.now(), self.epoch

        async def send() -> None:
            try:
                reply = await late.ask_leader(
                    where, request, ProduceResponse, version=version, timeout_ms=30_000
                )
            except NO_REPLY:
                return
            code = late.note_reply(
                "late Produce", reply.responses[0].partition_responses[0].error_code
            )
            if code is ErrorCode.NONE:
                self._succeeded(asked_at, "a late Produce", epoch)

        late.start(send())

    async def _add_unobserved(self, where: TopicPartition) -> None:
        """Adds one more partition and ignores the result."""
        other = TopicPartition(where.topic, 1 - where.partition)
        with contextlib.suppress(*NO_REPLY):
            await self._ask(self._add_request(other), AddPartitionsToTxnResponse, 3)

    def _add_request(self, where: TopicPartition) -> AddPartitionsToTxnRequest:
        row = AddPartitionsToTxnTopic(name=where.topic, partitions=[where.partition])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[row],
        )

    async def _add_partition(self, where: TopicPartition) -> None:
        request = self._add_request(where)
        for _ in range(TRIES_MAX):
            try:
                reply = await self._ask(request, AddPartitionsToTxnResponse, 3)
            except NO_REPLY:
                await self._pause()
                continue
            result = reply.results_by_topic_v3_and_below[0].results_by_partition[0]
            code = self._note_reply("AddPartitionsToTxn", result.partition_error_code)
            if code is ErrorCode.NONE:
                self._added.add(where)
                return
            if code not in RETRIABLE:
                raise TxnFailed(code, is_unknown=True)
            await self._pause()
        raise TxnFailed(None, is_unknown=True)

    # -- offsets ----------------------------------------------------------------------------

    async def commit_offset(self, member: Membership, where: TopicPartition, offset: int) -> None:
        """Commits an offset as part of the transaction."""
        if not self.is_v2 and member.group not in self._added:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=member.group,
            )
            await self._retry("AddOffsetsToTxn", request, AddOffsetsToTxnResponse, 3)
            self._added.add(member.group)
        row = TxnOffsetCommitRequestPartition(
            partition_index=where.partition, committed_offset=offset, committed_metadata=""
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=member.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=member.epoch,
            member_id=member.member_id,
            group_instance_id=member.instance,
            topics=[TxnOffsetCommitRequestTopic(name=where.topic, partitions=[row])],
        )
        for _ in range(TRIES_MAX):
            asked_at = self.client.world.now()
            try:
                reply = await self.client.ask_coordinator(
                    GROUP,
                    member.group,
                    commit,
                    TxnOffsetCommitResponse,
                    version=5 if self.is_v2 else 4,
                )
            except NO_REPLY:
                await self._pause()
                continue
            code = self.client.note_reply(
                "TxnOffsetCommit", reply.topics[0].partitions[0].error_code, GROUP, member.group
            )
            if code is ErrorCode.NONE:
                self._succeeded(asked_at, "TxnOffsetCommit")
                return
            if code not in RETRIABLE:
                raise TxnFailed(code, is_unknown=True)
            await self._pause()
        raise TxnFailed(None, is_unknown=True)

    # -- EndTxn -----------------------------------------------------------------------------

    async def end(self, *, committed: bool) -> None:
        """Ends the transaction; TxnFailed.is_unknown if it may have ended despite an error."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        is_unknown = self.is_v2 and self.late is not None and self.rng.random() < 0.1
        if is_unknown and self.late is not None:
            self.late.start(self._end_late(self.late, request))
        version = 5 if self.is_v2 else 4
        for _ in range(TRIES_MAX):
            asked_at = self.client.world.now()
            try:
                reply = await self._ask(request, EndTxnResponse, version)
            except NO_REPLY as error:
                is_unknown = is_unknown or isinstance(error, UNKNOWN_OUTCOME)
                await self._pause()
                continue
            code = self._note_reply("EndTxn", reply.error_code)
            if code is ErrorCode.NONE:
                self._succeeded(asked_at, "EndTxn")
                self._ended(reply)
                return
            if code not in RETRIABLE:
                raise TxnFailed(code, is_unknown=is_unknown)
            # It may be decided already, with the reply lost.
            is_unknown = True
            await self._pause()
        raise TxnFailed(None, is_unknown=True)

    async def _end_late(self, late: SimClient, request: EndTxnRequest) -> None:
        try:
            reply = await late.ask_coordinator(
                TRANSACTION, self.name, request, EndTxnResponse, version=5, timeout_ms=30_000
            )
        except NO_REPLY:
            return
        late.note_reply("late EndTxn", reply.error_code, TRANSACTION, self.name)

    def _ended(self, reply: EndTxnResponse) -> None:
        self._added.clear()
        if self.is_v2:
            self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
            self._sequences.clear()

    # -- internals --------------------------------------------------------------------------

    async def _retry(self, api: str, request: Any, answer: type[Any], version: int) -> Any:
        for _ in range(TRIES_MAX):
            asked_at = self._asked_at = self.client.world.now()
            try:
                reply = await self._ask(request, answer, version)
            except NO_REPLY:
                await self._pause()
                continue
            code = self._note_reply(api, reply.error_code)
            if code is ErrorCode.NONE:
                if api != "InitProducerId":
                    self._succeeded(asked_at, api)
                return reply
            if code not in RETRIABLE:
                raise TxnFailed(code, is_unknown=True)
            await self._pause()
        raise TxnFailed(None, is_unknown=True)

    def _succeeded(self, asked_at: float, what: str, epoch: int | None = None) -> None:
        epoch = self.epoch if epoch is None else epoch
        self.checker.succeeded(self.name, self.instance, self.producer_id, epoch, asked_at, what)

    async def _ask(self, request: Any, answer: type[Any], version: int) -> Any:
        return await self.client.ask_coordinator(
            TRANSACTION, self.name, request, answer, version=version
        )

    def _note_reply(self, api: str, code: int) -> ErrorCode:
        return self.client.note_reply(api, code, TRANSACTION, self.name)

    async def _pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.05, 0.4))
