"""Answers that everybody with the same rights is sent until the next look at the cluster.

So fifty viewers of a list cost little more than one. An answer is forgotten with the next look of
the sampler, and when the cluster's metadata change, rights among them.

Bounds: `ANSWERS_MAX` answers.
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
        """How many were made, not remembered."""

    async def of(
        self, principal: Principal, name: str, make: Callable[[], Awaitable[object]]
    ) -> Response:
        """What `make` comes to, as JSON; `name` stands for the question with all it depends on."""
        await self._sampler.fresh()
        now = self._sampler.looks, self._ctx.image.revision
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
