"""Group with churn: members join, leave, die, or are cut off and return."""

import asyncio
import itertools
import random
from typing import TYPE_CHECKING

from simulation.checkers.groups import Place
from simulation.client import SimClient
from simulation.workloads.classic_member import ClassicMember
from simulation.workloads.consumer_member import ConsumerMember
from simulation.workloads.members import GroupContext, Member

if TYPE_CHECKING:
    from simulation.world import World

MEMBERS_MAX = 4
CHANGE_S = (1.0, 6.0)
KINDS = ("eager", "cooperative", "consumer", "slow", "mixed")


def make_member(
    kind: str, context: GroupContext, client: SimClient, instance: str | None = None
) -> Member:
    """Member of one kind; `mixed` draws one of the compatible kinds."""
    if kind == "mixed":
        kind = context.world.rng(f"kind/{client.name}").choice(("cooperative", "consumer"))
    if kind in ("eager", "cooperative"):
        classic = ClassicMember(context, client, instance)
        classic.is_cooperative = kind == "cooperative"
        return classic
    member = ConsumerMember(context, client, instance)
    member.is_slow = kind == "slow"
    return member


class GroupChurn:
    """Members of one group, and their random changes."""

    def __init__(self, context: GroupContext, kind: str) -> None:
        self.context = context
        self.kind = kind
        context.is_mixed = kind == "mixed"
        self.world: World = context.world
        self.members: list[Member] = []
        self.rng: random.Random = self.world.rng(f"crowd/{context.group}")
        self.is_calm = False
        self._numbers = itertools.count(1)
        self._ghosts: list[Member] = []

    def add(self, instance: str | None = None) -> Member:
        client = self.world.client(f"{self.context.group}-{next(self._numbers)}")
        member = make_member(self.kind, self.context, client, instance)
        self.members.append(member)
        client.start(member.run())
        client.start(member.commit_sometimes())
        return member

    async def live(self) -> None:
        """Makes random changes until calmed."""
        for _ in range(self.rng.randint(1, 3)):
            self.add(self._instance())
        while True:
            await asyncio.sleep(self.rng.uniform(*CHANGE_S))
            if not self.is_calm:
                await self._change()

    def calm(self) -> None:
        """Ends changes, and leaves at least one member."""
        self.is_calm = True
        for ghost in self._ghosts:
            # Its successor may have died before it was fenced.
            ghost.client.kill(silent=True)
        if not self.members:
            self.add()

    def _instance(self) -> str | None:
        if self.rng.random() < 0.25:
            return f"{self.context.group}-i{next(self._numbers)}"
        return None

    async def _change(self) -> None:
        choice = self.rng.random()
        if not self.members or (choice < 0.35 and len(self.members) < MEMBERS_MAX):
            self.world.fault("member joins")
            self.add(self._instance())
            return
        member = self.rng.choice(self.members)
        if choice < 0.55:
            self.world.fault("member dies")
            self._remove(member)
            member.client.kill(silent=self.rng.random() < 0.5)
        elif choice < 0.7:
            self.world.fault("member leaves")
            self._remove(member)
            member.is_leaving = True
        elif choice < 0.8 and member.instance is not None:
            self.world.fault("static member comes back")
            self._remove(member)
            if self.rng.random() < 0.5:
                member.client.kill(silent=True)
            elif isinstance(member, ConsumerMember):
                # A living static member is replaced only after it has left.
                member.is_leaving = member.leaves_for_now = True
            else:
                self._ghosts.append(member)
            self.add(member.instance)
        else:
            self.world.fault("member cut off")
            await cut_off(self.world, member.client, self.rng.uniform(0.5, 9.0))

    def _remove(self, member: Member) -> None:
        self.members.remove(member)

    def unsettled(self) -> str | None:
        """Reason why not every partition has exactly one owner; None if all have."""
        wanted = {
            (topic, index) for topic, count in self.context.topics.items() for index in range(count)
        }
        owned: list[Place] = [place for member in self.members for place in member.owned]
        if sorted(owned) == sorted(wanted):
            return None
        return f"{self.context.group} owns {sorted(owned)}"


async def cut_off(world: "World", client: SimClient, seconds: float) -> None:
    """Isolates a client from all brokers for a while."""
    hosts = [host.name for host in world.cluster.hosts.values()]
    world.loop.net.isolate(client.name, hosts)
    await asyncio.sleep(seconds)
    for host in hosts:
        world.loop.net.mend(client.name, host)
