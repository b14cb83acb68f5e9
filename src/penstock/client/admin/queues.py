"""Administration of queues: list, inspect and change delivery state.

Uses Penstock's own APIs (`wire.messages.internal.queue_admin`); brokers of another kind close the
connection. Requests about a partition go to its leader, and all changes are idempotent.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.coordinators import at_every_broker
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.internal.queue_admin import (
    ChangedPartition,
    ChangeQueuesRequest,
    ChangeQueuesResponse,
    InspectedPartition,
    InspectQueuesRequest,
    InspectQueuesResponse,
    KeptPosition,
    ListPositionsRequest,
    ListPositionsResponse,
    OffsetRun,
    QueueReport,
    QueueRun,
)

VERSION = 0
FINISH = 0
MAKE_AVAILABLE = 1
WITHDRAW = 2
SHARE = 0
RUNS_AT_ONCE = 5_000
CHANGED_AT_ONCE = 5_000

Run = tuple[int, int]
"""First and last offset, both included."""
Answer = TypeVar("Answer")


class QueueName(NamedTuple):
    """Queue: a topic that a share group reads."""

    topic: str
    group: str


async def list_queues(
    cluster: Cluster, topics: Collection[str] | None = None
) -> dict[QueueName, list[int]]:
    """Returns every queue in which a share group has a position, with its partitions; sorted."""

    async def ask(node_id: int) -> list[KeptPosition]:
        request = ListPositionsRequest(topics=None if topics is None else sorted(topics))
        reply = await _call(cluster, node_id, request, ListPositionsResponse)
        check(reply.error_code, reply.error_message, about=f"queues of broker {node_id}")
        return [row for row in reply.positions if row.kind == SHARE]

    found: dict[QueueName, set[int]] = {}
    for row in await at_every_broker(cluster, ask):
        found.setdefault(QueueName(row.topic, row.group_id), set()).add(row.partition)
    return {name: sorted(found[name]) for name in sorted(found)}


async def inspect(
    cluster: Cluster,
    group: str,
    places: Collection[TopicPartition],
    *,
    from_offset: int = 0,
    runs_max: int = 0,
) -> dict[TopicPartition, QueueReport]:
    """Returns reports on the delivery state of a group in partitions of one topic."""
    found: dict[TopicPartition, QueueReport] = {}
    topics = sorted({where.topic for where in places})

    async def attempt() -> None:
        missing = [where for where in places if where not in found]
        for node_id, asked in (await cluster.by_leader(missing)).items():
            for topic in topics:
                rows = [
                    InspectedPartition(
                        partition=where.partition, from_offset=from_offset, runs_max=runs_max
                    )
                    for where in asked
                    if where.topic == topic
                ]
                request = InspectQueuesRequest(group_id=group, topic=topic, partitions=rows)
                reply = await _call(cluster, node_id, request, InspectQueuesResponse)
                for row in reply.partitions:
                    where = TopicPartition(topic, row.partition)
                    check(row.error_code, row.error_message, about=str(where))
                    found[where] = row

    await cluster.retrying(attempt, topics=topics)
    return {where: found[where] for where in sorted(places)}


async def unfinished(
    cluster: Cluster, group: str, where: TopicPartition, from_offset: int = 0
) -> AsyncGenerator[QueueRun, None]:
    """Yields all runs of records that the group has not finished, lowest offset first."""
    following = from_offset
    while following >= 0:
        report = (
            await inspect(cluster, group, [where], from_offset=following, runs_max=RUNS_AT_ONCE)
        )[where]
        for run in report.runs:
            yield run
        following = report.next_offset


async def finish(cluster: Cluster, group: str, runs: Mapping[TopicPartition, Sequence[Run]]) -> int:
    """Finishes records for a group, leased or not; returns how many were not finished before."""
    return await _change(cluster, FINISH, group, runs)


async def make_available(
    cluster: Cluster, group: str, runs: Mapping[TopicPartition, Sequence[Run]]
) -> int:
    """Makes finished records available again for a group; returns how many were finished."""
    return await _change(cluster, MAKE_AVAILABLE, group, runs)


async def withdraw(
    cluster: Cluster, group: str, where: TopicPartition, runs: Sequence[Run]
) -> bool:
    """Finishes records for a group if none of them was delivered yet; returns True if so."""
    assert len(runs) <= CHANGED_AT_ONCE
    changed = await _change_some(cluster, WITHDRAW, group, where, runs)
    return changed == sum(last - first + 1 for first, last in runs)


async def _change(
    cluster: Cluster, kind: int, group: str, runs: Mapping[TopicPartition, Sequence[Run]]
) -> int:
    changed = 0
    for where, all_runs in sorted(runs.items()):
        for start in range(0, len(all_runs), CHANGED_AT_ONCE):
            chunk = all_runs[start : start + CHANGED_AT_ONCE]
            changed += await _change_some(cluster, kind, group, where, chunk)
    return changed


async def _change_some(
    cluster: Cluster, kind: int, group: str, where: TopicPartition, runs: Sequence[Run]
) -> int:
    request = ChangeQueuesRequest(
        group_id=group,
        topic=where.topic,
        kind=kind,
        partitions=[
            ChangedPartition(
                partition=where.partition,
                runs=[OffsetRun(first=first, last=last) for first, last in runs],
            )
        ],
    )

    async def attempt() -> int:
        node_id = await cluster.leader(where)
        reply = await _call(cluster, node_id, request, ChangeQueuesResponse)
        for row in reply.partitions:
            check(row.error_code, row.error_message, about=str(where))
            return row.changed
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the reply lacks {where}")

    # Idempotent; only the count of a repeated call is lower.
    return await cluster.retrying(attempt, topics={where.topic})


async def _call(cluster: Cluster, node_id: int, request: object, answer: type[Answer]) -> Answer:
    connection = await cluster.connection(node_id)
    # At a fixed version: ApiVersions lists only Kafka's requests.
    return await connection.call(request, answer, version=VERSION)
