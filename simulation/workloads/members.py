"""What consumers of both protocols share: identity, what they own, commits, and their end.

A member is one client process that joins, stays, commits, and reacts to every answer as Kafka's
own consumers do. `classic` and `consumer` hold the two protocols. `owned` is what it would be
reading right now. Identities that are over are kept, to see that nothing is accepted under them.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode
from penstock.client.errors import Unreachable
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from simulation.checkers.groups import GroupChecker, Place
from simulation.checkers.offsets import OffsetsChecker
from simulation.client import LOST, UNKNOWN, SimClient

if TYPE_CHECKING:
    from simulation.world import World

GROUP: Final = 0
"""FindCoordinator's key type."""
COMMIT_VERSION: Final = 9
PAUSE_S: Final = (0.1, 0.4)
OLD_MAX: Final = 20

NOT_NOW = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(slots=True)
class Timing:
    """How a group's members live."""

    session_s: float = 6.0
    rebalance_s: float = 20.0
    heartbeat_s: float = 1.0


class Party:
    """One group in a run: its checkers, and what its members have in common."""

    def __init__(
        self, world: "World", group: str, topics: dict[str, int], timing: Timing | None = None
    ) -> None:
        self.world = world
        self.group = group
        self.topics = topics
        """Topic to number of partitions."""
        self.timing = timing or Timing()
        self.is_mixed = False
        """Has members of both protocols, each at its own epoch."""
        self.checker = GroupChecker(world, group)
        self.offsets = OffsetsChecker(world, group)


async def found(client: SimClient, group: str, place: Place, value: int) -> None:
    """Commits a position for a group that nobody is in yet.

    A group without members and positions is forgotten, and begins again from the first generation.
    """
    while True:
        with contextlib.suppress(*LOST):
            if await send_commit(client, group, place, value, "", -1) is ErrorCode.NONE:
                return
        await asyncio.sleep(PAUSE_S[0])


async def send_commit(
    client: SimClient,
    group: str,
    place: Place,
    value: int,
    member_id: str,
    epoch: int,
    instance: str | None = None,
) -> ErrorCode:
    topic, index = place
    row = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=value, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])],
    )
    reply = await client.ask_coordinator(
        GROUP, group, request, OffsetCommitResponse, version=COMMIT_VERSION
    )
    code = reply.topics[0].partitions[0].error_code
    return client.told("OffsetCommit", code, GROUP, group)


class Member:
    """A consumer. `run` returns once it was asked to leave, and did."""

    is_classic = False

    def __init__(self, party: Party, client: SimClient, instance: str | None = None) -> None:
        self.party = party
        self.world = party.world
        self.client = client
        self.group = party.group
        self.instance = instance
        if instance is not None:
            party.checker.statics[instance] = None
        self.rng: random.Random = party.world.rng(f"member/{client.name}")
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Place] = set()
        self.old: list[tuple[str, int]] = []
        self.is_slow = False
        """Takes its time to give up what it was told to."""
        self.is_leaving = False
        self.is_fenced = False
        """Another one has its instance id: it ends without a word."""
        self._known_at = -1.0
        """When it last asked a question that was answered as to a member."""

    @property
    def is_in(self) -> bool:
        return bool(self.member_id) and self.epoch > 0

    async def run(self) -> None:
        while not self.is_leaving:
            try:
                await self.step()
            except LOST:
                await self.pause()
            await asyncio.sleep(self.next_pause_s())
        if not self.is_fenced:
            with contextlib.suppress(*LOST):
                await self.leave()

    async def step(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    def next_pause_s(self) -> float:
        return self.party.timing.heartbeat_s * self.rng.uniform(0.5, 1.2)

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(*PAUSE_S))

    # -- what answers say -------------------------------------------------------------------

    def learn(self, member_id: str, epoch: int) -> None:
        """The coordinator says who we are and at which epoch."""
        if self.is_in and (member_id, epoch) != (self.member_id, self.epoch):
            self._outlive()
        self.member_id, self.epoch = member_id, epoch

    def lose(self) -> None:
        """We are nobody any more."""
        if self.is_in:
            self._outlive()
        self.member_id, self.epoch = "", 0
        self.owned = set()
        self._known_at = -1.0

    def _outlive(self) -> None:
        self.old.append((self.member_id, self.epoch))
        del self.old[:-OLD_MAX]

    def own(self, owned: set[Place]) -> None:
        self.party.checker.granted(self.member_id, self.owned, owned)
        self.owned = owned

    def known(self, asked_at: float) -> None:
        """A question was answered as to a member: the session is alive."""
        self._known_at = asked_at

    def fenced(self) -> None:
        """Somebody else came with our instance id."""
        self.is_leaving = self.is_fenced = True

    def unknown(self) -> None:
        """We were told that we are not a member; that must be because we were silent."""
        if self._known_at >= 0 and self.instance is None:
            silent_s = self.world.now() - self._known_at
            self.party.checker.forgot(self.member_id, silent_s, self.party.timing.session_s)

    # -- positions --------------------------------------------------------------------------

    async def commit(self, place: Place) -> ErrorCode | None:
        """Moves the position of one owned partition; None without an answer."""
        commit = self.party.offsets.asks(place, self.epoch)
        try:
            code = await self._commit(place, commit.value, self.member_id, self.epoch)
        except Unreachable:
            self.party.offsets.refused(commit)
            return None
        except UNKNOWN:
            self.world.reached("commit unknown")
            return None
        if code is ErrorCode.NONE:
            self.party.offsets.acknowledged(commit)
        elif code not in NOT_NOW:
            self.party.offsets.refused(commit)
        return code

    async def commit_old(self, place: Place) -> None:
        """Tries to move a position under an identity that is over: that must be refused."""
        member_id, epoch = self.rng.choice(self.old)
        # A classic member that was removed is back after a crash until the next generation.
        if self.is_classic and epoch >= self.party.checker.number:
            return
        commit = self.party.offsets.asks(place, epoch)
        try:
            code = await self._commit(place, commit.value, member_id, epoch)
        except LOST:
            return
        self.world.reached("old commit tried")
        if code is ErrorCode.NONE:
            self.party.checker.accepted_old(member_id, epoch, "a commit")
        elif code not in NOT_NOW:
            self.party.offsets.refused(commit)

    async def _commit(self, place: Place, value: int, member_id: str, epoch: int) -> ErrorCode:
        return await send_commit(
            self.client, self.group, place, value, member_id, epoch, self.instance
        )

    async def commit_sometimes(self) -> None:
        """The other half of a consumer's life."""
        while not self.is_leaving:
            await asyncio.sleep(self.rng.uniform(0.2, 1.5))
            places = sorted(self.owned)
            if self.is_in and places and self.rng.random() < 0.8:
                await self.commit(self.rng.choice(places))
            elif self.old:
                topic = self.rng.choice(sorted(self.party.topics))
                await self.commit_old((topic, self.rng.randrange(self.party.topics[topic])))
