"""Quotas at doors: who has used theirs up is told when to come back, before anything is done.

A Kafka client that is above its quota is answered, and then not read for a while
(`broker.api.quota`). Over HTTP nothing tells a client to wait but the answer itself, so there the
next request is refused until the debt is paid off. The buckets are those of the Kafka connections
of the same user.
"""

import asyncio

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.context import Context
from penstock.gateway.core.caller import Principal
from penstock.security.quotas import QuotaKind


class Throttled(Refused):
    """Refused until a quota allows more."""

    def __init__(self, kind: QuotaKind, wait_s: float) -> None:
        super().__init__(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"The quota {kind} is used up; try again in {wait_s:.1f} s.",
        )
        self.wait_s = wait_s


class GatewayQuota:
    """What came through the doors of one node, charged to whoever it was for."""

    def __init__(self, ctx: Context) -> None:
        self._meter = ctx.meter

    def require(self, principal: Principal, kind: QuotaKind) -> None:
        """Raises Throttled while the quota is used up."""
        wait_s = self.owed_s(principal, kind)
        if wait_s > 0:
            raise Throttled(kind, wait_s)

    def owed_s(self, principal: Principal, kind: QuotaKind) -> float:
        """For how long nothing more should be done; 0: go on."""
        if not self._meter.is_on:
            return 0.0
        now_s = asyncio.get_running_loop().time()
        return self._meter.owes(kind, principal.name, principal.client_id, now_s)

    def charge(self, principal: Principal, kind: QuotaKind, amount: float) -> None:
        if self._meter.is_on:
            now_s = asyncio.get_running_loop().time()
            self._meter.charge(kind, principal.name, principal.client_id, amount, now_s)

    async def pass_on(self, principal: Principal, size: int) -> None:
        """Charges for bytes that are read and written on somebody's behalf while nobody waits for
        an answer; returns when what was owed is paid off."""
        for kind in (QuotaKind.FETCH, QuotaKind.PRODUCE):
            self.charge(principal, kind, size)
            await asyncio.sleep(self.owed_s(principal, kind))

    def fetch_bytes_max(self, principal: Principal, most: int) -> int:
        """How much may be handed out at once."""
        if not self._meter.is_on:
            return most
        return int(min(most, self._meter.fetch_bytes_max(principal.name, principal.client_id)))

    @property
    def is_on(self) -> bool:
        return self._meter.is_on
