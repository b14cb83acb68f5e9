"""State of a node's console: sessions, samples, live tails, redrives.

One instance per node. Every route checks the permissions of its caller's principal.

Cache of responses per principal, valid until the next sample of the cluster. So fifty viewers of
a list cost little more than one. The cache is cleared with each sample, and when the cluster's
metadata change, which includes the permissions.

Bounds: `ANSWERS_MAX` responses.

Row of the console's route table: method, path, summary and handler.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.api.context import Context
from penstock.gateway.console.history import DAY, HOUR, History
from penstock.gateway.console.live_tails import LiveTails
from penstock.gateway.console.message_pages import Browser
from penstock.gateway.console.message_search import Searches
from penstock.gateway.console.payload_decoding import Decoder
from penstock.gateway.console.redrives import Redrives
from penstock.gateway.console.sampler import SAMPLES_MAX, SELF, Sampler
from penstock.gateway.console.sessions import Sessions
from penstock.gateway.console.visibility import Views
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.permissions import Principal
from penstock.gateway.http.authentication import Users

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


@dataclass(frozen=True, slots=True)
class About:
    """Facts about the node, shown on all pages."""

    version: str
    cluster_id: str
    kafka_address: str


class Console:
    def __init__(self, gateway: Gateway, about: About, users: Users | None = None) -> None:
        """`users` verifies logins; None: there are no logins, every user is anonymous."""
        self.gateway = gateway
        self.about = about
        self.users = users
        self.cookie = f"penstock-session-{gateway.ctx.node_id}"
        """Named after the node, because browsers share cookies among all ports of a host."""
        self.sessions = Sessions(gateway.ctx.random, lambda name: gateway.ctx.image.users.get(name))
        self.history = History()
        self.sampler = Sampler(gateway, self.history.add)
        self.answers = ResponseCache(gateway.ctx, self.sampler)
        self.views = Views(SAMPLES_MAX)
        self.hour_views = Views(HOUR.points)
        self.day_views = Views(DAY.points)
        self.browser = Browser(gateway)
        self.decoder = Decoder(gateway.ctx)
        self.searches = Searches(gateway)
        self.tails = LiveTails(gateway, self.decoder)
        self.redrives = Redrives(gateway)

    own_principal = SELF
    """Principal for internal requests; routes check the caller's permissions first."""

    @property
    def ctx(self) -> Context:
        return self.gateway.ctx

    async def run(self) -> None:
        """Runs the sampler until cancelled."""
        await self.sampler.run()


@dataclass(frozen=True, slots=True)
class ConsoleRow:
    method: str
    path: str
    """Below `/console/api`."""
    summary: str
    answer: Callable[[Console, Request], Awaitable[Response]]
