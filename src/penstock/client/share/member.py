"""Being a member of a share group: join, heartbeats, the assignment, leave (KIP-932).

Owns the member's epoch and the task that calls the coordinator. Tells whoever made it which
partitions to read, whenever that changes, and what will not heal. A coordinator that forgot or
fenced the member is joined again, with the same member id: what the member holds stays its own.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId
from penstock.client.cluster import Cluster
from penstock.client.coordinators import GROUP, at_coordinator
from penstock.client.errors import RETRIABLE, check
from penstock.wire.messages.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

Assigned: TypeAlias = list[tuple[TopicId, int]]

JOIN = 0
LEAVE = -1
_REJOIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_INTERVAL_MS_MIN = 50


class ShareMember:
    """`await join()`, then it beats by itself until `await leave()`."""

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
        self._on_failed = on_failed
        self._epoch = JOIN
        self._interval_s = 1.0
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        await self._beat()
        self._task = asyncio.get_running_loop().create_task(self._keep_beating())

    async def leave(self) -> None:
        """Says goodbye, if somebody listens; else the coordinator will find out."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            async with asyncio.timeout(2):
                await self._call(LEAVE, None)
        except (OSError, Refused, PeerError):
            return

    async def _keep_beating(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._beat()
                failures = 0
            except OSError:
                # The broker or the network is gone for now; the sessions notice by themselves.
                await self._cluster.backoff.wait(failures)
                failures += 1
            except Refused as refused:
                if refused.code not in RETRIABLE:
                    self._on_failed(refused)
                    return
            except PeerError as error:
                self._on_failed(error)
                return

    async def _beat(self) -> None:
        try:
            reply = await self._call(self._epoch, self._topics if self._epoch == JOIN else None)
        except Refused as refused:
            if refused.code not in _REJOIN:
                raise
            self._epoch = JOIN
            reply = await self._call(JOIN, self._topics)
        self._epoch = reply.member_epoch
        self._interval_s = max(_INTERVAL_MS_MIN, reply.heartbeat_interval_ms) / 1000
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
