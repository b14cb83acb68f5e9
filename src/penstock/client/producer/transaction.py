"""Steps of a producer's transaction: begin, add partitions, commit group offsets, end (KIP-98).

Steps are separate functions, because one process may write a transaction and another one end it: a
Spark task writes it and leaves it open, the driver ends it with the producer id and epoch from the
task. `transactional` is a writer that does all steps.

Uses the protocol before KIP-890, which every broker since Kafka 2.5 supports. Partitions are added
by name, and the epoch stays the same until the next `begin`, so ending a transaction is idempotent.
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
from penstock.client.producer.identity import NO_IDENTITY, ProducerIdentity
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
"""Errors of a producer that was fenced: another producer uses its transactional id now."""
_OVER = FENCED | {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE}
"""Errors of a producer that no longer owns its transaction."""

_ADD_PARTITIONS_MAX = 3
_ADD_OFFSETS_MAX = 3
_COMMIT_OFFSETS_MAX = 4
_END_MAX = 4


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Open transaction: its transactional id and its producer."""

    transactional_id: str
    identity: ProducerIdentity

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id!r}"


async def begin(
    cluster: Cluster, transactional_id: str, timeout_ms: int, before: ProducerIdentity = NO_IDENTITY
) -> OpenTransaction:
    """Fences the previous producer of this id and waits until its open transaction has ended.

    With the caller's identity in `before`, refused once another producer has begun (KIP-360).
    """
    identity = await identify(cluster, transactional_id, timeout_ms, before)
    return OpenTransaction(transactional_id, identity)


async def identify(
    cluster: Cluster,
    transactional_id: str | None,
    timeout_ms: int,
    before: ProducerIdentity = NO_IDENTITY,
) -> ProducerIdentity:
    """Requests a producer id and epoch; without a transactional id, new ones."""
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
    """Adds partitions to the transaction, before the first write to them."""
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
        # If one partition is refused, the rest get OPERATION_NOT_ATTEMPTED.
        for where, code in sorted(
            answers, key=lambda answer: answer[1] == ErrorCode.OPERATION_NOT_ATTEMPTED
        ):
            check(code, about=str(txn) if code_of(code) in _OVER else str(where))

    await at_coordinator(cluster, TRANSACTION, txn.transactional_id, ask)


async def commit_group_offsets(
    cluster: Cluster,
    txn: OpenTransaction,
    group: str,
    positions: Mapping[TopicPartition, Committed],
    membership: GroupMembership | None = None,
) -> None:
    """Commits offsets of a group with the transaction, and only if it commits.

    With a membership, they are refused once the group has removed that member.
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
    """Commits or aborts; `is_lost` is True for the error if the producer no longer owns it."""
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


def is_lost(error: BaseException) -> bool:
    """True if the producer no longer owns the transaction: fenced, timed out or ended."""
    return isinstance(error, Refused) and error.code in _OVER
