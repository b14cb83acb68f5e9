"""Ledger of committed batches: a committed offset per task of a query, set in its transaction.

The offset of task n of a query is the number of its last committed batch plus one. It becomes
visible together with the batch's records, because it is part of the same transaction. Committed
offsets need a topic: the ledger topic `TOPIC` has no records, only partitions to commit offsets of.

A query has one group, and one more for every further `LEDGER_PARTITIONS` tasks.
"""

from dataclasses import dataclass
from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.coordinators import GROUP, at_coordinator
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition
from penstock.client.producer.transaction import OpenTransaction, commit_group_offsets
from penstock.wire.messages.offset_commit import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

TOPIC: Final = "penstock-spark-ledger"
LEDGER_PARTITIONS: Final = 16

_NAMED_UNTIL = 9


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """Entry of a task in the ledger."""

    query_id: str
    task: int
    batch_id: int


def transactional_id_of(query_id: str, task: int) -> str:
    """Transactional id of a task, the same in every batch of a query."""
    return f"penstock-{query_id}-{task}"


def group_and_partition(query_id: str, task: int) -> tuple[str, TopicPartition]:
    """Group and ledger partition of a task's committed offset."""
    suffix = f"-{task // LEDGER_PARTITIONS}" if task >= LEDGER_PARTITIONS else ""
    return f"penstock-spark-{query_id}{suffix}", TopicPartition(TOPIC, task % LEDGER_PARTITIONS)


async def ensure_ledger(cluster: Cluster) -> None:
    """Creates the ledger topic if it is missing; several tasks may do so concurrently."""
    if TOPIC not in cluster.metadata.topics:
        await cluster.refresh((TOPIC,))
    if TOPIC in cluster.metadata.topics:
        return
    try:
        await Admin(cluster).create_topic(TOPIC, LEDGER_PARTITIONS)
    except Refused as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    await cluster.topic(TOPIC)


async def next_uncommitted_batch(
    cluster: Cluster, query_id: str, task: int, *, is_stable: bool = True
) -> int:
    """First batch that the task has not committed.

    With `is_stable`, waits for open transactions that may change it.
    """
    return await committed_offset_of(
        cluster, *group_and_partition(query_id, task), is_stable=is_stable
    )


async def committed_offset_of(
    cluster: Cluster, group: str, where: TopicPartition, *, is_stable: bool = True
) -> int:
    """Committed offset of a group, 0 if it has none."""
    before_v8 = OffsetFetchRequestTopic(name=where.topic, partition_indexes=[where.partition])
    since_v8 = OffsetFetchRequestTopics(name=where.topic, partition_indexes=[where.partition])
    request = OffsetFetchRequest(
        group_id=group,
        topics=[before_v8],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[since_v8])],
        require_stable=is_stable,
    )

    async def ask(node_id: int) -> int:
        reply = await cluster.call(
            request, OffsetFetchResponse, node_id=node_id, version_max=_NAMED_UNTIL
        )
        check(reply.error_code, about=f"group {group!r}")
        rows = [row for topic in reply.topics for row in topic.partitions]
        for answer in reply.groups:
            if answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(answer.error_code, about=f"group {group!r}")
            rows += [row for topic in answer.topics for row in topic.partitions]  # type: ignore[misc]
        for row in rows:
            check(row.error_code, about=f"group {group!r}")
            return max(0, row.committed_offset)
        return 0

    return await at_coordinator(cluster, GROUP, group, ask)


async def record_committed_batch(
    cluster: Cluster, txn: OpenTransaction, entry: CommittedBatch
) -> None:
    """Adds to the transaction that the task has written this batch."""
    group, where = group_and_partition(entry.query_id, entry.task)
    await commit_group_offsets(cluster, txn, group, {where: Committed(entry.batch_id + 1)})
