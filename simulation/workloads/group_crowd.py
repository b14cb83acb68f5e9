"""A group with people coming and going: some leave, some die, some are cut off and come back."""

import asyncio
import itertools
import random
from typing import TYPE_CHECKING

from simulation.checkers.groups import Place
from simulation.client import SimClient
from simulation.workloads.classic_member import ClassicMember
from simulation.workloads.consumer_member import ConsumerMember
from simulation.workloads.members import Member, Party

if TYPE_CHECKING:
    from simulation.world import World

MEMBERS_MAX = 4
CHANGE_S = (1.0, 6.0)
KINDS = ("eager", "cooperative", "consumer", "slow", "mixed")


def make_member(kind: str, party: Party, client: SimClient, instance: str | None = None) -> Member:
    """A member of one kind; `mixed` draws one of those that can live together."""
    if kind == "mixed":
        kind = party.world.rng(f"kind/{client.name}").choice(("cooperative", "consumer"))
    if kind in ("eager", "cooperative"):
        classic = ClassicMember(party, client, instance)
        classic.is_cooperative = kind == "cooperative"
        return classic
    member = ConsumerMember(party, client, instance)
    member.is_slow = kind == "slow"
    return member


class Crowd:
    """The members of one group, and their changes."""

    def __init__(self, party: Party, kind: str) -> None:
        self.party = party
        self.kind = kind
        party.is_mixed = kind == "mixed"
        self.world: World = party.world
        self.members: list[Member] = []
        self.rng: random.Random = self.world.rng(f"crowd/{party.group}")
        self.is_calm = False
        self._numbers = itertools.count(1)
        self._ghosts: list[Member] = []

    def add(self, instance: str | None = None) -> Member:
        client = self.world.client(f"{self.party.group}-{next(self._numbers)}")
        member = make_member(self.kind, self.party, client, instance)
        self.members.append(member)
        client.start(member.run())
        client.start(member.commit_sometimes())
        return member

    async def live(self) -> None:
        """Changes something now and then, until it is calm."""
        for _ in range(self.rng.randint(1, 3)):
            self.add(self._instance())
        while True:
            await asyncio.sleep(self.rng.uniform(*CHANGE_S))
            if not self.is_calm:
                await self._change()

    def calm(self) -> None:
        """No more changes, and somebody is there."""
        self.is_calm = True
        for ghost in self._ghosts:
            # It was replaced, but its successor may have died before it was fenced.
            ghost.client.kill(silent=True)
        if not self.members:
            self.add()

    def _instance(self) -> str | None:
        if self.rng.random() < 0.25:
            return f"{self.party.group}-i{next(self._numbers)}"
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
                # Who does not let go of its instance id is not replaced, as long as it lives.
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
        """Why the group is not at rest: all partitions owned, each by one. None if it is."""
        wanted = {
            (topic, index) for topic, count in self.party.topics.items() for index in range(count)
        }
        owned: list[Place] = [place for member in self.members for place in member.owned]
        if sorted(owned) == sorted(wanted):
            return None
        return f"{self.party.group} owns {sorted(owned)}"


async def cut_off(world: "World", client: SimClient, seconds: float) -> None:
    """A client cannot reach anybody for a while, nor be reached."""
    hosts = [host.name for host in world.cluster.hosts.values()]
    world.loop.net.isolate(client.name, hosts)
    await asyncio.sleep(seconds)
    for host in hosts:
        world.loop.net.mend(client.name, host)
