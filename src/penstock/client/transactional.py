"""Writes records and positions in transactions: all of one, or nothing of it (KIP-98, KIP-447).

One transaction is one call: batches for some partitions, positions of one group with a word beside
each, and the end. Whatever fails leaves the writer without an identity; `begin` gets the next
epoch of it, which ends what was open, and the caller reads from the positions whether the last
transaction counts. So a caller that keeps its place in the positions does everything exactly once.

Whoever begins under the same transactional id later has taken its place: `Refused` with
INVALID_PRODUCER_EPOCH or PRODUCER_FENCED. A writer never takes it back by itself.

Speaks the dialect before KIP-890, which every broker since Kafka 2.5 knows. A batch that the
partition's leader may have got is sent again with the same sequence, so it is written once.
"""

from collections.abc import Mapping, Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.committed import Committed
from penstock.client.coordinators import GROUP, TRANSACTION, at_coordinator
from penstock.client.errors import RETRIABLE, check, refusal
from penstock.client.group_member import Membership
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.messages.txns import (
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

NOBODY = -1
TIMEOUT_MS = 60_000
PRODUCE_TIMEOUT_MS = 15_000

_PRODUCE_MAX, _ADD_MAX, _COMMIT_MAX, _END_MAX = 11, 3, 4, 4
"""The last versions of the older dialect."""


FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
"""Somebody else writes under this transactional id now."""


def is_passing(error: Exception) -> bool:
    """Whether it may end better after another `begin`."""
    if isinstance(error, Refused):
        return error.code in RETRIABLE or error.code is ErrorCode.INVALID_TXN_STATE
    return isinstance(error, OSError)


class TransactionalWriter:
    """One transaction at a time under one transactional id."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._producer_id = NOBODY
        self._epoch = NOBODY
        self._sequences: dict[TopicPartition, int] = {}
        self._is_usable = False

    async def begin(self) -> None:
        """Takes the place of whoever wrote under this id before, and ends what was open."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            # With what it has been before, it is refused once somebody else has begun (KIP-360).
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
        )

        async def ask(node_id: int) -> InitProducerIdResponse:
            reply = await self._cluster.call(request, InitProducerIdResponse, node_id=node_id)
            check(reply.error_code, about=self._name)
            return reply

        reply = await at_coordinator(self._cluster, TRANSACTION, self.transactional_id, ask)
        self._producer_id, self._epoch = reply.producer_id, reply.producer_epoch
        self._sequences.clear()
        self._is_usable = True

    async def write(
        self,
        batches: Mapping[TopicPartition, Sequence[Record]],
        group: str,
        positions: Mapping[TopicPartition, Committed],
        membership: Membership | None = None,
    ) -> dict[TopicPartition, int]:
        """One whole transaction; the first offset of each batch. If it raises: `begin` again.

        With a membership the positions are refused once the group has expelled that member.
        """
        assert self._is_usable, "begin first"
        self._is_usable = False
        if batches:
            await self._add_partitions(sorted(batches))
        offsets = await self._produce(batches)
        if positions:
            await self._add_group(group)
            await self._commit_positions(group, positions, membership)
        await self._end()
        self._is_usable = True
        return offsets

    @property
    def _name(self) -> str:
        return f"transactional id {self.transactional_id!r}"

    # -- one step each ----------------------------------------------------------------------

    async def _add_partitions(self, places: list[TopicPartition]) -> None:
        rows: dict[str, list[int]] = {}
        for where in places:
            rows.setdefault(where.topic, []).append(where.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=rows[name]) for name in rows
            ],
        )

        async def ask(node_id: int) -> None:
            reply = await self._cluster.call(
                request, AddPartitionsToTxnResponse, node_id=node_id, version_max=_ADD_MAX
            )
            answers = [
                (TopicPartition(topic.name, row.partition_index), row.partition_error_code)
                for topic in reply.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]
            # One that is refused has the others called OPERATION_NOT_ATTEMPTED.
            for where, code in sorted(
                answers, key=lambda answer: answer[1] == ErrorCode.OPERATION_NOT_ATTEMPTED
            ):
                check(code, about=str(where))

        await at_coordinator(self._cluster, TRANSACTION, self.transactional_id, ask)

    async def _produce(
        self, batches: Mapping[TopicPartition, Sequence[Record]]
    ) -> dict[TopicPartition, int]:
        encoded = {
            where: encode(
                records,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=self._sequences.get(where, 0),
                transactional=True,
            )
            for where, records in batches.items()
        }
        offsets: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            missing = [where for where in batches if where not in offsets]
            for node_id, places in (await self._cluster.by_leader(missing)).items():
                parts = {where: memoryview(encoded[where]) for where in places}
                await self._produce_at(node_id, parts, offsets)

        if batches:
            topics = {where.topic for where in batches}
            await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms, topics=topics)
        for where, records in batches.items():
            self._sequences[where] = self._sequences.get(where, 0) + len(records)
        return offsets

    async def _produce_at(
        self,
        node_id: int,
        batches: Mapping[TopicPartition, memoryview],
        offsets: dict[TopicPartition, int],
    ) -> None:
        rows: dict[str, list[PartitionProduceData]] = {}
        for where, batch in batches.items():
            row = PartitionProduceData(index=where.partition, records=batch)
            rows.setdefault(where.topic, []).append(row)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=name, partition_data=rows[name]) for name in rows],
        )
        reply = await self._cluster.call(
            request, ProduceResponse, node_id=node_id, version_max=_PRODUCE_MAX
        )
        failure: Refused | None = None
        for topic in reply.responses:
            for answer in topic.partition_responses:
                where = TopicPartition(topic.name, answer.index)
                if answer.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    offsets[where] = answer.base_offset
                else:
                    failure = refusal(answer.error_code, answer.error_message, about=str(where))
        if failure is not None:
            raise failure

    async def _add_group(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )

        async def ask(node_id: int) -> None:
            reply = await self._cluster.call(
                request, AddOffsetsToTxnResponse, node_id=node_id, version_max=_ADD_MAX
            )
            check(reply.error_code, about=self._name)

        await at_coordinator(self._cluster, TRANSACTION, self.transactional_id, ask)

    async def _commit_positions(
        self,
        group: str,
        positions: Mapping[TopicPartition, Committed],
        membership: Membership | None,
    ) -> None:
        rows: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for where, committed in sorted(positions.items()):
            row = TxnOffsetCommitRequestPartition(
                partition_index=where.partition,
                committed_offset=committed.offset,
                committed_metadata=committed.metadata or "",
            )
            rows.setdefault(where.topic, []).append(row)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=-1 if membership is None else membership.epoch,
            member_id="" if membership is None else membership.member_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=rows[name]) for name in rows],
        )

        async def ask(node_id: int) -> None:
            reply = await self._cluster.call(
                request, TxnOffsetCommitResponse, node_id=node_id, version_max=_COMMIT_MAX
            )
            for topic in reply.topics:
                for answer in topic.partitions:
                    where = TopicPartition(topic.name, answer.partition_index)
                    check(answer.error_code, about=str(where))

        await at_coordinator(self._cluster, GROUP, group, ask)

    async def _end(self) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )

        async def ask(node_id: int) -> None:
            reply = await self._cluster.call(
                request, EndTxnResponse, node_id=node_id, version_max=_END_MAX
            )
            check(reply.error_code, about=self._name)

        # Committing twice does what committing once does, as long as nothing is begun in between.
        await at_coordinator(self._cluster, TRANSACTION, self.transactional_id, ask)
