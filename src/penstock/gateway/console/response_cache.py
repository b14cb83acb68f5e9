"""Cache of responses per principal, valid until the next sample of the cluster.

So fifty viewers of a list cost little more than one. The cache is cleared with each sample, and
when the cluster's metadata change, which includes the permissions.

Bounds: `ANSWERS_MAX` responses.
"""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from penstock.broker.api.context import Context
from penstock.gateway.console.sampler import Sampler
from penstock.gateway.core.caller import Principal

ANSWERS_MAX = 256


class ResponseCache:
    def __init__(self, ctx: Context, sampler: Sampler) -> None:
        self._ctx = ctx
        self._sampler = sampler
        self._bodies: dict[tuple[Principal, str], bytes] = {}
        self._made_at: tuple[int, int] = (0, 0)
        self.made = 0
        """Number of responses computed, not cached."""

    async def of(
        self, principal: Principal, name: str, make: Callable[[], Awaitable[object]]
    ) -> Response:
        """Returns `make`'s result as JSON; `name` identifies the request with its parameters."""
        await self._sampler.fresh()
        now = self._sampler.rounds, self._ctx.image.revision
        if self._made_at != now or len(self._bodies) >= ANSWERS_MAX:
            self._made_at = now
            self._bodies.clear()
        body = self._bodies.get((principal, name))
        if body is None:
            self.made += 1
            body = msgspec.json.encode(await make())
            if self._made_at == now:
                self._bodies[principal, name] = body
        return Response(body, media_type="application/json")
