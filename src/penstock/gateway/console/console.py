"""What the console of a node keeps for those who look: sessions, samples, tails, redrives.

Made once for each node. Whoever looks, looks with their own rights: every route asks the one
authorizer with the caller's principal.
"""

from dataclasses import dataclass

from penstock.broker.api.context import Context
from penstock.gateway.console.live_tails import Tails
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
    """What the console says of its node."""

    version: str
    cluster_id: str
    kafka_address: str


class Console:
    def __init__(self, gateway: Gateway, about: About, users: Users | None = None) -> None:
        """`users`: those who may log in; None: nobody has to, and everybody is anonymous."""
        self.gateway = gateway
        self.about = about
        self.users = users
        self.cookie = f"penstock-session-{gateway.ctx.node_id}"
        """Browsers do not tell the ports of one host apart."""
        self.sessions = Sessions(gateway.ctx.random, lambda name: gateway.ctx.image.users.get(name))
        self.sampler = Sampler(gateway)
        self.answers = ResponseCache(gateway.ctx, self.sampler)
        self.views = Views()
        self.browser = Browser(gateway)
        self.decoder = Decoder(gateway.ctx)
        self.searches = Searches(gateway)
        self.tails = Tails(gateway, self.decoder)
        self.redrives = Redrives(gateway)

    own_principal = SELF
    """For what every node may know; who is told of it is decided before."""

    @property
    def ctx(self) -> Context:
        return self.gateway.ctx

    async def run(self) -> None:
        """Until cancelled: what goes on while somebody looks."""
        await self.sampler.run()
