"""Deletes and recreates a topic repeatedly, while a group commits offsets of it.

Offsets are committed by topic id, by name, and in transactions; each is read back by id. During the
deletion and creation, the group's coordinator is often killed, paused or cut off from the store: it
learns of neither, or of both at once, and another node coordinates meanwhile.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.client.admin.admin import Admin
from penstock.client.errors import RETRIABLE
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from simulation.checkers.identities import IdentityChecker
from simulation.checkers.offset_topic_ids import OffsetTopicIdChecker
from simulation.client import NO_REPLY
from simulation.workloads.members import GROUP, PAUSE_S
from simulation.workloads.transactions import Membership, TxnFailed, TxnProducer

if TYPE_CHECKING:
    from simulation.host import SimHost
    from simulation.world import World

NAME: Final = "reborn"
GROUP_ID: Final = "readers"
BY_ID: Final = 10
BY_NAME: Final = 9
ASK_TIMEOUT_S: Final = 8.0
TXN_TIMEOUT_MS: Final = 5_000


class Recreator:
    """Client that sends all requests, so that it knows their order."""

    def __init__(self, world: "World", replication_factor: int) -> None:
        self.world = world
        self.factor = replication_factor
        self.client = world.client("recreator")
        self.rng: random.Random = world.rng("recreator")
        self.checker = OffsetTopicIdChecker(world)
        self.topic_id: TopicId = NO_TOPIC_ID
        self.is_calm = False
        self._has_open_deletion = False
        """True once a deletion was not answered: it may still be executed, on a later topic."""
        self._admin = Admin(self.client.cluster)
        self._identities = IdentityChecker(world)
        self._instances = itertools.count(1)

    def calm(self) -> None:
        """Ends deletions."""
        self.is_calm = True

    async def live(self) -> None:
        await self._create()
        while not self.is_calm:
            for _ in range(self.rng.randint(1, 4)):
                await self._move()
                await self.read()
            await self._recreate_either_way()
            for _ in range(self.rng.randint(1, 3)):
                await self.read()
        self.world.reached("recreator at rest")

    # -- the topic --------------------------------------------------------------------------

    async def _recreate(self) -> None:
        before = self.topic_id
        self.checker.kept.pop(before, None)
        while self.topic_id == before:  # The broker asked to delete it may not have known it.
            await self._retry_until(self._delete)
            await self._create()
        self.world.reached("topic created anew")

    async def _recreate_either_way(self) -> None:
        if self.rng.random() < 0.8:
            await self._recreate_unseen()
        else:
            await self._recreate()

    async def _recreate_unseen(self) -> None:
        """Recreates the topic while the coordinator cannot see it."""
        host = await self._coordinator()
        if host is None or not host.is_up:
            await self._recreate()
            return
        etcd, name = self.world.cluster.etcd, host.name
        kind = self.rng.choice(("paused", "cut off", "killed"))
        if kind == "paused":
            host.pause()
        elif kind == "cut off":
            etcd.cut_off[name] = None
        else:
            host.kill()
        self.world.fault(f"coordinator {kind} while its topic is created anew")
        await asyncio.sleep(self.rng.choice((0.0, 0.5, 6.0)))
        recreating = asyncio.ensure_future(self._recreate())
        await asyncio.wait((recreating,), timeout=self.rng.uniform(0.5, 15.0))
        host.resume()
        etcd.cut_off.pop(name, None)
        await recreating

    async def _coordinator(self) -> "SimHost | None":
        with contextlib.suppress(*NO_REPLY):
            await self.read()
        known = self.client.coordinator_of(GROUP, GROUP_ID)
        return None if known is None else self.world.cluster.hosts.get(known)

    async def _delete(self) -> bool:
        was_open, self._has_open_deletion = self._has_open_deletion, True
        try:
            await self._admin.delete_topic(NAME)
        except Refused as refused:
            if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
        self._has_open_deletion = was_open
        return True

    async def _create(self) -> None:
        await self._retry_until(self._try_create)

    async def _try_create(self) -> bool:
        try:
            await self._admin.create_topic(NAME, partitions=1, replication_factor=self.factor)
        except Refused as refused:
            # The broker may have old metadata: look the topic up.
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
        await self.client.cluster.refresh((NAME,))
        self.topic_id = (await self.client.topic(NAME)).topic_id
        return self.topic_id != NO_TOPIC_ID

    async def _retry_until(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        while True:
            with contextlib.suppress(*NO_REPLY, TimeoutError, Refused, PeerError, OSError):
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    if await attempt():
                        return
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))

    # -- offsets ----------------------------------------------------------------------------

    async def _move(self) -> None:
        """Commits an offset in a random way."""
        kind = self.rng.choice(("id", "id", "name", "transaction"))
        value = self.checker.begin_commit(self.topic_id)
        if kind == "transaction":
            await self._commit_in_transaction(value)
            return
        if kind == "name":
            self.checker.unsure.add(value)
        is_by_id = kind == "id"
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=value, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=NAME, topic_id=self.topic_id, partitions=[row])
        request = OffsetCommitRequest(group_id=GROUP_ID, member_id="", topics=[topic])
        try:
            reply = await self.client.ask_coordinator(
                GROUP,
                GROUP_ID,
                request,
                OffsetCommitResponse,
                version=BY_ID if is_by_id else BY_NAME,
            )
        except NO_REPLY:
            return
        code = self.client.note_reply(
            "OffsetCommit", reply.topics[0].partitions[0].error_code, GROUP, GROUP_ID
        )
        self.checker.unsure.discard(value)
        if code is ErrorCode.NONE and is_by_id:
            self.checker.acknowledged(value)

    async def _commit_in_transaction(self, value: int) -> None:
        """Commits in a transaction, sometimes ended only after the topic was recreated."""
        self.checker.unsure.add(value)
        producer = TxnProducer(
            self.client,
            "mover",
            next(self._instances),
            self._identities,
            is_v2=self.rng.random() < 0.5,
            timeout_ms=TXN_TIMEOUT_MS,
        )
        try:
            await producer.initialise()
            member = Membership(GROUP_ID, "", -1, None)
            await producer.commit_offset(member, TopicPartition(NAME, 0), value)
            self.checker.unsure.discard(value)
            if self.rng.random() < 0.5:
                # The topic is another one when the transaction commits.
                await self._recreate_either_way()
            await producer.end(committed=True)
        except TxnFailed:
            self.world.reached("transaction failed")

    async def read(self) -> bool:
        """Queries the committed offset; True if a reply had one."""
        topic_id = self.topic_id
        rows = OffsetFetchRequestTopics(name=NAME, topic_id=topic_id, partition_indexes=[0])
        asked = OffsetFetchRequestGroup(group_id=GROUP_ID, topics=[rows])
        request = OffsetFetchRequest(groups=[asked], require_stable=False)
        try:
            reply = await self.client.ask_coordinator(
                GROUP, GROUP_ID, request, OffsetFetchResponse, version=BY_ID
            )
        except NO_REPLY:
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))
            return False
        group = reply.groups[0]
        code = self.client.note_reply("OffsetFetch", group.error_code, GROUP, GROUP_ID)
        if code is not ErrorCode.NONE:
            assert code in RETRIABLE, code
            return False
        row = group.topics[0].partitions[0]
        if row.error_code:
            missing = ErrorCode(row.error_code)
            self.world.reached(f"OffsetFetch {missing.name}")
            is_gone = missing is ErrorCode.UNKNOWN_TOPIC_ID and self._has_open_deletion
            if self.is_calm and is_gone:
                await self._create()
            return False
        self.checker.read(topic_id, row.committed_offset)
        return True
