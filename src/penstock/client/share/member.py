"""Membership in a share group: join, heartbeats, assignment, leave (KIP-932).

Owns the member epoch and the heartbeat task. Notifies its owner of changed assignments and of
permanent failures. If the coordinator does not know the member or fenced it, it joins again with
the same member id, so that it keeps its leases.
"""

import base64
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.coordinators import GROUP, at_coordinator
from penstock.client.errors import check
from penstock.client.heartbeats import JOIN, LEAVE, Heartbeats
from penstock.wire.messages.share import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

Assigned: TypeAlias = list[tuple[TopicId, int]]

_REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class ShareMember:
    """Membership with heartbeats from `join` until `leave`."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        on_assigned: Callable[[Assigned], None],
        on_failed: Callable[[Exception], None],
        rack: str | None = None,
    ) -> None:
        self.group = group
        self.member_id = base64.urlsafe_b64encode(cluster.random.random_bytes(16)).decode()[:22]
        self._cluster = cluster
        self._topics = sorted(topics)
        self._rack = rack
        self._on_assigned = on_assigned
        self._epoch = JOIN
        self._heartbeats = Heartbeats(cluster, self._beat, on_failed)

    async def join(self) -> None:
        await self._heartbeats.start()

    async def leave(self) -> None:
        """Leaves the group if the coordinator answers; otherwise the session expires there."""
        await self._heartbeats.stop(lambda: self._call(LEAVE, None))

    async def _beat(self) -> None:
        try:
            reply = await self._call(self._epoch, self._topics if self._epoch == JOIN else None)
        except Refused as refused:
            if refused.code not in _REJOIN:
                raise
            self._epoch = JOIN
            reply = await self._call(JOIN, self._topics)
        self._epoch = reply.member_epoch
        self._heartbeats.set_interval(reply.heartbeat_interval_ms)
        if reply.assignment is not None:
            self._on_assigned(
                [
                    (TopicId(bytes(topic.topic_id)), index)
                    for topic in reply.assignment.topic_partitions
                    for index in topic.partitions
                ]
            )

    async def _call(self, epoch: int, topics: list[str] | None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=self._rack if epoch == JOIN else None,
            subscribed_topic_names=topics,
        )

        async def ask(node_id: int) -> ShareGroupHeartbeatResponse:
            reply = await self._cluster.call(request, ShareGroupHeartbeatResponse, node_id=node_id)
            check(reply.error_code, reply.error_message, about=f"group {self.group!r}")
            return reply

        return await at_coordinator(self._cluster, GROUP, self.group, ask)
