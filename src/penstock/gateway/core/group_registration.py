"""Makes the groups of doors known to their coordinator, so that everybody can see and delete them.

Whoever receives through a door is no member: it holds leases, and may be gone after each message.
Still a group that reads is a share group. So before a group first reads a topic through a door, a
member joins for it and leaves again, unless the group has members of its own. A name that belongs
to a consumer group is refused: the two kinds would not know of each other's progress.

Bounds: what was made known is remembered for `FRESH_SECONDS`, `KNOWN_MAX` of them.
"""

import asyncio

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import Context
from penstock.client.errors import code_of
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.coordinator_calls import MOVING, CoordinatorCalls
from penstock.wire.messages.share import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

FRESH_SECONDS = 600.0
KNOWN_MAX = 10_000
JOIN, LEAVE = 0, -1
MEMBER = "penstock-door-"
MEMBER_BYTES = 8


class ShareGroupRegistration:
    """The groups that read through this node's doors."""

    def __init__(self, ctx: Context, coordinators: CoordinatorCalls) -> None:
        self._ctx = ctx
        self._coordinators = coordinators
        self._known: dict[tuple[str, str], float] = {}

    async def ensure(self, principal: Principal, group: str, topic: str) -> bool:
        """Returns when the group is known to read the topic; refuses if it may not.

        Answers whether that was news, as far as this node remembers.
        """
        now = asyncio.get_running_loop().time()
        known = self._known
        if known.get((group, topic), 0.0) > now:
            return False
        try:
            await self._make_known(principal, group, topic)
        except Refused as refused:
            if refused.code not in MOVING:
                raise
            return True  # Reading does not depend on it; the next one tries again.
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[group, topic] = now + FRESH_SECONDS
        return True

    def forget(self, group: str) -> None:
        """The group was deleted."""
        for key in [key for key in self._known if key[0] == group]:
            del self._known[key]

    async def _make_known(self, principal: Principal, group: str, topic: str) -> None:
        request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        described = await self._coordinators.ask(
            principal,
            group,
            request,
            ShareGroupDescribeResponse,
            lambda response: [row.error_code for row in response.groups],
        )
        row = described.groups[0]
        if not row.error_code and row.members:
            return
        member = MEMBER + self._ctx.random.random_bytes(MEMBER_BYTES).hex()
        await self._beat(principal, group, member, JOIN, topic)
        await self._beat(principal, group, member, LEAVE, topic)

    async def _beat(
        self, principal: Principal, group: str, member: str, epoch: int, topic: str
    ) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=[topic] if epoch == JOIN else None,
        )
        response = await self._coordinators.ask(
            principal, group, request, ShareGroupHeartbeatResponse, lambda one: [one.error_code]
        )
        code = code_of(response.error_code)
        if code is ErrorCode.GROUP_ID_NOT_FOUND and epoch == JOIN:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{group} is a consumer group, which reads a log: choose another name for a group "
                "that shares messages",
            )
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED):
            raise Refused(code, response.error_message)
