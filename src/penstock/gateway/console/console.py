"""State of a node's console: sessions, samples, live tails, redrives.

One instance per node. Every route checks the permissions of its caller's principal.
"""

from dataclasses import dataclass

from penstock.broker.api.context import Context
from penstock.gateway.console.live_tails import LiveTails
from penstock.gateway.console.message_pages import Browser
from penstock.gateway.console.message_search import Searches
from penstock.gateway.console.payload_decoding import Decoder
from penstock.gateway.console.redrives import Redrives
from penstock.gateway.console.response_cache import ResponseCache
from penstock.gateway.console.sampler import SELF, Sampler
from penstock.gateway.console.sessions import Sessions
from penstock.gateway.console.visible_samples import Views
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.authentication import Users


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
        self.sampler = Sampler(gateway)
        self.answers = ResponseCache(gateway.ctx, self.sampler)
        self.views = Views()
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
