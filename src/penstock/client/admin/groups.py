"""Administration of groups: list, describe with members, delete.

A group is classic or, since KIP-848, a consumer group; both have one description type. Every broker
lists only the groups it coordinates, so a listing calls all brokers. `committed_offsets` reads the
offsets of a group, `measure_lag` its lag.

Lag of a group, in records and in time. Lag in records is the distance between the committed
offset and the end, as in all Kafka tools. Lag in time is the age of the first unread record,
which must be fetched: a control record or a gap of compaction may be at the committed offset, so
reading continues to the first data record. The age is that of the record's timestamp, which its
producer may have set.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.coordinators import GROUP, at_coordinator, at_every_broker
from penstock.client.errors import check, refusal
from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.state.groups.consumer_protocol import CONSUMER, read_assignment, read_subscription
from penstock.wire.messages.classic_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)

PROBE_TIMEOUT_MS = 10_000
"""Limits the search for first unread records; the age of others is unknown."""

_PROBE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Lag:
    """Lag of a partition. None is unknown: no commit, no leader or no record."""

    where: TopicPartition
    committed: int | None
    start_offset: int | None
    end_offset: int | None
    first_unread_ms: int | None
    """Timestamp of the first unread record."""
    metadata: str | None = None

    @property
    def records(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed)

    def age_ms(self, now_ms: int) -> int | None:
        """Returns the age of the first unread record; 0 if all records are read."""
        if self.records == 0:
            return 0
        return None if self.first_unread_ms is None else max(0, now_ms - self.first_unread_ms)


async def measure_lag(
    cluster: Cluster,
    committed: Mapping[TopicPartition, Committed],
    assigned: Collection[TopicPartition] = (),
) -> list[Lag]:
    """Measures the lag of all committed and assigned partitions, sorted."""
    places = sorted({*committed, *assigned})
    await cluster.refresh({where.topic for where in places})
    led = [where for where in places if cluster.metadata.leader_of(where) >= 0]
    starts = await list_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(led, LATEST))
    unread = {
        where: max(committed[where].offset, starts[where].offset)
        for where in led
        if where in committed and committed[where].offset < ends[where].offset
    }
    stamps = await first_timestamps(
        cluster, unread, {where: ends[where].offset for where in unread}
    )
    return [
        Lag(
            where=where,
            committed=committed[where].offset if where in committed else None,
            start_offset=starts[where].offset if where in starts else None,
            end_offset=ends[where].offset if where in ends else None,
            first_unread_ms=stamps.get(where),
            metadata=committed[where].metadata if where in committed else None,
        )
        for where in places
    ]


async def first_timestamps(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    timeout_ms: int = PROBE_TIMEOUT_MS,
) -> dict[TopicPartition, int]:
    """Returns the timestamp of the first record at or after each offset, if there is one."""
    stamps: dict[TopicPartition, int] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    # A record may be deleted meanwhile: then the first remaining one counts.
    config = ConsumerConfig(
        partition_bytes=_PROBE_BYTES, reset=EARLIEST, retry_timeout_ms=timeout_ms
    )
    async with Consumer(cluster, config) as consumer:
        consumer.assign(starts)
        while consumer.positions and loop.time() < deadline:
            for fetched in await consumer.fetch():
                first = next(fetched.messages(), None)
                if first is not None:
                    stamps[fetched.where] = first.timestamp
                if first is not None or fetched.next_offset >= ends[fetched.where]:
                    consumer.unassign(fetched.where)
    return stamps


_DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """Entry of a group listing; `state` and `kind` are empty if the broker is too old."""

    name: str
    state: str
    kind: str
    """In lower case: classic, consumer, share, streams."""
    protocol_type: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """Member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    """Topics to which it subscribed by name."""
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    """Target assignment, reached at the end of a rebalance."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """Description of a classic or consumer group."""

    name: str
    state: str
    kind: str
    protocol_type: str
    assignor: str
    """Name of the assignor; empty while none is chosen."""
    epoch: int | None
    """Group epoch; None for a classic group, whose generation is not returned."""
    coordinator_id: int
    members: tuple[DescribedMember, ...]

    def owner_of(self, where: TopicPartition) -> DescribedMember | None:
        return next((member for member in self.members if where in member.assigned), None)


async def list_groups(cluster: Cluster) -> list[GroupListing]:
    """Returns all groups of the cluster, sorted by name."""

    async def ask(node_id: int) -> list[GroupListing]:
        reply = await cluster.call(ListGroupsRequest(), ListGroupsResponse, node_id=node_id)
        check(reply.error_code, about=f"groups of broker {node_id}")
        return [
            GroupListing(
                row.group_id, row.group_state, row.group_type.lower(), row.protocol_type, node_id
            )
            for row in reply.groups
        ]

    return sorted(await at_every_broker(cluster, ask), key=lambda group: group.name)


async def describe_group(cluster: Cluster, name: str) -> GroupInfo:
    """Describes a classic or consumer group. Raises Refused(GROUP_ID_NOT_FOUND) if missing."""

    async def ask(node_id: int) -> GroupInfo:
        try:
            return await _describe_consumer(cluster, name, node_id)
        except Refused as refused:
            # It is classic, does not exist, or the broker is older than KIP-848.
            if refused.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await _describe_classic(cluster, name, node_id)

    return await at_coordinator(cluster, GROUP, name, ask)


async def delete_group(cluster: Cluster, name: str) -> None:
    """Deletes a group and its offsets. Raises Refused(NON_EMPTY_GROUP) while it has members."""

    async def ask(node_id: int) -> None:
        request = DeleteGroupsRequest(groups_names=[name])
        reply = await cluster.call(request, DeleteGroupsResponse, node_id=node_id)
        for row in reply.results:
            if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise _missing(name)
            check(row.error_code, about=f"group {name!r}")

    await at_coordinator(cluster, GROUP, name, ask, is_repeatable=False)


async def _describe_consumer(cluster: Cluster, name: str, node_id: int) -> GroupInfo:
    request = ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
    reply = await cluster.call(request, ConsumerGroupDescribeResponse, node_id=node_id)
    for row in reply.groups:
        check(row.error_code, row.error_message, about=f"group {name!r}")
        return _consumer_group(row, node_id)
    raise refusal(-1, about=f"group {name!r}")


async def _describe_classic(cluster: Cluster, name: str, node_id: int) -> GroupInfo:
    request = DescribeGroupsRequest(groups=[name])
    reply = await cluster.call(request, DescribeGroupsResponse, node_id=node_id)
    for row in reply.groups:
        # Before v6 a missing group has the state Dead.
        if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND or row.group_state == _DEAD:
            raise _missing(name)
        check(row.error_code, row.error_message, about=f"group {name!r}")
        return _classic_group(row, node_id)
    raise refusal(-1, about=f"group {name!r}")


def _missing(name: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} does not exist")


def _consumer_group(row: DescribedConsumerGroup, node_id: int) -> GroupInfo:
    return GroupInfo(
        name=row.group_id,
        state=row.group_state,
        kind="consumer",
        protocol_type=CONSUMER,
        assignor=row.assignor_name,
        epoch=row.group_epoch,
        coordinator_id=node_id,
        members=_sorted(_consumer_member(member) for member in row.members),
    )


def _consumer_member(row: ConsumerGroupDescribeMember) -> DescribedMember:
    return DescribedMember(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        host=_host(row.client_host),
        topics=tuple(row.subscribed_topic_names),
        assigned=_places(row.assignment),
        target=_places(row.target_assignment),
    )


def _places(assignment: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _classic_group(row: DescribedGroup, node_id: int) -> GroupInfo:
    is_consumer = row.protocol_type == CONSUMER
    return GroupInfo(
        name=row.group_id,
        state=row.group_state,
        kind="classic",
        protocol_type=row.protocol_type,
        assignor=row.protocol_data,
        epoch=None,
        coordinator_id=node_id,
        members=_sorted(_classic_member(member, is_consumer) for member in row.members),
    )


def _classic_member(row: DescribedGroupMember, is_consumer: bool) -> DescribedMember:
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    if is_consumer:
        try:
            data = bytes(row.member_metadata)
            topics = tuple(read_subscription(data)[1].topics) if data else ()
            assigned = tuple(
                sorted(
                    TopicPartition(topic.topic, index)
                    for topic in read_assignment(bytes(row.member_assignment)).assigned_partitions
                    for index in topic.partitions
                )
            )
        except PeerError:
            # The members define these bytes; a member with invalid ones is still a member.
            pass
    return DescribedMember(
        member_id=row.member_id,
        instance_id=row.group_instance_id,
        client_id=row.client_id,
        host=_host(row.client_host),
        topics=topics,
        assigned=assigned,
        target=assigned,
    )


def _host(text: str) -> str:
    """Removes the slash that brokers, like Java, write before an address."""
    return text.removeprefix("/")


def _sorted(members: Iterable[DescribedMember]) -> tuple[DescribedMember, ...]:
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))
