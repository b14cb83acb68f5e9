"""What the console of a node keeps for those who look: sessions, samples, tails, redrives.

Made once for each node. Whoever looks, looks with their own rights: every route asks the one
authorizer with the caller's principal.
"""

from dataclasses import dataclass

from penstock.api.context import Context
from penstock.console.answers import Answers
from penstock.console.browsing import Browser
from penstock.console.decoding import Decoder
from penstock.console.redrives import Redrives
from penstock.console.sampler import SELF, Sampler
from penstock.console.searching import Searches
from penstock.console.sessions import Sessions
from penstock.console.tails import Tails
from penstock.console.views import Views
from penstock.doors.door import Door
from penstock.http.authentication import Users


@dataclass(frozen=True, slots=True)
class About:
    """What the console says of its node."""

    version: str
    cluster_id: str
    kafka_address: str


class Console:
    def __init__(self, door: Door, about: About, users: Users | None = None) -> None:
        """`users`: those who may log in; None: nobody has to, and everybody is anonymous."""
        self.door = door
        self.about = about
        self.users = users
        self.cookie = f"penstock-session-{door.ctx.node_id}"
        """Browsers do not tell the ports of one host apart."""
        self.sessions = Sessions(door.ctx.random, lambda name: door.ctx.image.users.get(name))
        self.sampler = Sampler(door)
        self.answers = Answers(door.ctx, self.sampler)
        self.views = Views()
        self.browser = Browser(door)
        self.decoder = Decoder(door.ctx)
        self.searches = Searches(door)
        self.tails = Tails(door, self.decoder)
        self.redrives = Redrives(door)

    own_principal = SELF
    """For what every node may know; who is told of it is decided before."""

    @property
    def ctx(self) -> Context:
        return self.door.ctx

    async def run(self) -> None:
        """Until cancelled: what goes on while somebody looks."""
        await self.sampler.run()
