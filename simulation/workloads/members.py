"""Common parts of members of both group protocols: identity, ownership, commits, and leaving.

A member is a client process that joins, sends heartbeats, commits, and reacts to every error code
as Kafka's consumers do. `classic_member` and `consumer_member` implement the two protocols.
`owned` are the partitions that it would read now. Members keep their old identities, to check that
the coordinator refuses them.
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
from simulation.client import NO_REPLY, UNKNOWN_OUTCOME, SimClient

if TYPE_CHECKING:
    from simulation.world import World

GROUP: Final = 0
"""FindCoordinator's key type."""
COMMIT_VERSION: Final = 9
PAUSE_S: Final = (0.1, 0.4)
OLD_MAX: Final = 20

RETRY_LATER = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
MEMBERSHIP_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(slots=True)
class Timing:
    """Timing of a group's members."""

    session_s: float = 6.0
    rebalance_s: float = 20.0
    heartbeat_s: float = 1.0


class GroupContext:
    """Group of a run: its checkers, and the common settings of its members."""

    def __init__(
        self, world: "World", group: str, topics: dict[str, int], timing: Timing | None = None
    ) -> None:
        self.world = world
        self.group = group
        self.topics = topics
        """Number of partitions by topic."""
        self.timing = timing or Timing()
        self.is_mixed = False
        """True if members use both protocols, each with its own epoch."""
        self.checker = GroupChecker(world, group)
        self.offsets = OffsetsChecker(world, group)


async def create_group(client: SimClient, group: str, place: Place, value: int) -> None:
    """Creates a group by a committed offset.

    A group without members and offsets is deleted, and starts again at the first generation.
    """
    while True:
        with contextlib.suppress(*NO_REPLY):
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
    return client.note_reply("OffsetCommit", code, GROUP, group)


class Member:
    """Member of a group. `run` returns after it has left."""

    is_classic = False

    def __init__(
        self, context: GroupContext, client: SimClient, instance: str | None = None
    ) -> None:
        self.context = context
        self.world = context.world
        self.client = client
        self.group = context.group
        self.instance = instance
        if instance is not None:
            context.checker.statics[instance] = None
        self.rng: random.Random = context.world.rng(f"member/{client.name}")
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Place] = set()
        self.old: list[tuple[str, int]] = []
        self.is_slow = False
        """True if it revokes partitions slowly."""
        self.is_leaving = False
        self.is_fenced = False
        """True if another member has its instance id: it ends without leaving."""
        self._known_at = -1.0
        """Time of the last request with a successful reply."""

    @property
    def is_in(self) -> bool:
        return bool(self.member_id) and self.epoch > 0

    async def run(self) -> None:
        while not self.is_leaving:
            try:
                await self.step()
            except NO_REPLY:
                await self.pause()
            await asyncio.sleep(self.next_pause_s())
        if not self.is_fenced:
            with contextlib.suppress(*NO_REPLY):
                await self.leave()

    async def step(self) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    def next_pause_s(self) -> float:
        return self.context.timing.heartbeat_s * self.rng.uniform(0.5, 1.2)

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(*PAUSE_S))

    # -- replies ----------------------------------------------------------------------------

    def learn(self, member_id: str, epoch: int) -> None:
        """Sets the member id and epoch of a reply."""
        if self.is_in and (member_id, epoch) != (self.member_id, self.epoch):
            self._retire_identity()
        self.member_id, self.epoch = member_id, epoch

    def lose(self) -> None:
        """Drops the identity and all partitions."""
        if self.is_in:
            self._retire_identity()
        self.member_id, self.epoch = "", 0
        self.owned = set()
        self._known_at = -1.0

    def _retire_identity(self) -> None:
        self.old.append((self.member_id, self.epoch))
        del self.old[:-OLD_MAX]

    def own(self, owned: set[Place]) -> None:
        self.context.checker.granted(self.member_id, self.owned, owned)
        self.owned = owned

    def known(self, asked_at: float) -> None:
        """Records a successful reply, which shows that the session is alive."""
        self._known_at = asked_at

    def fenced(self) -> None:
        """Ends this member, because another one uses its instance id."""
        self.is_leaving = self.is_fenced = True

    def unknown(self) -> None:
        """Checks that the session has expired when the coordinator does not know the member."""
        if self._known_at >= 0 and self.instance is None:
            silent_s = self.world.now() - self._known_at
            self.context.checker.forgot(self.member_id, silent_s, self.context.timing.session_s)

    # -- offset commits ---------------------------------------------------------------------

    async def commit(self, place: Place) -> ErrorCode | None:
        """Commits an offset of one owned partition; None without a reply."""
        commit = self.context.offsets.begin_commit(place, self.epoch)
        try:
            code = await self._commit(place, commit.value, self.member_id, self.epoch)
        except Unreachable:
            self.context.offsets.refused(commit)
            return None
        except UNKNOWN_OUTCOME:
            self.world.reached("commit unknown")
            return None
        if code is ErrorCode.NONE:
            self.context.offsets.acknowledged(commit)
        elif code not in RETRY_LATER:
            self.context.offsets.refused(commit)
        return code

    async def commit_old(self, place: Place) -> None:
        """Commits an offset with an old identity, which must be refused."""
        member_id, epoch = self.rng.choice(self.old)
        # After a crash, a removed classic member exists again until the next generation.
        if self.is_classic and epoch >= self.context.checker.number:
            return
        commit = self.context.offsets.begin_commit(place, epoch)
        try:
            code = await self._commit(place, commit.value, member_id, epoch)
        except NO_REPLY:
            return
        self.world.reached("old commit tried")
        if code is ErrorCode.NONE:
            self.context.checker.accepted_old(member_id, epoch, "a commit")
        elif code not in RETRY_LATER:
            self.context.offsets.refused(commit)

    async def _commit(self, place: Place, value: int, member_id: str, epoch: int) -> ErrorCode:
        return await send_commit(
            self.client, self.group, place, value, member_id, epoch, self.instance
        )

    async def commit_sometimes(self) -> None:
        """Commits offsets at random intervals."""
        while not self.is_leaving:
            await asyncio.sleep(self.rng.uniform(0.2, 1.5))
            places = sorted(self.owned)
            if self.is_in and places and self.rng.random() < 0.8:
                await self.commit(self.rng.choice(places))
            elif self.old:
                topic = self.rng.choice(sorted(self.context.topics))
                await self.commit_old((topic, self.rng.randrange(self.context.topics[topic])))
