"""Membership in a consumer group, whose coordinator assigns partitions (KIP-848).

Owns the member epoch, the owned partitions and the heartbeat task. Partitions to revoke are
released first: `on_revoked` is awaited and may commit, then the coordinator is notified. New
partitions are assigned (`on_assigned`) when they are free. A member that the coordinator does not
know or has fenced loses all partitions (`on_lost`) and joins again.

Offsets are committed under the member's epoch, so that a removed member cannot overwrite the
offsets of its successor.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.coordinators import GROUP, at_coordinator
from penstock.client.errors import check
from penstock.client.heartbeats import JOIN, LEAVE, Heartbeats
from penstock.client.metadata import TopicPartition, by_topic
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

REBALANCE_TIMEOUT_MS = 60_000
_NAMED_UNTIL = 9
_REJOIN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)
_STALE = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
_COMMIT_TRIES = 5


class GroupMembership(NamedTuple):
    """Member id and epoch for commits: brokers refuse those of removed members."""

    member_id: str
    epoch: int


class GroupListener(NamedTuple):
    """Callbacks for the reader of the partitions."""

    on_assigned: Callable[[list[TopicPartition]], Awaitable[None]]
    on_revoked: Callable[[list[TopicPartition]], Awaitable[None]]
    on_lost: Callable[[], None]
    on_failed: Callable[[Exception], None]


class GroupMember:
    """Membership with heartbeats from `join` until `leave`."""

    def __init__(
        self, cluster: Cluster, group: str, topics: Sequence[str], listener: GroupListener
    ) -> None:
        self.group = group
        self.member_id = base64.urlsafe_b64encode(cluster.random.random_bytes(16)).decode()[:22]
        self._cluster = cluster
        self._topics = sorted(topics)
        self._listener = listener
        self._epoch = JOIN
        self._owned: list[TopicPartition] = []
        self._reported: list[TopicPartition] | None = None
        """Owned partitions that the coordinator knows; None: they must be reported."""
        self._heartbeats = Heartbeats(cluster, self._beat, listener.on_failed)

    @property
    def membership(self) -> GroupMembership:
        return GroupMembership(self.member_id, self._epoch)

    async def join(self) -> None:
        await self._heartbeats.start()

    async def leave(self) -> None:
        """Leaves the group if the coordinator answers; otherwise the session expires there."""
        await self._heartbeats.stop(lambda: self._call(LEAVE))

    # Heartbeats.

    async def _beat(self) -> None:
        try:
            reply = await self._call(self._epoch)
        except Refused as refused:
            if refused.code not in _REJOIN:
                raise
            self._epoch, self._owned, self._reported = JOIN, [], None
            self._listener.on_lost()
            reply = await self._call(JOIN)
        self._reported = list(self._owned)
        self._epoch = reply.member_epoch
        self._heartbeats.set_interval(reply.heartbeat_interval_ms)
        if reply.assignment is not None:
            await self._reconcile(await self._named(reply.assignment))

    async def _reconcile(self, assigned: list[TopicPartition]) -> None:
        revoked = [where for where in self._owned if where not in assigned]
        added = [where for where in assigned if where not in self._owned]
        if revoked:
            await self._listener.on_revoked(revoked)
        self._owned = sorted(assigned)
        if added:
            await self._listener.on_assigned(added)
        if self._reported != self._owned:
            # Other members wait for the revoked partitions.
            self._heartbeats.beat_now()

    async def _named(self, assignment: ConsumerGroupHeartbeatAssignment) -> list[TopicPartition]:
        """Resolves the topic ids of an assignment, after a metadata refresh if needed."""
        names: dict[TopicId, str] = {}
        for attempt in range(5):
            topics = self._cluster.metadata.topics
            names = {topics[name].topic_id: name for name in self._topics if name in topics}
            if all(bytes(row.topic_id) in names for row in assignment.topic_partitions):
                break
            await self._cluster.refresh_quietly(self._topics)
            await self._cluster.backoff.wait(attempt)
        return [
            TopicPartition(names[TopicId(bytes(row.topic_id))], index)
            for row in assignment.topic_partitions
            if bytes(row.topic_id) in names
            for index in row.partitions
        ]

    async def _call(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        is_joining = epoch == JOIN
        owned = self._owned if is_joining or self._reported != self._owned else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_joining else -1,
            subscribed_topic_names=self._topics if is_joining else None,
            topic_partitions=None if owned is None else self._rows(owned),
        )

        async def ask(node_id: int) -> ConsumerGroupHeartbeatResponse:
            reply = await self._cluster.call(
                request, ConsumerGroupHeartbeatResponse, node_id=node_id
            )
            check(reply.error_code, reply.error_message, about=f"group {self.group!r}")
            return reply

        return await at_coordinator(self._cluster, GROUP, self.group, ask)

    def _rows(
        self, owned: list[TopicPartition]
    ) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self._cluster.known_topic(name).topic_id, partitions=indexes
            )
            for name, indexes in by_topic((where, where.partition) for where in owned).items()
        ]

    # Commits.

    async def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commits offsets of owned partitions; refused once this member does not own them."""
        for attempt in range(_COMMIT_TRIES):
            try:
                await self._commit(positions)
                return
            except Refused as refused:
                if refused.code not in _STALE or attempt == _COMMIT_TRIES - 1:
                    raise
            # The epoch changed meanwhile; the next heartbeat returns the new one.
            self._heartbeats.beat_now()
            await self._cluster.backoff.wait(attempt)

    async def _commit(self, positions: Mapping[TopicPartition, int]) -> None:
        rows = by_topic(
            (
                where,
                OffsetCommitRequestPartition(
                    partition_index=where.partition,
                    committed_offset=positions[where],
                    committed_metadata="",
                ),
            )
            for where in sorted(positions)
        )

        async def ask(node_id: int) -> None:
            request = OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self._epoch,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=n, partitions=rows[n]) for n in rows],
            )
            reply = await self._cluster.call(
                request, OffsetCommitResponse, node_id=node_id, version_max=_NAMED_UNTIL
            )
            for topic in reply.topics:
                for answer in topic.partitions:
                    where = TopicPartition(topic.name, answer.partition_index)
                    check(answer.error_code, about=str(where))

        # Committing the same offsets twice is harmless.
        await at_coordinator(self._cluster, GROUP, self.group, ask)
