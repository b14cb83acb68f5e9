"""A producer's transaction, step by step: begin, add partitions, keep a position, end (KIP-98).

Steps are separate calls, because the process that writes a transaction need not be the one that
ends it: Spark's task writes and leaves it open, the driver ends it with the producer id and epoch
that the task told. A writer that does all of it itself is `transactional`.

Speaks the dialect before KIP-890, which every broker since Kafka 2.5 knows: partitions are added by
name, and the epoch stays the same until the next `begin`; then asking twice to end a transaction
does what asking once does.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.consumer.group_member import GroupMembership
from penstock.client.coordinators import GROUP, TRANSACTION, at_coordinator
from penstock.client.errors import check, code_of
from penstock.client.metadata import TopicPartition, by_topic
from penstock.client.producer.identity import NOBODY, ProducerIdentity
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

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Somebody else writes under this transactional id now."""
_OVER = FENCED | {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE}
"""What a broker says to a producer whose transaction is no longer its own."""

_ADD_PARTITIONS_MAX = 3
_ADD_OFFSETS_MAX = 3
_COMMIT_OFFSETS_MAX = 4
_END_MAX = 4


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction and who writes it."""

    transactional_id: str
    identity: ProducerIdentity

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id!r}"


async def begin(
    cluster: Cluster, transactional_id: str, timeout_ms: int, before: ProducerIdentity = NOBODY
) -> OpenTransaction:
    """Fences whoever wrote under this id before, and returns when what it left open has ended.

    With what the caller has been `before`, it is refused once somebody else has begun (KIP-360).
    """
    identity = await identify(cluster, transactional_id, timeout_ms, before)
    return OpenTransaction(transactional_id, identity)


async def identify(
    cluster: Cluster,
    transactional_id: str | None,
    timeout_ms: int,
    before: ProducerIdentity = NOBODY,
) -> ProducerIdentity:
    """A producer id and epoch; without a transactional id, new ones."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=before.producer_id,
        producer_epoch=before.producer_epoch,
    )

    async def ask(node_id: int | None) -> ProducerIdentity:
        reply = await cluster.call(request, InitProducerIdResponse, node_id=node_id)
        about = "producer id" if transactional_id is None else f"id {transactional_id!r}"
        check(reply.error_code, about=about)
        return ProducerIdentity(reply.producer_id, reply.producer_epoch)

    if transactional_id is None:
        return await cluster.retrying(lambda: ask(None))
    return await at_coordinator(cluster, TRANSACTION, transactional_id, ask)


async def add_partitions(
    cluster: Cluster, txn: OpenTransaction, places: Collection[TopicPartition]
) -> None:
    """Enters partitions before anything is written to them."""
    rows = by_topic((where, where.partition) for where in sorted(places))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=txn.transactional_id,
        v3_and_below_producer_id=txn.identity.producer_id,
        v3_and_below_producer_epoch=txn.identity.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=rows[name]) for name in rows
        ],
    )

    async def ask(node_id: int) -> None:
        reply = await cluster.call(
            request, AddPartitionsToTxnResponse, node_id=node_id, version_max=_ADD_PARTITIONS_MAX
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
            check(code, about=str(txn) if code_of(code) in _OVER else str(where))

    await at_coordinator(cluster, TRANSACTION, txn.transactional_id, ask)


async def keep_positions(
    cluster: Cluster,
    txn: OpenTransaction,
    group: str,
    positions: Mapping[TopicPartition, Committed],
    membership: GroupMembership | None = None,
) -> None:
    """Sets positions of a group when, and only if, the transaction commits.

    With a membership they are refused once the group has expelled that member.
    """
    entered = AddOffsetsToTxnRequest(
        transactional_id=txn.transactional_id,
        producer_id=txn.identity.producer_id,
        producer_epoch=txn.identity.producer_epoch,
        group_id=group,
    )

    async def enter(node_id: int) -> None:
        reply = await cluster.call(
            entered, AddOffsetsToTxnResponse, node_id=node_id, version_max=_ADD_OFFSETS_MAX
        )
        check(reply.error_code, about=str(txn))

    await at_coordinator(cluster, TRANSACTION, txn.transactional_id, enter)
    rows = by_topic(
        (
            where,
            TxnOffsetCommitRequestPartition(
                partition_index=where.partition,
                committed_offset=committed.offset,
                committed_metadata=committed.metadata or "",
            ),
        )
        for where, committed in sorted(positions.items())
    )
    kept = TxnOffsetCommitRequest(
        transactional_id=txn.transactional_id,
        group_id=group,
        producer_id=txn.identity.producer_id,
        producer_epoch=txn.identity.producer_epoch,
        generation_id=-1 if membership is None else membership.epoch,
        member_id="" if membership is None else membership.member_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=rows[name]) for name in rows],
    )

    async def keep(node_id: int) -> None:
        reply = await cluster.call(
            kept, TxnOffsetCommitResponse, node_id=node_id, version_max=_COMMIT_OFFSETS_MAX
        )
        for topic in reply.topics:
            for answer in topic.partitions:
                place = TopicPartition(topic.name, answer.partition_index)
                check(answer.error_code, about=f"group {group!r}, {place}")

    await at_coordinator(cluster, GROUP, group, keep)


async def end(cluster: Cluster, txn: OpenTransaction, *, committed: bool) -> None:
    """Commits or aborts. What it raises where it is not this one's to end `is_over`."""
    request = EndTxnRequest(
        transactional_id=txn.transactional_id,
        producer_id=txn.identity.producer_id,
        producer_epoch=txn.identity.producer_epoch,
        committed=committed,
    )

    async def ask(node_id: int) -> None:
        reply = await cluster.call(request, EndTxnResponse, node_id=node_id, version_max=_END_MAX)
        check(reply.error_code, about=str(txn))

    await at_coordinator(cluster, TRANSACTION, txn.transactional_id, ask)


def is_over(error: BaseException) -> bool:
    """Whether the transaction is no longer this producer's: fenced, timed out, ended."""
    return isinstance(error, Refused) and error.code in _OVER
