"""Reads, commits and deletes a group's offsets (OffsetFetch, OffsetCommit, OffsetDelete).

Commits come from tools, which are not members: brokers accept them only while the group has no
members. Topics are named, so versions with topic ids are not used.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.client.cluster import Cluster
from penstock.client.coordinators import GROUP, at_coordinator
from penstock.client.errors import check
from penstock.client.metadata import TopicPartition, by_topic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_NAMED_UNTIL = 9
"""Last version of OffsetCommit and OffsetFetch in which topics have names."""

_HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors of a commit by a non-member while the group has members."""


class Committed(NamedTuple):
    """Committed offset, the next one to read, with the committer's metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


async def committed_offsets(
    cluster: Cluster, group: str, *, is_stable: bool = False
) -> dict[TopicPartition, Committed]:
    """Returns all committed offsets of a group, sorted; empty if the group does not exist.

    `is_stable`: waits for open transactions that may change them (KIP-447).
    """

    async def ask(node_id: int) -> dict[TopicPartition, Committed]:
        request = OffsetFetchRequest(
            group_id=group,
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)],
            require_stable=is_stable,
        )
        reply = await cluster.call(
            request, OffsetFetchResponse, node_id=node_id, version_max=_NAMED_UNTIL
        )
        check(reply.error_code, about=f"group {group!r}")
        for answer in reply.groups:
            if answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(answer.error_code, about=f"group {group!r}")
        found: dict[TopicPartition, Committed] = {}
        # From v8 on, the reply is a list of groups.
        topics: list[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = [*reply.topics]
        topics += [topic for answer in reply.groups for topic in answer.topics]
        for topic in topics:
            for row in topic.partitions:
                where = TopicPartition(topic.name, row.partition_index)
                check(row.error_code, about=str(where))
                if row.committed_offset >= 0:
                    found[where] = Committed(
                        row.committed_offset, row.committed_leader_epoch, row.metadata
                    )
        return {where: found[where] for where in sorted(found)}

    return await at_coordinator(cluster, GROUP, group, ask)


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int | Committed]
) -> None:
    """Commits offsets for a group. Raises Refused(NON_EMPTY_GROUP) while it has members."""

    def row(where: TopicPartition) -> OffsetCommitRequestPartition:
        given = offsets[where]
        kept = Committed(given) if isinstance(given, int) else given
        return OffsetCommitRequestPartition(
            partition_index=where.partition,
            committed_offset=kept.offset,
            committed_leader_epoch=kept.leader_epoch,
            committed_metadata=kept.metadata or "",
        )

    rows = by_topic((where, row(where)) for where in sorted(offsets))
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows[name]) for name in rows],
    )

    async def ask(node_id: int) -> None:
        reply = await cluster.call(
            request, OffsetCommitResponse, node_id=node_id, version_max=_NAMED_UNTIL
        )
        for topic in reply.topics:
            for answer in topic.partitions:
                if answer.error_code in _HAS_MEMBERS:
                    raise _non_empty(group)
                where = TopicPartition(topic.name, answer.partition_index)
                check(answer.error_code, about=str(where))

    # Committing the same offsets twice is harmless.
    await at_coordinator(cluster, GROUP, group, ask)


async def delete_offsets(
    cluster: Cluster, group: str, partitions: Collection[TopicPartition]
) -> None:
    """Deletes offsets; refused for a topic that members of the group are subscribed to."""
    rows = by_topic(
        (where, OffsetDeleteRequestPartition(partition_index=where.partition))
        for where in sorted(partitions)
    )
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=rows[name]) for name in rows],
    )

    async def ask(node_id: int) -> None:
        reply = await cluster.call(request, OffsetDeleteResponse, node_id=node_id)
        check(reply.error_code, about=f"group {group!r}")
        for topic in reply.topics:
            for answer in topic.partitions:
                where = TopicPartition(topic.name, answer.partition_index)
                check(answer.error_code, about=str(where))

    await at_coordinator(cluster, GROUP, group, ask)


def _non_empty(group: str) -> Refused:
    return Refused(ErrorCode.NON_EMPTY_GROUP, f"group {group!r} has members: stop them first")
