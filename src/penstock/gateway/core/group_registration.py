"""Registers the groups of gateways with their coordinators, so they can be listed and deleted.

A gateway's client is not a member: it holds leases, and may be gone after each message. Still a
group that reads is a share group. So before a group first reads a topic through a gateway, one call
declares it to its coordinator. The name of a consumer group is refused: the two kinds would not see
each other's progress.

Bounds: a registration is cached for `FRESH_SECONDS`, at most `KNOWN_MAX` of them.
"""

import asyncio

from penstock.base.errors import ErrorCode, Refused
from penstock.client.errors import code_of
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.coordinator_calls import MOVING, CoordinatorCalls
from penstock.wire.messages.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

FRESH_SECONDS = 600.0
KNOWN_MAX = 10_000
JOIN = 0
MEMBER = "penstock-door-"
"""Prefix of the member id; the node's id follows. Coordinators of older versions let this member
join, for one session timeout."""


class ShareGroupRegistration:
    """Groups that read through this node's gateways."""

    def __init__(self, node_id: int, coordinators: CoordinatorCalls) -> None:
        self._member = f"{MEMBER}{node_id}"
        self._coordinators = coordinators
        self._known: dict[tuple[str, str], float] = {}

    async def ensure(self, principal: Principal, group: str, topic: str) -> bool:
        """Returns once the coordinator knows that the group reads the topic; raises Refused if it
        may not.

        The result is True if that was new, as far as this node remembers.
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
            return True  # Reading does not depend on it; the next call retries.
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[group, topic] = now + FRESH_SECONDS
        return True

    def forget(self, group: str) -> None:
        """Drops the cache entries of a deleted group."""
        for key in [key for key in self._known if key[0] == group]:
            del self._known[key]

    async def _make_known(self, principal: Principal, group: str, topic: str) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=self._member,
            member_epoch=JOIN,
            subscribed_topic_names=[topic],
            is_declaration=True,
        )
        response = await self._coordinators.ask(
            principal, group, request, ShareGroupHeartbeatResponse, lambda one: [one.error_code]
        )
        code = code_of(response.error_code)
        if code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{group} is a consumer group, which reads a log: choose another name for the "
                "share group",
            )
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED):
            raise Refused(code, response.error_message)
