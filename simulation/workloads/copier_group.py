"""Copiers of one job, which die, are replaced, and continue as zombies."""

import asyncio
import itertools
import random
from typing import TYPE_CHECKING

from simulation.client import SimClient
from simulation.workloads.copier import Copier, CopyJob
from simulation.workloads.group_churn import cut_off, make_member
from simulation.workloads.members import GroupContext
from simulation.workloads.transactions import TxnProducer

if TYPE_CHECKING:
    from simulation.world import World

CHANGE_S = (1.5, 8.0)
LATE_S = (0.5, 8.0)
TIMEOUT_MS = (5_000, 15_000)


class CopierGroup:
    """Copiers by transactional id, and their random restarts."""

    def __init__(self, job: CopyJob, context: GroupContext, kind: str, count: int) -> None:
        self.job = job
        self.context = context
        self.kind = kind
        context.is_mixed = kind == "mixed"
        self.world: World = context.world
        self.copiers: dict[str, Copier] = {}
        self.rng: random.Random = self.world.rng(f"crew/{context.group}")
        self.is_calm = False
        self._numbers = itertools.count(count)
        self._names = [f"{context.group}-t{number}" for number in range(count)]
        self._instances: dict[str, int] = {}

    def start(self, name: str) -> Copier:
        """Starts a new instance of the application with this transactional id."""
        number = self._instances[name] = self._instances.get(name, 0) + 1
        client = self.world.client(f"{name}.{number}")
        is_v2 = self.rng.random() < 0.75
        producer = TxnProducer(
            client,
            name,
            number,
            self.job.identities,
            is_v2=is_v2,
            timeout_ms=self.rng.randint(*TIMEOUT_MS),
            late=self._late(client, is_slow=is_v2) if self.rng.random() < 0.6 else None,
        )
        member = make_member(self.kind, self.context, client)
        copier = self.copiers[name] = Copier(self.job, member, producer)
        client.start(member.run())
        client.start(copier.run())
        return copier

    def _late(self, client: SimClient, *, is_slow: bool) -> SimClient:
        """Client of the same application over another connection."""
        late = self.world.client(f"{client.name}~late", has_long_timeouts=True)
        if is_slow:
            for host in self.world.cluster.hosts.values():
                self.world.loop.net.slow(late.name, host.name, LATE_S)
        return late

    async def live(self) -> None:
        for name in self._names:
            self.start(name)
        while True:
            await asyncio.sleep(self.rng.uniform(*CHANGE_S))
            if not self.is_calm:
                await self._change(self.rng.choice(self._names))

    async def _change(self, name: str) -> None:
        copier = self.copiers[name]
        choice = self.rng.random()
        if choice < 0.45:
            self.world.fault("copier dies")
            copier.client.kill(silent=self.rng.random() < 0.7)
            if copier.producer.late is not None and self.rng.random() < 0.5:
                copier.producer.late.kill(silent=True)
            await asyncio.sleep(self.rng.uniform(0, 3))
            if self.copiers[name] is copier:
                self.start(self._renamed(name))
        elif choice < 0.75:
            self.world.fault("copier replaced")
            copier.is_replaced = True
            copier.member.is_leaving = self.rng.random() < 0.3
            self.start(name)
            await cut_off(self.world, copier.client, self.rng.uniform(0, 6.0))
        else:
            self.world.fault("copier cut off")
            await cut_off(self.world, copier.client, self.rng.uniform(0.5, 12.0))

    def _renamed(self, name: str) -> str:
        """Sometimes abandons a transactional id, so that its transaction times out."""
        if self.rng.random() < 0.7:
            return name
        self.world.reached("transactional id abandoned")
        self._names.remove(name)
        self._names.append(f"{self.context.group}-t{next(self._numbers)}")
        return self._names[-1]

    def calm(self) -> None:
        self.is_calm = True
        for name in self._names:
            if name not in self.copiers or self.copiers[name].client.is_dead:
                self.start(name)
