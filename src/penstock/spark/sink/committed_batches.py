"""Which batch of a query a task last committed: a position in a group, set in the transaction.

The position of task n of a query is the number of its last committed batch, plus one. It becomes
visible at the moment the batch's records do, because it is part of the same transaction. Positions
need a topic: `TOPIC` holds no records, its partitions are the places the positions stand at.

A query has one group, and one more for every `PLACES` tasks beyond the first ones.
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
from penstock.client.producer.transaction import OpenTransaction, keep_positions
from penstock.wire.messages.offset_commit import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

TOPIC: Final = "penstock-spark-ledger"
PLACES: Final = 16

_NAMED_UNTIL = 9


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A task's line in the ledger."""

    query_id: str
    task: int
    batch_id: int


def txn_name(query_id: str, task: int) -> str:
    """The transactional id of a task, the same in every batch of a query."""
    return f"penstock-{query_id}-{task}"


def place_of(query_id: str, task: int) -> tuple[str, TopicPartition]:
    """The group and the place of a task's position."""
    suffix = f"-{task // PLACES}" if task >= PLACES else ""
    return f"penstock-spark-{query_id}{suffix}", TopicPartition(TOPIC, task % PLACES)


async def ensure_ledger(cluster: Cluster) -> None:
    """Creates the topic where it is not there yet; several tasks may do so at once."""
    if TOPIC not in cluster.metadata.topics:
        await cluster.refresh((TOPIC,))
    if TOPIC in cluster.metadata.topics:
        return
    try:
        await Admin(cluster).create_topic(TOPIC, PLACES)
    except Refused as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    await cluster.topic(TOPIC)


async def next_batch(cluster: Cluster, query_id: str, task: int, *, is_stable: bool = True) -> int:
    """The first batch that the task has not committed. Waits for a transaction that may change it,
    unless it need not be `is_stable`."""
    return await position_of(cluster, *place_of(query_id, task), is_stable=is_stable)


async def position_of(
    cluster: Cluster, group: str, where: TopicPartition, *, is_stable: bool = True
) -> int:
    """Where a group stands, 0 if nowhere."""
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


async def record_batch(cluster: Cluster, txn: OpenTransaction, entry: CommittedBatch) -> None:
    """Notes in the transaction that the task has written this batch."""
    group, where = place_of(entry.query_id, entry.task)
    await keep_positions(cluster, txn, group, {where: Committed(entry.batch_id + 1)})
