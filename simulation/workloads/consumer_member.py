"""Member of a KIP-848 group: uses one request, and the coordinator assigns."""

from typing import Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from simulation.checkers.groups import Place
from simulation.client import SimClient
from simulation.workloads.members import GROUP, RETRY_LATER, GroupContext, Member

LEAVES: Final = -1
LEAVES_FOR_NOW: Final = -2
OVER = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class ConsumerMember(Member):
    """Member that uses only ConsumerGroupHeartbeat."""

    leaves_for_now = False
    """True if its static instance will rejoin after it has left."""

    def __init__(
        self, context: GroupContext, client: SimClient, instance: str | None = None
    ) -> None:
        super().__init__(context, client, instance)
        self.wanted: set[Place] = set()
        self._lives = 0
        self._names: dict[TopicId, str] = {}
        self._ids: dict[str, TopicId] = {}

    async def step(self) -> None:
        if not self._ids:
            await self._learn_topics()
        if not self.member_id:
            self._lives += 1
            self.member_id = f"{self.client.name}-{self._lives}"
        if self.is_slow:
            for place in sorted(self.owned - self.wanted)[:1]:
                self.owned = self.owned - {place}
        asked_at, owned = self.world.now(), set(self.owned)
        is_joining = self.epoch == 0
        reply = await self._beat(self.epoch, set() if is_joining else owned)
        code = self.client.note_reply("ConsumerGroupHeartbeat", reply.error_code, GROUP, self.group)
        if code is ErrorCode.NONE:
            self.known(asked_at)
            self.context.checker.numbered(reply.member_epoch, asked_at, is_group_wide=is_joining)
            if reply.member_epoch < self.epoch:
                self.world.violate("generation", f"{self.member_id} went back to an older epoch")
            self.context.checker.confirmed(self.member_id, owned, asked_at)
            assert reply.member_id is not None
            self.learn(reply.member_id, reply.member_epoch)
            self._take(reply.assignment)
        elif code not in RETRY_LATER:
            self._over(code)

    async def _learn_topics(self) -> None:
        for topic in sorted(self.context.topics):
            found = await self.client.topic(topic)
            self._ids[topic], self._names[found.topic_id] = found.topic_id, topic

    async def _beat(self, epoch: int, owned: set[Place]) -> ConsumerGroupHeartbeatResponse:
        rows: dict[str, list[int]] = {}
        for topic, index in sorted(owned):
            rows.setdefault(topic, []).append(index)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=int(self.context.timing.rebalance_s * 1000),
            subscribed_topic_names=sorted(self.context.topics),
            topic_partitions=[
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=self._ids[topic], partitions=indexes
                )
                for topic, indexes in rows.items()
            ],
        )
        return await self.client.ask_coordinator(
            GROUP, self.group, request, ConsumerGroupHeartbeatResponse
        )

    def _take(self, assignment: ConsumerGroupHeartbeatAssignment | None) -> None:
        if assignment is not None:
            self.wanted = {
                (self._names[row.topic_id], index)
                for row in assignment.topic_partitions
                for index in row.partitions
            }
        kept = self.owned if self.is_slow else self.owned & self.wanted
        self.own(kept | self.wanted)

    def _over(self, code: ErrorCode) -> None:
        assert code in OVER, code
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            self.member_id = ""
            return
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.fenced()
        if code is ErrorCode.UNKNOWN_MEMBER_ID and self.epoch > 0:
            self.unknown()
        self.lose()
        self.wanted = set()

    async def leave(self) -> None:
        if self.is_in:
            reply = await self._beat(LEAVES_FOR_NOW if self.leaves_for_now else LEAVES, set())
            if reply.error_code in RETRY_LATER:
                self.epoch = 0  # The coordinator still knows the member, which may still commit.
        self.lose()
        self.wanted = set()
